"""The program of ``run.beside``: the probe ``beside`` starts it with the measured part, and ends it with it.

It runs as the user of the servers, as archive_command of a study file does, with libpq's variables of the
server. Programs of the server's build come first. Its descendants end with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from psycopg.pq import Conninfo

from pgdyno.errors import UsageError, in_one_line
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import LabArm
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import Watch
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeError, ProbeKind
from pgdyno.results.password_masking import masked
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import resolved
from pgdyno.server.directories import server_account
from pgdyno.server.processes import clean_environment, launch_tree
from pgdyno.study.plan import Study

NAME = "beside"
END_TIMEOUT_S = 20.0
"""Maximum time for its end: its launcher kills it 2 s after SIGTERM."""

ERROR_CHARACTERS_MAX = 300


class Beside:
    """The program while it runs. A thread waits for its end, so that its time is known."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process, self._errors = process, errors
        self._begun_s, self._took_s, self._cpu_s = time.monotonic(), 0.0, 0.0
        self._was_cut = False
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, arm: LabArm, study: Study) -> Beside:
        """Start it. Raises ProbeError if it does not exist."""
        if not study.beside:
            raise ProbeError("a study file names the program: run.beside")
        values = resolved(arm.conninfo())
        given = {
            option.envvar.decode(): str(values[keyword])
            for option in Conninfo.get_defaults()
            if option.envvar and (keyword := option.keyword.decode()) in values
        }
        if password := values["passwords"][0]:
            given["PGPASSWORD"] = password
        environment, pid = {**clean_environment(), **given}, arm.postmaster_pid()
        folders = [str(Path(f"/proc/{pid}/exe").resolve().parent)] if pid else []
        environment["PATH"] = os.pathsep.join([*folders, environment.get("PATH", os.defpath)])
        program = shutil.which(study.beside[0], path=environment["PATH"])
        if program is None:
            raise ProbeError(f"there is no program {study.beside[0]}: install it, or name its path")
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # `stop` or `give_up` closes it
        command, account = [program, *study.beside[1:]], server_account()
        try:
            process = launch_tree(
                command, account, output=subprocess.DEVNULL, errors=errors, environment=environment
            )
        except BaseException:
            errors.close()
            raise
        return cls(process, errors)

    def _wait(self) -> None:
        _, status, used = os.wait4(self._process.pid, 0)
        self._took_s = time.monotonic() - self._begun_s
        self._cpu_s = used.ru_utime + used.ru_stime
        self._process.returncode = os.waitstatus_to_exitcode(status)

    def halt(self) -> None:
        """End it with its descendants, if it still runs."""
        if self._thread.is_alive() and not self._was_cut:
            self._was_cut = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
            self._thread.join(END_TIMEOUT_S)

    def stop(self) -> Sequence[Row]:
        """Return a row of facts. ``status`` is None if the program was still running, and was ended."""
        with self._errors:
            self.halt()
            if self._thread.is_alive():
                raise ProbeError(f"the program did not end within {END_TIMEOUT_S:g} s")
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace")
        return [
            {
                "took_s": self._took_s,
                "cpu_s": self._cpu_s,
                "status": None if self._was_cut else self._process.returncode,
                "error": in_one_line(words)[:ERROR_CHARACTERS_MAX],
            }
        ]

    def give_up(self) -> None:
        """End it with its descendants, and close the file of its errors."""
        self.halt()
        self._errors.close()


def with_probe(study: Study, _: Cache, __: Watch, ___: Interruption) -> Study:
    """Return the study with its probe. Raises UsageError unless one arm runs at a time, and for a password:
    a resume would run the masked words of the results file.
    """
    if not study.beside or NAME in study.probes:
        return study
    if study.is_together:
        raise UsageError('run.beside requires one arm at a time: set run.schedule = "blocks"')
    if masked(study.beside) != list(study.beside):
        raise UsageError(
            "run.beside must not contain a password, which no results file stores: put it in ~/.pgpass; the "
            "program has PGPASSWORD for the measured server"
        )
    return study.model_copy(update={"probes": (*study.probes, NAME)})


PREPARATION = Preparation(with_probe)
PROBE = ProbeKind(NAME, start=Beside.start)
