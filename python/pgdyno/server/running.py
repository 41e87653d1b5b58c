"""A running server: how to reach it, what it said, and how it ends."""

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
KILL_TIMEOUT_S = 20.0  # after SIGQUIT the postmaster itself kills what is left after 5 s
POLL_END_S = 0.05  # how often it is asked meanwhile whether the user wants to stop
LOG_WORDS_MAX = 4  # lines of the server's log that go into an error message
POLL_S = 0.01
TELLING = (
    *("FATAL:", "PANIC:", "ERROR:", "DETAIL:", "HINT:", "error:"),
    *("unrecognized configuration parameter", "for parameter"),
)
_LOG_PREFIX = re.compile(r"^[-\d]+ [:.\d]+ \w+ \[\d+\] ")

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Server:
    """A running server. A context manager: leaving it stops the server (fast, or immediately on an error).

    ``effective`` has every setting's value as ``SHOW`` spells it (``{"shared_buffers": "2GB"}``). ``dropped``
    has the optional settings that are not in effect, each with the reason. ``ready_s`` is the time from the
    start of its process until it accepted connections, recovery included.
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
        """The process id of the postmaster, the parent of all the server's processes."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the postmaster runs."""
        return self.process.poll() is None

    def conninfo(self, dbname: str = "postgres") -> str:
        """A libpq connection string for the engine, psycopg and PostgreSQL's tools. ``options`` is empty, not
        left out: a ``PGOPTIONS`` of the user's would change what is measured without a word.
        """
        return make_conninfo(host=str(self.socket.path), port=PORT, user=SUPERUSER, dbname=dbname, options="")

    def connect(self, dbname: str = "postgres") -> Connection:
        """A new connection in autocommit mode. Raises ConnectError."""
        try:
            return connect(self.conninfo(dbname))
        except psycopg.Error as error:
            why = f"it ended: {self.last_words()}" if not self.alive else in_one_line(error)
            raise ConnectError(f"no connection to {self.build.label}: {why}") from error

    def wait_ready(self, timeout_s: float) -> None:
        """Returns when the server accepts connections. Raises StartError when it ends or takes too long."""
        begun_s = time.monotonic()
        deadline = begun_s + timeout_s
        while True:
            # Waiting on the process is the pause between attempts: its death ends it at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
                raise StartError(f"{self.build.label} did not start: {self.last_words()}")
            if self._says_ready():
                return
            if stopping.is_over(begun_s):
                raise StartError(f"{self.build.label} was not ready before the order to stop")
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self.build.label} was not ready within {timeout_s:g} s: {self.last_words()}"
                )

    def _says_ready(self) -> bool:
        """By the eighth line of postmaster.pid: a connection tried too early would leave a FATAL in the
        log.
        """
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        return len(lines) >= 8 and lines[0] == str(self.postmaster_pid) and lines[7].strip() == "ready"

    def stop(self, mode: StopMode = "fast", timeout_s: float | None = None) -> None:
        """Stop the server and wait for its end, by default as long as the mode may take. Raises ServerError
        if it had ended before, or must be killed.
        """
        if timeout_s is None:
            timeout_s = KILL_TIMEOUT_S if mode == "immediate" else STOP_TIMEOUT_S
        if not self.alive:
            self.socket.remove()
            raise ServerError(f"{self.build.label} had ended before it was stopped: {self.last_words()}")
        self.process.send_signal(STOP_SIGNALS[mode])
        if not self._ends_within(timeout_s):
            self.abandon()
            raise ServerError(
                f"{self.build.label} did not stop ({mode}) within {timeout_s:g} s and was ended at once: "
                "its data directory needs recovery"
            )
        self.socket.remove()

    def abandon(self) -> None:
        """End the server at once, whatever its state; its data directory is then good for nothing but
        recovery.
        """
        if self.alive:
            self.process.send_signal(STOP_SIGNALS["immediate"])
            if not self._ends_within(KILL_TIMEOUT_S):
                self._kill()
        self.socket.remove()

    def _ends_within(self, timeout_s: float) -> bool:
        """Whether the postmaster ends in time, and before an order to stop leaves none."""
        begun_s = time.monotonic()
        while self.alive:
            if time.monotonic() - begun_s >= timeout_s or stopping.is_over(begun_s):
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_END_S)
        return True

    def _kill(self) -> None:
        """The postmaster and its children: one that is frozen would outlive it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """What the server has said since this start."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_start_bytes)
            return log.read().decode(errors="replace")

    def last_words(self) -> str:
        """The end of the log in one line, for an error message."""
        words = last_words(self.log()) or "it said nothing"
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


def last_words(text: str) -> str:
    """The lines that say what went wrong (FATAL, ERROR, HINT …), else the last ones, as one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(mark in line for mark in TELLING)]
    words = dict.fromkeys(
        _LOG_PREFIX.sub("", line) for line in telling or lines
    )  # each client may have a line
    return " / ".join([*words][-LOG_WORDS_MAX:])
