"""A server started by pgdyno: connections, log and shutdown."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from pgdyno.errors import ConnectError, ServerError, StartError, in_one_line
from pgdyno.interruption import stopping
from pgdyno.server.build import Build
from pgdyno.server.limited_connection import connect
from pgdyno.server.live_directories import PORT, SocketDirectory
from pgdyno.server.server_process import STOP_SIGNALS, StopMode

SUPERUSER = "pgdyno"
STOP_TIMEOUT_S = 300.0  # a fast stop writes a checkpoint: all of shared_buffers, on a slow disk
KILL_TIMEOUT_S = 20.0  # 5 s after SIGQUIT the postmaster kills its remaining children
POLL_END_S = 0.05  # interval of the check for an interrupt meanwhile
LOG_WORDS_MAX = 4  # lines of the server log in an error message
POLL_S = 0.01
READY = (b"ready", b"standby")
TELLING = (
    *("FATAL:", "PANIC:", "ERROR:", "DETAIL:", "HINT:", "error:"),
    *("unrecognized configuration parameter", "for parameter"),
)
_LOG_PREFIX = re.compile(r"^[-\d]+ [:.\d]+ \w+ \[\d+\] ")

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Server:
    """A running server. As a context manager it stops the server at the end: fast, or immediate after an
    error.

    ``effective`` has the value of every setting as ``SHOW`` prints it (``{"shared_buffers": "2GB"}``).
    ``dropped`` has the optional settings that are not in effect, each with the reason. ``ready_s`` is the
    time from the start of the process until it accepted connections, including recovery.
    """

    build: Build
    data_dir: Path
    log_path: Path
    socket: SocketDirectory
    process: subprocess.Popen[bytes]
    log_start_bytes: int = 0
    ready_s: float = 0.0
    effective: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def postmaster_pid(self) -> int:
        """Process ID of the postmaster, the parent of all server processes."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Return whether the postmaster runs."""
        return self.process.poll() is None

    def conninfo(self, dbname: str = "postgres") -> str:
        """Return a libpq connection string for the engine, psycopg and the tools of PostgreSQL.

        ``options`` is set to an empty string: otherwise ``PGOPTIONS`` of the user would change the
        measurement.
        """
        return make_conninfo(host=str(self.socket.path), port=PORT, user=SUPERUSER, dbname=dbname, options="")

    def connect(self, dbname: str = "postgres") -> Connection:
        """Open a connection in autocommit mode. Raises ConnectError."""
        try:
            return connect(self.conninfo(dbname))
        except psycopg.Error as error:
            why = f"it exited: {self.last_words()}" if not self.alive else in_one_line(error)
            raise ConnectError(f"no connection to {self.build.label}: {why}") from error

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the server accepts connections. Raises StartError if it exits or takes too long."""
        begun_s = time.monotonic()
        deadline = begun_s + timeout_s
        while True:
            # Waiting for the process is the pause between attempts: its end is detected at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
                raise StartError(f"{self.build.label} did not start: {self.last_words()}")
            if self._says_ready():
                return
            if stopping.is_over(begun_s):
                raise StartError(f"interrupted while {self.build.label} was starting")
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self.build.label} did not start within {timeout_s:g} s: {self.last_words()}"
                )

    def _says_ready(self) -> bool:
        """Return whether the eighth line of postmaster.pid reports ready, or that of a standby that accepts
        queries. A connection before that would write FATAL to the log.
        """
        try:
            # Bytes: it contains a path.
            lines = (self.data_dir / "postmaster.pid").read_bytes().split(b"\n")
        except FileNotFoundError:
            return False
        pid = str(self.postmaster_pid).encode()
        return len(lines) >= 8 and lines[0] == pid and lines[7].strip() in READY

    def stop(self, mode: StopMode = "fast", timeout_s: float | None = None) -> None:
        """Stop the server and wait for its end; the default timeout depends on the mode. Raises ServerError
        if it has exited before or must be killed.
        """
        if timeout_s is None:
            timeout_s = KILL_TIMEOUT_S if mode == "immediate" else STOP_TIMEOUT_S
        if not self.alive:
            self.socket.remove()
            raise ServerError(f"{self.build.label} exited unexpectedly: {self.last_words()}")
        self.process.send_signal(STOP_SIGNALS[mode])
        if not self._ends_within(timeout_s):
            self.abandon()
            raise ServerError(
                f"{self.build.label} did not stop ({mode}) within {timeout_s:g} s and was killed: "
                "its data directory needs crash recovery"
            )
        self.socket.remove()

    def abandon(self) -> None:
        """End the server immediately, whatever its state. Its data directory then needs crash recovery."""
        if self.alive:
            self.process.send_signal(STOP_SIGNALS["immediate"])
            if not self._ends_within(KILL_TIMEOUT_S):
                self._kill()
        self.socket.remove()

    def _ends_within(self, timeout_s: float) -> bool:
        """Wait for the postmaster. Return False after the timeout or the grace period of an interrupt."""
        begun_s = time.monotonic()
        while self.alive:
            if time.monotonic() - begun_s >= timeout_s or stopping.is_over(begun_s):
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_END_S)
        return True

    def _kill(self) -> None:
        """Kill the postmaster and its children, because a frozen child would outlive it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """Return the server log since this start."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_start_bytes)
            return log.read().decode(errors="replace")

    def last_words(self) -> str:
        """Return the last messages of the log in one line, for an error message."""
        words = last_messages(self.log()) or "its log is empty"
        status = self.process.poll()
        if status is not None and status < 0:
            return (
                f"its postmaster was killed by signal {-status} (if memory ran out, dmesg says so): {words}"
            )
        return words

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.alive:
            self.stop()
        else:
            self.abandon()


def last_messages(text: str) -> str:
    """Return the lines with an error (FATAL, ERROR, HINT …) as one line, or the last lines if none has."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(mark in line for mark in TELLING)]
    words = dict.fromkeys(
        _LOG_PREFIX.sub("", line) for line in telling or lines
    )  # clients repeat the same line
    return " / ".join([*words][-LOG_WORDS_MAX:])
