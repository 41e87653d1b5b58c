"""The real program as a child process with its own cache, processes and files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

import pgdyno
from pgdyno.cli.main import run_command

SCRIPT = Path(sys.executable).parent / "pgdyno"
END_S = 300.0
"""Time limit of a program and of waits; longer is a failure."""

END_TIMEOUT_S = 20.0
"""Time limit for the end of processes that a killed program leaves."""

PAUSE_S = 0.02

SLICES = ("--schedule", "slices", "--slice", "0.1s", "--warmup", "0.2s", "--window", "0.4s")
"""Blocks of 1 to 2 s. A process that is stopped for a moment spoils one of the four slices of an arm."""

COUNTED = ("--schedule", "blocks", "--warmup", "0.1s", "--transactions", "100")
"""Windows whose transactions have a number per client, however slow the machine is."""

SMALLEST = ("--warehouses", "1", "--clients", "2", "--minutes", "60", "--seed", "7")
"""A study with the same schedule on every machine. --blocks ends it within a wide budget."""

PGBENCH = ("--workload", "pgbench", "--scale", "1", "--minutes", "60", "--seed", "7", "--json")
"""A study of pgbench, whose data are loaded in a moment."""

TINY = (*PGBENCH, *COUNTED, "--clients", "1", "--blocks", "1")
"""One block of pgbench."""


def write_study(path: Path, servers: Sequence[str | Path], **tables: Mapping[str, object]) -> Path:
    """Write a study file that compares these servers, named a, b, …: for keys that no option has."""
    lines = ['title = "Study"', 'compare = ["server"]', "[factors.server]"]
    lines += [f"{chr(97 + n)} = {json.dumps(str(one))}" for n, one in enumerate(servers)]
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


@dataclass(frozen=True)
class Ended:
    """Output of a program."""

    status: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """Return the program's own messages at its end."""
        return [line for line in self.err.splitlines() if line.startswith("pgdyno: ")]

    @property
    def complaint(self) -> str:
        (only,) = self.complaints
        return only

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def case(self) -> Any:
        """The only case in the report of a study."""
        (case,) = self.json()["study"]["cases"]
        return case

    @property
    def trials(self) -> list[dict[str, int]]:
        """Number of trials by status of each arm of this case."""
        return [of["trials_by_status"] for of in self.case["arms"]]


@dataclass
class Running:
    """A running program. Its output goes to files, so that it never waits for a reader."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def until(self, condition: Callable[[], Any], limit_s: float = END_S) -> Any:
        """Wait until the condition holds and return its value. The program must not end before."""
        deadline_s = time.monotonic() + limit_s
        while not (found := condition()):
            # Waiting for the program is the pause: its end is noticed at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PAUSE_S)
                raise AssertionError(f"it ended too early: {self.ended()}")
            if time.monotonic() > deadline_s:
                raise AssertionError(f"never came to pass; so far it said: {self.err.read_text()}")
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> Ended:
        status = self.process.wait(END_S)
        return Ended(status, self.out.read_text(), self.err.read_text())


@dataclass
class Program:
    """Starts pgdyno with its own cache, without variables that could point to a server.

    ``prefix``: the start of its command line, which says where it runs.
    """

    cache: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    _started: list[Running] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        engine = {"PGDYNO_ENGINE": os.environ["PGDYNO_ENGINE"]} if "PGDYNO_ENGINE" in os.environ else {}
        # The package under test, even if PYTHONPATH is relative.
        package = str(Path(pgdyno.__file__).parents[1])
        ours = {"PGDYNO_CACHE": str(self.cache), "TMPDIR": str(self.sockets), "PYTHONPATH": package}
        return {**kept, **engine, **ours, **self.environ}

    @property
    def sockets(self) -> Path:
        """Directory of the servers' sockets."""
        return self.cache / "sockets"

    def start(self, *arguments: str | Path) -> Running:
        number = len(self._started)
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                [*self.prefix, SCRIPT, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                env=self.environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        running = Running(process, out, err)
        self._started.append(running)
        return running

    def run_process(self, *arguments: str | Path) -> Ended:
        """Run it to its end as a process. A traceback fails the test."""
        ended = self.start(*arguments).ended()
        assert "Traceback" not in ended.err, ended.err
        return ended

    def run(self, *arguments: str | Path) -> Ended:
        """Run it to its end in this process: the start of another one takes a third of a short study."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with (
            patch.dict(os.environ, self.environment(), clear=True),
            patch.object(tempfile, "tempdir", str(self.sockets)),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = run_command([str(argument) for argument in arguments])
        written = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        assert "Traceback" not in written[1], written[1]
        return Ended(status, *written)

    def succeed(self, *arguments: str | Path) -> Ended:
        """Run it to its end in this process without an error."""
        ended = self.run(*arguments)
        assert ended.status == 0, ended.err
        return ended

    def refuse(self, *arguments: str | Path, status: int = 1) -> Ended:
        """Run it to its end in this process, with one message and an exit status."""
        ended = self.run(*arguments)
        assert (ended.status, len(ended.complaints)) == (status, 1), ended.err
        return ended

    def end(self) -> None:
        """Kill processes left by a failed test."""
        for running in self._started:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait(END_S)

    def survivors(self) -> list[str]:
        """Return engines, servers and programs of this cache that still run after a grace period.

        A process that is about to end may have started another one, which ends later.
        """
        until_s = time.monotonic() + END_TIMEOUT_S
        while (living := self.processes()) and (left_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(living[0].pid)
                select.select([descriptor], [], [], left_s)
                os.close(descriptor)
        return [line for process in living if (line := command_line(process))]

    def engines(self) -> list[psutil.Process]:
        return [process for process in self.processes() if "pgdyno-engine" in command_line(process)]

    def processes(self) -> list[psutil.Process]:
        return list(_of(self.cache))

    def postmasters(self) -> list[psutil.Process]:
        """Return the postmasters of running trials."""
        found = []
        for path in self.cache.glob("runs/run-*/data/postmaster.pid"):
            with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
                found.append(psutil.Process(int(path.read_text().split("\n", 1)[0])))
        return found


def command_line(process: psutil.Process) -> str:
    """Return the command line; empty if the process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def measuring(evidence: Path, block: int = 0) -> bool:
    """Return whether the results file has a counted slice of that block, with transactions."""
    query = """
        select 1 from slice join slice_count using (trial, position) join trial using (trial)
        where block = ? and role = 'measure' and ok > 0 limit 1"""
    return bool(_asked(evidence, query, block))


def begun(evidence: Path, block: int) -> bool:
    """Return whether the results file has trials of that block."""
    return bool(_asked(evidence, "select 1 from trial where block = ? limit 1", block))


def without_slices(evidence: Path) -> set[int]:
    """Return running trials without slices in the results file."""
    query = "select trial from trial where status = 'running' and trial not in (select trial from slice)"
    return {int(row[0]) for row in _asked(evidence, query)}


def _asked(evidence: Path, query: str, *values: int) -> list[tuple[Any, ...]]:
    """Query the results file while its writer runs."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{evidence}?mode=ro", uri=True)) as reader:
            return reader.execute(query, values).fetchall()
    except sqlite3.OperationalError:
        return []  # not yet created


def _of(cache: Path) -> Iterator[psutil.Process]:
    """Return processes of the cache: servers by working directory, pgdyno and engines by environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = process.environ().get("PGDYNO_CACHE") == str(cache) and process.pid != os.getpid()
            below = Path(process.cwd()).is_relative_to(cache)
            if process.status() != psutil.STATUS_ZOMBIE and (ours or below):
                yield process
