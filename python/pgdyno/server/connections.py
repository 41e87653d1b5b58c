"""Connections to servers: connection strings without passwords, limits of time and size.

- Connection string that is printed without its password.
- Parameters of a connection string, resolved by libpq for the engine.
- Connections with a time limit on every wait and a size limit on every answer.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import getpass
import os
import socket
import struct
import termios
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, TransactionStatus

from pgdyno.errors import UsageError, in_one_line
from pgdyno.interruption import stopping
from pgdyno.study.arm_spec import SECRET_WORDS, without_secrets

# ----------------------------------------------------------------------
# Connection string that is printed without its password.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Dsn:
    """A connection string. ``conninfo`` is for libpq and the engine only; ``str`` and ``repr`` omit
    secrets."""

    conninfo: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.conninfo)
        except (psycopg.Error, UnicodeError) as error:
            # The message of libpq quotes the string, including the password.
            raise UsageError(f"the connection string is malformed ({type(error).__name__})") from None

    def with_database(self, dbname: str) -> Dsn:
        """Return the connection string for another database of the same server."""
        return Dsn(make_conninfo(self.conninfo, dbname=dbname))

    @property
    def names_database(self) -> bool:
        """True if the database is given, not libpq's default."""
        given = conninfo_to_dict(self.conninfo).keys()
        return bool({"dbname", "service"} & given) or bool({"PGDATABASE", "PGSERVICE"} & os.environ.keys())

    @property
    def database(self) -> str:
        """Name of the database; the default is the name of the user, as in libpq."""
        parts = conninfo_to_dict(self.conninfo)
        given = parts.get("dbname") or os.environ.get("PGDATABASE")
        return str(given or parts.get("user") or os.environ.get("PGUSER") or getpass.getuser())

    @property
    def shown(self) -> str:
        """Text for output and for comparison of servers, without passwords."""
        return without_secrets(self.conninfo)

    def masked(self, text: str) -> str:
        """Return a message with the secrets replaced by ***."""
        for name in SECRET_WORDS:
            secret = conninfo_to_dict(self.conninfo).get(name)
            if secret:
                text = text.replace(str(secret), "***")
        return text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Dsn({self.shown!r})"


# ----------------------------------------------------------------------
# Parameters of a connection string, resolved by libpq for the engine.
# ----------------------------------------------------------------------


_STOP = "pgdyno-stop"
"""Value that libpq rejects after it has read service and password file, and before it opens a socket."""

_SENT_ALWAYS = ("port", "sslmode", "channel_binding")
"""Keywords whose default depends on the build of libpq, so that the engine may have another one."""

_READ_BY_LIBPQ = ("service", "servicefile", "passfile", "password")
"""Keywords that libpq replaces by the values that it reads."""


def resolved(conninfo: str) -> dict[str, Any]:
    """Return the parameters of a connection for the engine, by libpq's keywords.

    ``passwords`` has the password of each host in order, None for a host without one. The values come from
    the connection string, its service, the environment and the password file; defaults of libpq are omitted.
    Raises UsageError if libpq rejects a value, or if one is not UTF-8.
    """
    dsn = Dsn(conninfo)
    values, password = _resolved_by_libpq(dsn, "gssencmode")
    lists = {name: values[name].split(",") for name in ("host", "hostaddr", "port") if name in values}
    count = max((len(parts) for parts in lists.values()), default=1)
    passwords = [password]
    for nth in range(1, count):
        one = {name: parts[nth % len(parts)] for name, parts in lists.items()}
        passwords.append(_resolved_by_libpq(dsn, "gssencmode", **one)[1])
    others, _ = _resolved_by_libpq(dsn, "target_session_attrs")
    if "gssencmode" in others:
        values["gssencmode"] = others["gssencmode"]
    # The engine always uses UTF8, whatever the environment says. It rejects another encoding of a string or a
    # service.
    given = conninfo_to_dict(conninfo)
    encoding, ignored = values.get("client_encoding"), os.environ.get("PGCLIENTENCODING")
    if encoding and encoding == ignored and "client_encoding" not in given:
        del values["client_encoding"]
    if "sslrootcert" not in values:
        with contextlib.suppress(RuntimeError):  # no home directory
            path = Path("~/.postgresql/root.crt").expanduser()
            values["sslrootcert"] = _text("sslrootcert", os.fsencode(path))
    return {**values, "passwords": passwords}


def _resolved_by_libpq(dsn: Dsn, stop_at: str, **host: str) -> tuple[dict[str, str], str | None]:
    """Return the values that libpq would use, and the password of the first host. Raises UsageError.

    The values omit defaults of libpq, and ``stop_at``, the keyword at which libpq stops.
    """
    stopped = PGconn.connect_start(make_conninfo(dsn.conninfo, **{**host, stop_at: _STOP}).encode())
    message = stopped.error_message.decode(errors="replace")
    if f'"{_STOP}"' not in message:
        raise UsageError(f"no connection to {dsn}: {dsn.masked(in_one_line(message))}")
    values = {}
    for option in stopped.info:
        keyword = option.keyword.decode()
        is_default = option.val == option.compiled and keyword not in _SENT_ALWAYS
        if option.val and not is_default and keyword not in (stop_at, *_READ_BY_LIBPQ):
            values[keyword] = _text(keyword, option.val)
    return values, _text("password", stopped.password or b"") or None


def _text(keyword: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        message = (
            f"{keyword} of a connection is not UTF-8: change it in the environment, service or password file"
        )
        raise UsageError(message) from None


# ----------------------------------------------------------------------
# Connections with a time limit on every wait and a size limit on every answer.
#
# psycopg keeps a whole result in memory, so the limit works while the result arrives: ``_watched`` wraps the
# generator that waits for it. Every connection of pgdyno's Python is a ``BoundedConnection``.
#
# A frozen server, or a network that drops its packets, sends nothing at all. Neither ``statement_timeout``
# nor a Unix socket ends that wait, and no time limit distinguishes a dead server from one that executes a
# statement for hours. So pgdyno tests a server that was silent for ANSWER_TIMEOUT_S over a second connection.
# The statement continues if the server answers there.
# ----------------------------------------------------------------------

READ_BYTES_MAX = 32 << 20
"""Maximum size of the results of one statement. The largest reading, thousands of statement texts, is a few
MiB; libpq needs a few times as much memory."""

LOGIN_BYTES_MAX = 1 << 20
"""Maximum size of the answers to a login: some parameters, and perhaps a certificate chain."""

READ_ROWS_MAX = 100_000
"""Maximum number of rows of one result. Each row becomes Python objects of about 1 kB."""

_UNIX_READ_BYTES_MIN = 8192
"""Minimum number of bytes that libpq reads from a socket that is never empty."""

_BYTES_RECEIVED = struct.Struct("@Q")
_BYTES_RECEIVED_AT = 128  # offset of tcpi_bytes_received in struct tcp_info, <linux/tcp.h>, since Linux 4.1

Waiting = Generator[Any, Any, Any]
"""Generator of psycopg: yields the events that it waits for, and receives the events that occurred."""


class ReadLimitExceeded(psycopg.OperationalError):
    """Raised if a result is larger than any that pgdyno requests. The connection is closed."""


class LimitedCursor(psycopg.Cursor[Any]):
    """Cursor that rejects a result with too many rows before it creates Python objects."""

    def execute(self, *args: Any, **kwargs: Any) -> Self:
        """Execute a statement as in psycopg. Raises ReadLimitExceeded."""
        done = super().execute(*args, **kwargs)
        if self.pgresult is not None and (rows := self.pgresult.ntuples) > READ_ROWS_MAX:
            self.close()
            raise ReadLimitExceeded(f"the server returned {rows:,} rows; the maximum is {READ_ROWS_MAX:,}")
        return done


class _Received:
    """Counter of the bytes that libpq reads from a socket: exact over TCP, a lower bound for a Unix socket.

    libpq reads one value without a pause while data arrive. So a single value can reach the limit of the
    protocol, 1 GiB, before it is rejected; libpq then has it twice, in its buffer and in its result. A Unix
    socket has no counter, so such a value can pass there. The
    server is then a process of this machine.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken_bytes = 0
        self._pending_bytes = 0
        self._before_bytes: int | None = None
        self._socket: socket.socket | None = None

    def before(self, fileno: int) -> None:
        """Record the state of the socket before libpq reads from it."""
        try:
            # libpq closes its own socket if the end of what it reads is malformed.
            self._socket = socket.socket(fileno=os.dup(fileno))
        except OSError:
            self._socket = None
            return
        self._pending_bytes = _pending_bytes(self._socket)
        count = _tcp_received_bytes(self._socket)
        if count is not None and (self._before_bytes is None or count < self._before_bytes):
            # first call, or another socket with the same descriptor
            self._before_bytes = count - self._pending_bytes

    def after(self) -> None:
        """Count what libpq has read. Raises ReadLimitExceeded."""
        if self._socket is None:
            return
        with self._socket as read:
            if self._before_bytes is not None and (count := _tcp_received_bytes(read)) is not None:
                self._taken_bytes = count - self._before_bytes
            elif self._pending_bytes:
                left = _pending_bytes(read)
                self._taken_bytes += max(
                    self._pending_bytes - left, min(self._pending_bytes, _UNIX_READ_BYTES_MIN)
                )
        if self._taken_bytes > self._bytes_max:
            raise ReadLimitExceeded(
                f"the server returned more than {self._bytes_max >> 20} MiB in one result: check the DSN"
            )


def _pending_bytes(read: socket.socket) -> int:
    """Return the number of unread bytes in the kernel; 0 if the socket is closed."""
    found = array.array("i", [0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(read, termios.FIONREAD, found)
    return found[0]


def _tcp_received_bytes(read: socket.socket) -> int | None:
    """Return the number of bytes received over TCP; None for a Unix socket or without kernel support."""
    if read.family == socket.AF_UNIX:
        return None
    try:
        info = read.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return None
    if len(info) < _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
        return None
    return int(_BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0])


CONNECT_TIMEOUT_S = 15
"""A login takes milliseconds on a busy server, and a second through a distant pooler. A ``connect_timeout``
in the DSN has precedence."""

ANSWER_TIMEOUT_S = 30.0
"""Time without an answer after which pgdyno tests the server over a second connection."""

MIDDLE_TIMEOUT_S = 300.0
"""Maximum silence within a result. The server can take a while to compute rows. A network can pass small
packets and drop large ones, which a second connection does not detect."""

STATEMENT_TIMEOUT_S = 6 * 3600.0
"""Maximum duration of a statement. A check of thousands of warehouses takes an hour or two."""

CANCEL_TIMEOUT_S = 1.0
"""Timeout of a cancel request. The server may not answer on that connection either."""

TICK_S = 0.1
"""Interval at which a wait checks its limits."""

ADVICE = "check the server and the network"

TCP_LIMITS = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""TCP settings, unless the DSN sets them: a broken connection fails after about a minute. The default of the
kernel is two hours."""


class NoAnswer(psycopg.OperationalError):
    """Raised if the server did not answer within a time limit. The connection is closed."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Connection with time and size limits, created by ``connect``. ``statement_timeout_s`` limits each
    statement."""

    cursor_factory: type[psycopg.Cursor[Any]] = LimitedCursor
    statement_timeout_s: float = STATEMENT_TIMEOUT_S
    bounded_conninfo: str = ""
    is_asking: bool = False  # true for the second connection, which tests the server

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursor_factory = LimitedCursor

    @classmethod
    def _connect_gen(cls, *args: Any, **kwargs: Any) -> Waiting:
        begun_s = time.monotonic()

        def check(_: bool) -> None:
            # psycopg applies the time limit.
            if stopping.is_over(begun_s):
                raise NoAnswer("interrupted while waiting for the login")

        return _watched(super()._connect_gen(*args, **kwargs), check, LOGIN_BYTES_MAX)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Execute a statement as in psycopg. Raises OperationalError if the server starts a COPY."""
        try:
            return super().execute(*args, **kwargs)
        except psycopg.ProgrammingError as error:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            # The server now waits for data or sends them, and accepts no other statement.
            self.pgconn.finish()
            raise psycopg.OperationalError("the server started an unexpected COPY") from error

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait as in psycopg, within the limits. Raises NoAnswer, ReadLimitExceeded."""
        del args, kwargs  # those of psycopg have no limit
        try:
            fileno = self.pgconn.socket
            limited = _watched(gen, _Statement(self).check, READ_BYTES_MAX, fileno)
            return waiting.wait(limited, fileno, interval=TICK_S)
        except (NoAnswer, ReadLimitExceeded):
            self.pgconn.finish()
            raise
        except KeyboardInterrupt:
            # Otherwise the server continues a statement without a client.
            cancel(self)
            self.pgconn.finish()
            raise


def connect(conninfo: str) -> BoundedConnection:
    """Open a connection in autocommit mode. Raises psycopg.Error, OSError, UnicodeError like psycopg."""
    given = conninfo_to_dict(conninfo)
    # Without the encoding, psycopg returns bytes instead of text from a database in SQL_ASCII.
    defaults = {**TCP_LIMITS, "client_encoding": "UTF8"}
    limits: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
    timeout_s = _connect_timeout_s(given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT"))
    try:
        connection = BoundedConnection.connect(
            conninfo, autocommit=True, application_name="pgdyno", connect_timeout=timeout_s, **limits
        )
    except psycopg.errors.ConnectionTimeout as error:
        raise psycopg.errors.ConnectionTimeout(
            f"the login timed out after {timeout_s} s: {ADVICE}, or set connect_timeout"
        ) from error
    connection.bounded_conninfo = conninfo
    return connection


def _connect_timeout_s(given: object) -> int:
    """Return the login timeout. 0 means no limit in libpq and is replaced by the default. The minimum of
    psycopg and libpq is 2 s."""
    try:
        asked = int(str(given)) if given else 0
    except ValueError:
        asked = 0  # psycopg reports the error
    return max(asked, 2) if asked > 0 else CONNECT_TIMEOUT_S


def cancel(connection: psycopg.Connection[Any]) -> None:
    """Send a cancel request for the current statement, with a short timeout. Never raises."""
    with contextlib.suppress(psycopg.Error, OSError):
        connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)


def set_limit(connection: psycopg.Connection[Any], timeout_s: float) -> None:
    """Set a shorter timeout for the statements of a connection."""
    if isinstance(connection, BoundedConnection):
        connection.statement_timeout_s = timeout_s


class _Statement:
    """Checks during a statement."""

    def __init__(self, connection: BoundedConnection) -> None:
        self._connection = connection
        self._begun_s = self._heard_s = self._asked_s = time.monotonic()
        self._has_begun = False  # the server has begun to answer

    def check(self, has_arrived: bool) -> None:
        """Apply the limits after each tick and each arrival of data. Raises NoAnswer."""
        now_s = time.monotonic()
        if has_arrived:
            self._heard_s = self._asked_s = now_s
            self._has_begun = True
        elif stopping.is_over(self._begun_s):
            cancel(self._connection)
            raise NoAnswer("interrupted while waiting for the server")
        if now_s - self._begun_s > self._connection.statement_timeout_s:
            raise _no_answer("a statement", self._connection.statement_timeout_s)
        if self._has_begun and now_s - self._heard_s > MIDDLE_TIMEOUT_S:
            raise _no_answer("the rest of a result", MIDDLE_TIMEOUT_S)
        if not self._connection.is_asking and now_s - self._asked_s > ANSWER_TIMEOUT_S:
            self._ask()
            self._asked_s = time.monotonic()

    def _ask(self) -> None:
        """Test the server over a second connection. Raises NoAnswer if it does not answer there either."""
        try:
            with contextlib.closing(connect(self._connection.bounded_conninfo)) as second:
                second.is_asking, second.statement_timeout_s = True, CONNECT_TIMEOUT_S
                second.execute("select 1")
        except (NoAnswer, psycopg.errors.ConnectionTimeout):
            raise _no_answer(
                "a statement and a second connection", time.monotonic() - self._heard_s
            ) from None
        except (psycopg.Error, OSError):
            return  # a rejected connection is an answer


def _no_answer(what: str, limit_s: float) -> NoAnswer:
    return NoAnswer(f"timed out after {limit_s:.0f} s waiting for {what}: {ADVICE}")


def _watched(
    gen: Waiting, check: Callable[[bool], None], bytes_max: int, fileno: int | None = None
) -> Waiting:
    """Wrap a generator of psycopg, which receives the events that occurred, or nothing at a tick.

    Calls ``check`` each time with whether data arrived. Raises ReadLimitExceeded if the result is too large.
    ``fileno``: the socket; None for a login, whose generator yields it.
    """
    received = _Received(bytes_max)
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            check(bool(ready))
            read_from = wanted[0] if fileno is None else fileno
            received.before(read_from)
            try:
                wanted = gen.send(ready)
            finally:
                received.after()
    except StopIteration as ended:
        return ended.value
