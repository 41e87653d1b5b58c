"""Limits on what a server may send us: a reading has a few thousand rows, a hostile or broken server no end.

psycopg keeps a whole result in memory, so the limit works while the result arrives: ``limit_bytes`` wraps the
generator that waits for it. Every connection of pgdyno's Python goes through ``LimitedConnection``.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Generator
from typing import Any, Self

import psycopg

READ_BYTES_MAX = 32 << 20
"""Of the answers to one statement. The largest reading, thousands of statements' texts, is a few MiB; libpq
takes a few times as much memory."""

LOGIN_BYTES_MAX = 1 << 20
"""Of a login: some parameters, and perhaps a certificate chain."""

READ_ROWS_MAX = 100_000
"""Of one result. Each row becomes objects of about a kilobyte."""

_UNIX_READ_BYTES_MIN = 8192
"""What libpq takes at least from a socket that is never empty."""

_BYTES_RECEIVED = struct.Struct("@Q")
_BYTES_RECEIVED_AT = 128  # of tcpi_bytes_received in struct tcp_info, <linux/tcp.h>, since 4.1

Waiting = Generator[Any, Any, Any]
"""A generator of psycopg's: yields what it waits for, and is sent what became ready."""


class ReadLimitExceeded(psycopg.OperationalError):
    """The server sent more than any answer to us can be. The connection is closed."""


class LimitedCursor(psycopg.Cursor[Any]):
    """A cursor that refuses a result of too many rows before it makes objects of them."""

    def execute(self, *args: Any, **kwargs: Any) -> Self:
        """Execute as psycopg does. Raises ReadLimitExceeded."""
        done = super().execute(*args, **kwargs)
        if self.pgresult is not None and (rows := self.pgresult.ntuples) > READ_ROWS_MAX:
            self.close()
            raise ReadLimitExceeded(f"the server sent {rows:,} rows: pgdyno reads at most {READ_ROWS_MAX:,}")
        return done


class LimitedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which no answer exceeds the limits. Raises ReadLimitExceeded from any statement."""

    cursor_factory: type[psycopg.Cursor[Any]] = LimitedCursor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = LimitedCursor

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Waiting:
        return limit_bytes_of_login(super()._connect_gen(*args, **kwargs))

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait as psycopg does, within the limit."""
        try:
            return super().wait(limit_bytes(gen, self.pgconn.socket), *args, **kwargs)
        except ReadLimitExceeded:
            self.pgconn.finish()
            raise


def limit_bytes(gen: Waiting, fileno: int) -> Waiting:
    """Pass on what psycopg waits for, and end it when the answer grows too large."""
    received = _Received(READ_BYTES_MAX)
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            received.before(fileno)
            try:
                wanted = gen.send(ready)
            finally:
                received.after(fileno)
    except StopIteration as ended:
        return ended.value


def limit_bytes_of_login(gen: Waiting) -> Waiting:
    """Do the same for a login, whose generator yields the file descriptor as well."""
    received = _Received(LOGIN_BYTES_MAX)
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            received.before(wanted[0])
            try:
                wanted = gen.send(ready)
            finally:
                received.after(wanted[0])
    except StopIteration as ended:
        return ended.value


class _Received:
    """Counts the bytes that libpq takes from a socket: exactly over TCP, a lower bound on a Unix socket.

    libpq reads one value without a pause while it keeps arriving, so a single value may grow to the
    protocol's own limit of 1 GiB before it is refused. Over TCP it is refused then; on a Unix socket, which
    has no counter, it may pass. Such a server is a process of this machine.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken_bytes = 0
        self._pending_bytes = 0
        self._before_bytes: int | None = None

    def before(self, fileno: int) -> None:
        """Look at the socket before libpq reads from it."""
        if (count := _tcp_received_bytes(fileno)) is None:
            self._pending_bytes = _pending_bytes(fileno)
        elif self._before_bytes is None or count < self._before_bytes:
            self._before_bytes = count  # the first time, or another socket of the same number

    def after(self, fileno: int) -> None:
        """Count what libpq has read. Raises ReadLimitExceeded."""
        if self._before_bytes is not None and (count := _tcp_received_bytes(fileno)) is not None:
            self._taken_bytes = count - self._before_bytes
        elif self._pending_bytes:
            left = _pending_bytes(fileno)
            self._taken_bytes += max(
                self._pending_bytes - left, min(self._pending_bytes, _UNIX_READ_BYTES_MIN)
            )
            self._pending_bytes = 0
        if self._taken_bytes > self._bytes_max:
            raise ReadLimitExceeded(
                f"the server sent more than {self._bytes_max >> 20} MiB in one answer: "
                "check that it is the server that you mean"
            )


def _pending_bytes(fileno: int) -> int:
    """Return what waits in the kernel to be read; 0 where the socket is closed."""
    found = array.array("i", [0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(fileno, termios.FIONREAD, found)
    return found[0]


def _tcp_received_bytes(fileno: int) -> int | None:
    """Return what has arrived over TCP; None of a Unix socket, or where the kernel does not tell."""
    try:
        with socket.socket(fileno=os.dup(fileno)) as ours:
            if ours.family == socket.AF_UNIX:
                return None
            info = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return None
    if len(info) < _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
        return None
    return int(_BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0])
