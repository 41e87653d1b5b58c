"""Studies that a page starts or continues: commands of pgdyno in processes that outlive the server."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from typer.exceptions import TyperException

from pgdyno.cli.main import DEFAULTS, SETTINGS, Loading
from pgdyno.errors import PgdynoError, UsageError, plain_message
from pgdyno.features.serve import stop
from pgdyno.features.serve.index import Index, State, writer_of
from pgdyno.results.results_file import state_of

PROGRAM = (sys.executable, "-P", "-c", "from pgdyno.cli.main import main; main()")

PROGRAMS = re.compile(r".*_(command|librar(y|ies)|director(y|ies)|path|provider|conninfo)")
"""Settings that name programs, libraries and places, whatever their value."""

LOG_LINES_MAX, LOG_BYTES_MAX = 12, 4096
"""The end of a log that a page shows."""


def log_of(path: Path) -> Path:
    """Return the path of the messages of the commands that pages have started for a results file."""
    return path.with_name(f"{path.name}.log")


def end_of_log(path: Path) -> list[str]:
    """Return the last lines of the log; none without one."""
    try:
        with log_of(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
            return file.read().decode(errors="replace").splitlines()[-LOG_LINES_MAX:]
    except OSError:
        return []


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Parse a command line, with the defaults of the user, and return its parameters. Raises UsageError."""
    name, *rest = words
    try:
        with ExitStack() as stack:
            defaults = {k: v for of in DEFAULTS for k, v in stack.enter_context(of(words)).items()}
            settings = {**SETTINGS, "default_map": defaults.get(name)}
            context = Loading()[name].make_context(name, rest, **settings)
    except TyperException as error:
        raise UsageError(plain_message(error.format_message())) from None
    return dict(context.params)


class _Started(NamedTuple):
    process: subprocess.Popen[bytes]
    state: State  # of the results file before


class Studies:
    """The studies that the pages of a server have started.

    The server itself takes the lowest CPU priority, which no process may leave again. On Linux a priority is
    that of a thread, and a child has that of the thread that starts it. So the thread of this object, which
    begins with the priority of the user, starts the studies.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._started: dict[Path, _Started] = {}
        self._thread = ThreadPoolExecutor(1, "pgdyno-studies")
        self._thread.submit(os.getpid).result()  # begin it now

    def pid_of(self, path: Path) -> int | None:
        """Return the ID of the process that runs the study of a results file, or is about to.

        It no longer does while it makes the report.
        """
        return self._started[path].process.pid if self.is_beginning(path) else writer_of(path)

    def is_beginning(self, path: Path) -> bool:
        """Return whether a process that was started here has not yet written to the file."""
        started = self._started.get(path)
        return started is not None and started.process.poll() is None and started.state == state_of(path)

    def start(self, path: Path, words: Sequence[str]) -> None:
        """Start a command that writes a results file. Raises UsageError, PgdynoError, OSError.

        Two studies at the same time would disturb each other, so the directory has only one.
        """
        parsed(words)
        with self._lock:
            written = (one.path for one in self._index.entries() if one.state == "running")
            for other in {path, *self._started, *written}:
                if self.pid_of(other) is not None:
                    raise PgdynoError(f"the study of {other.name} is running: wait for its end, or stop it")
            stop.forget(path)
            self._started[path] = self._thread.submit(_started, path, words).result()


def _started(path: Path, words: Sequence[str]) -> _Started:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with os.fdopen(os.open(log_of(path), flags, 0o644), "ab") as log:
        log.write(f"$ {shlex.join(['pgdyno', *words])}\n".encode())
        log.flush()
        state = state_of(path)
        process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it outlives the server, and Ctrl-C in its terminal
        )
    return _Started(process, state)
