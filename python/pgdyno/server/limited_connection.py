"""Connections with a time limit on every wait and a size limit on every answer.

psycopg keeps a whole result in memory, so the limit works while the result arrives: ``limit_bytes`` wraps the
generator that waits for it. Every connection of pgdyno's Python goes through ``LimitedConnection``.

A server that is frozen, or a network that swallows its answers, says nothing at all: neither
``statement_timeout`` nor a Unix socket ends that wait. No limit of time tells a dead server from one that
works for hours on a statement either. So a server that is silent for ANSWER_TIMEOUT_S is asked something
over a second connection: where that is answered, the statement may go on.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Generator
from typing import Any, Self

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from pgdyno.interruption import stopping

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


CONNECT_TIMEOUT_S = 15
"""A login on a busy server takes milliseconds, through a distant pooler a second. A DSN's own goes before
it."""

ANSWER_TIMEOUT_S = 30.0
"""How long a server may be silent before it is asked over another connection."""

MIDDLE_TIMEOUT_S = 300.0
"""How long it may be silent when an answer has begun: rows that are computed come in between. The network
may let small answers through and swallow large ones, which a second connection does not show."""

STATEMENT_TIMEOUT_S = 6 * 3600.0
"""The longest statement: a check of thousands of warehouses takes an hour or two."""

CANCEL_TIMEOUT_S = 1.0
"""How long asking a server to cancel a statement may take: it may be silent on that connection, too."""

TICK_S = 0.1
"""How often a wait looks at its limits."""

ADVICE = "check that it runs and that the network passes its answers"

TCP_LIMITS = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A connection whose other end is gone fails in about a minute, where a DSN does not say otherwise: the
kernel's own default is two hours."""


class NoAnswer(psycopg.OperationalError):
    """The server was silent beyond a limit. The connection is closed."""


class BoundedConnection(LimitedConnection):
    """See the module. Made by ``connect``. ``statement_timeout_s`` bounds each statement."""

    statement_timeout_s: float = STATEMENT_TIMEOUT_S
    bounded_conninfo: str = ""
    is_asking: bool = False  # whether this is the second connection

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Any:
        return _watched(super()._connect_gen(*args, **kwargs), _Login().look)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Carries a statement out as psycopg does. Raises OperationalError where the server begins a COPY."""
        try:
            return super().execute(*args, **kwargs)
        except psycopg.ProgrammingError as error:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            # It would wait for data, or send them, and answer nothing else.
            self.pgconn.finish()
            raise psycopg.OperationalError("the server began a COPY that nobody asked for") from error

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Waits as psycopg does, but not beyond the limits. Raises NoAnswer, ReadLimitExceeded."""
        del args, kwargs  # psycopg's own are without a limit
        try:
            limited = limit_bytes(gen, self.pgconn.socket)
            return waiting.wait(_watched(limited, _Statement(self).look), self.pgconn.socket, interval=TICK_S)
        except (NoAnswer, ReadLimitExceeded):
            self.pgconn.finish()
            raise
        except KeyboardInterrupt:
            # The server would go on with what nobody waits for.
            cancel(self)
            self.pgconn.finish()
            raise


def connect(conninfo: str) -> BoundedConnection:
    """A new connection in autocommit mode. Raises psycopg.Error, OSError, UnicodeError as psycopg does."""
    given = conninfo_to_dict(conninfo)
    limits: dict[str, Any] = {name: value for name, value in TCP_LIMITS.items() if name not in given}
    timeout_s = _connect_timeout_s(given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT"))
    try:
        connection = BoundedConnection.connect(
            conninfo,
            autocommit=True,
            application_name="pgdyno",
            connect_timeout=timeout_s,
            **limits,
        )
    except psycopg.errors.ConnectionTimeout as error:
        raise psycopg.errors.ConnectionTimeout(
            f"the server did not answer the login within {timeout_s} s: {ADVICE}, or set connect_timeout"
        ) from error
    connection.bounded_conninfo = conninfo
    return connection


def _connect_timeout_s(given: object) -> int:
    """0 is libpq's word for no limit: then it is ours. psycopg and libpq take no less than 2 s."""
    try:
        asked = int(str(given)) if given else 0
    except ValueError:
        asked = 0  # psycopg says what is wrong with it
    return max(asked, 2) if asked > 0 else CONNECT_TIMEOUT_S


def cancel(connection: psycopg.Connection[Any]) -> None:
    """Asks the server to cancel the statement under way, without waiting for long. Never raises."""
    with contextlib.suppress(psycopg.Error, OSError):
        connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)


def set_limit(connection: psycopg.Connection[Any], timeout_s: float) -> None:
    """Bounds the statements of a connection that are known to be short."""
    if isinstance(connection, BoundedConnection):
        connection.statement_timeout_s = timeout_s


class _Login:
    """Of a login: ended by an order to stop only, as psycopg has its limit of time."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def look(self, has_arrived: bool) -> None:
        del has_arrived
        if stopping.is_over(self._begun_s):
            raise NoAnswer("the server did not answer the login before the order to stop")


class _Statement:
    """Of a statement under way."""

    def __init__(self, connection: BoundedConnection) -> None:
        self._connection = connection
        self._begun_s = self._heard_s = self._asked_s = time.monotonic()
        self._has_begun = False  # the answer

    def look(self, has_arrived: bool) -> None:
        """Called at each tick and arrival. Raises NoAnswer."""
        now_s = time.monotonic()
        if has_arrived:
            self._heard_s = self._asked_s = now_s
            self._has_begun = True
        elif stopping.is_over(self._begun_s):
            cancel(self._connection)
            raise NoAnswer("the server did not answer before the order to stop")
        if now_s - self._begun_s > self._connection.statement_timeout_s:
            raise _no_answer("a statement", self._connection.statement_timeout_s)
        if self._has_begun and now_s - self._heard_s > MIDDLE_TIMEOUT_S:
            raise _no_answer("the rest of an answer that it had begun", MIDDLE_TIMEOUT_S)
        if not self._connection.is_asking and now_s - self._asked_s > ANSWER_TIMEOUT_S:
            self._ask()
            self._asked_s = time.monotonic()

    def _ask(self) -> None:
        """Raises NoAnswer where the server answers a second connection as little as this one."""
        try:
            with contextlib.closing(connect(self._connection.bounded_conninfo)) as second:
                second.is_asking, second.statement_timeout_s = True, CONNECT_TIMEOUT_S
                second.execute("select 1")
        except (NoAnswer, psycopg.errors.ConnectionTimeout):
            raise _no_answer(
                "a statement, nor a second connection,", time.monotonic() - self._heard_s
            ) from None
        except (psycopg.Error, OSError):
            return  # to be refused is an answer


def _no_answer(what: str, limit_s: float) -> NoAnswer:
    return NoAnswer(f"the server did not answer {what} within {limit_s:.0f} s: {ADVICE}")


def _watched(gen: Generator[Any, Any, Any], look: Any) -> Generator[Any, Any, Any]:
    """A generator of psycopg's, which yields what it waits for and is sent what became ready, or nothing at
    a tick. ``look`` is called with each: whether anything has."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            look(bool(ready))
            wanted = gen.send(ready)
    except StopIteration as ended:
        return ended.value
