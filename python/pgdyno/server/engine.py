"""The engine as a child process: locating, starting, and exchanging JSON lines.

The interface is docs/reference/engine-protocol.md. This module is independent of workloads and servers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from pgdyno import __version__
from pgdyno.errors import EngineError, in_one_line
from pgdyno.server.builds import output_of
from pgdyno.server.connections import resolved

PROGRAM = "pgdyno-engine"
PGBENCH = "pgdyno-pgbench"
SYSBENCH = "pgdyno-sysbench"

EXIT_TIMEOUT_S = 60.0
"""Maximum time between the engine's last event and its end. Draining in-flight transactions has its own,
shorter limit (``drive.drive_specification``); the rest is closing connections."""

STOP_TIMEOUT_S = 4.5
"""Maximum time between a stop command and the end of the engine, before it is killed. Within 4 s it cancels
in-flight transactions or rolls back a load, so pgdyno ends within about 5 s even if the server hangs."""

ANSWER_TIMEOUT_S = 60.0
"""Maximum time of ``pgdyno-engine version``, which reads no file and contacts no server."""

COMPLAINT_BYTES_MAX = 64 << 10
"""Bytes read from the end of the engine's standard error. The last line is shown."""

Event = dict[str, Any]


@dataclass(frozen=True)
class KindResult:
    """Transactions of one kind in the measured part. ``histograms`` are pairs (value in ns, n) by measure."""

    counts: Mapping[str, int]
    failures: Mapping[str, int]
    histograms: Mapping[str, Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class TargetResult:
    """Result of one target. ``totals``, ``counters`` and ``tally`` are since its connection."""

    kinds: Mapping[str, KindResult]
    totals: Mapping[str, Mapping[str, int]]
    counters: Mapping[str, int]
    tally: Mapping[str, Any]
    connections_lost: int


@dataclass(frozen=True)
class DriveResult:
    """Result of a drive. ``lost`` is the target whose server was lost, ``driver`` facts about the process."""

    stopped: Literal["done", "stop", "server-lost", "failed"]
    lost: str | None
    targets: Sequence[TargetResult]
    driver: Mapping[str, Any]

    @staticmethod
    def of(event: Mapping[str, Any]) -> DriveResult:
        """Decode a ``result`` event."""
        return _results().validate_python(event)


@functools.cache
def _results() -> TypeAdapter[DriveResult]:
    return TypeAdapter(DriveResult)


NODE_LOST = "node"
"""Stage of a drive that a lost or lagging load generator has ended. Its block is void and is repeated."""


@dataclass(frozen=True)
class DriveFailure:
    """Failure that ended a drive. ``target`` is the name of the server that caused it, or None."""

    stage: str
    message: str
    target: str | None = None


REMEDY = "install the wheel of pgdyno again, or, in a checkout, build the engine with: make setup"


def find_engine() -> Path:
    """Return the engine's program: ``PGDYNO_ENGINE``, else the installed one, else the first in the PATH.

    Raises EngineError if no such program exists.
    """
    named = os.environ.get("PGDYNO_ENGINE")
    places = iter([Path(named)]) if named else _places()
    for path in places:
        if os.access(path, os.X_OK):
            return path
    where = named or Path(sys.executable).parent / PROGRAM
    raise EngineError(f"the engine {PROGRAM} is not at {where}; {REMEDY}")


def _places() -> Iterator[Path]:
    """Yield possible locations of the engine: beside this Python, installed by a wheel, in the PATH.

    With ``pip install --user`` the program of a wheel is not beside the Python.
    """
    yield Path(sys.executable).parent / PROGRAM
    from importlib import metadata  # noqa: PLC0415 - takes 20 ms, and is rarely needed

    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files("pgdyno") or ():
            if file.name == PROGRAM:
                yield Path(str(file.locate())).resolve()
    if on_path := shutil.which(PROGRAM):
        yield Path(on_path)


def find_program(name: str) -> Path:
    """Return the program PGBENCH or SYSBENCH, beside the engine. Raises EngineError if it is missing."""
    path = find_engine().with_name(name)
    if not os.access(path, os.X_OK):
        raise EngineError(f"{name} is not at {path}; {REMEDY}")
    return path


def build_info() -> Event:
    """Return the engine's version, profile (release or debug), target, compiler and dataset formats."""
    command = [str(find_engine()), "version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise EngineError(f"{command[0]} version timed out after {ANSWER_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        raise EngineError(f"{PROGRAM} version failed: {in_one_line(done.stderr)}")
    info: Event = json.loads(done.stdout)
    return info


def version_text() -> str:
    """Return two lines: the version with the commit that it was built from, if known; and the engine.

    A wheel has the commit in a file (hatch_build.py). Elsewhere Git knows it, if this is a checkout.
    """
    package = Path(__file__).parents[1]
    built, checkout = package / "commit", package.parents[1]
    git = ("git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*")
    commit = output_of(git) if (checkout / ".git").exists() else built.read_text() if built.exists() else None
    try:
        info = build_info()
        engine = f"engine {info['version']}, {info['profile']} build, {find_engine()}"
    except (EngineError, OSError, ValueError) as error:  # a file that is no engine
        engine = f"no engine: {error}"
    return f"pgdyno {__version__}{f', commit {commit}' if commit else ''}\n{engine}"


@functools.cache
def dataset_format(workload: str) -> str:
    """Return the engine's dataset format of a workload: a digest of everything that its load writes."""
    try:
        return str(build_info()["dataset_format"][workload])
    except KeyError:
        raise EngineError(f"{PROGRAM} is older than this pgdyno; {REMEDY}") from None


def with_resolved_conninfo(specification: Mapping[str, Any]) -> Event:
    """Return the specification with the values of each connection string, resolved on this machine."""
    found = dict(specification)
    if "conninfo" in found:
        found["conninfo"] = resolved(found["conninfo"])
    if "targets" in found:
        found["targets"] = [with_resolved_conninfo(target) for target in found["targets"]]
    return found


class Engine:
    """One run of the engine. Use as a context manager: the process ends with the block.

    Leaving the block lets the engine end normally; on a KeyboardInterrupt it is killed.

    The child has its own session, so Ctrl-C in the terminal reaches only pgdyno, which then stops the run. If
    pgdyno is killed, the engine's standard input closes, and the engine ends.
    """

    def __init__(self, command: Literal["drive", "load", "check"], specification: Mapping[str, Any]) -> None:
        resolved_specification = with_resolved_conninfo(specification)
        # A file cannot fill up as a pipe would while this process reads events.
        self._stderr = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115
        self._killer: threading.Timer | None = None
        self._was_killed = False
        self._process = subprocess.Popen(
            [find_engine(), command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.send(resolved_specification)

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    def events(self) -> Iterator[Event]:
        """Yield each event. Raises EngineError with the engine's last message if it ends without a result.

        A ``failed`` event is yielded, too, because it may carry measurements. The caller handles it.
        """
        assert self._process.stdout is not None
        last: Event | None = None
        for line in self._process.stdout:
            try:
                last = json.loads(line)
            except ValueError:
                last = None  # truncated: the engine died while writing
                break
            yield last
        status = self._status()
        if self._was_killed:
            raise EngineError(
                f"the engine did not end within {STOP_TIMEOUT_S:g} s after the stop command and was killed"
            )
        if last is None or last["event"] not in ("result", "failed"):
            raise EngineError(f"the engine ended without a result (status {status}): {self._last_message()}")

    def proceed(self) -> None:
        """Let the engine pass the barrier at which it waits."""
        self.send({"do": "continue"})

    def measure(self) -> None:
        """End the warm-up: its open slice closes, and the remaining warm-up is skipped."""
        self.send({"do": "measure"})

    def stop(self) -> None:
        """Request a graceful end: in-flight transactions finish, and the result is written.

        An engine that does not end within STOP_TIMEOUT_S is killed.
        """
        if self._killer is None:
            self._killer = threading.Timer(STOP_TIMEOUT_S, self._kill)
            self._killer.daemon = True
            self._killer.start()
        self.send({"do": "stop"})

    def abandon(self) -> None:
        """Kill the process: its server has crashed on purpose, and nothing that it could report is of use."""
        self._process.kill()

    def _kill(self) -> None:
        """Kill the process, from the timer's thread."""
        if self._process.poll() is None:
            self._was_killed = True
            self._process.kill()

    def _status(self) -> int:
        try:
            return self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise EngineError(f"the engine did not end within {EXIT_TIMEOUT_S:g} s and was killed") from None

    def send(self, message: Event) -> None:
        """Send the specification or a command. ``events`` reports if the engine has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the engine has ended
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _last_message(self) -> str:
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, end - COMPLAINT_BYTES_MAX))
        lines = self._stderr.read().strip().splitlines()
        return lines[-1] if lines else "no message"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            self._process.kill()
        try:
            # Closes its input, which stops it, and reads its remaining output, so that it cannot block.
            self._process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
        if self._killer is not None:
            self._killer.cancel()
        self._stderr.close()
