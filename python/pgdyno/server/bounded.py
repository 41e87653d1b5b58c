"""Connections on which no wait is without a limit.

A server that is frozen, or a network that swallows its answers, says nothing at all: neither
``statement_timeout`` nor a Unix socket ends that wait. No limit of time tells a dead server from one that
works for hours on a statement either. So a server that is silent for ANSWER_TIMEOUT_S is asked something
over a second connection: where that is answered, the statement may go on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from pgdyno.interruption import stopping
from pgdyno.server.read_limits import LimitedConnection, ReadLimitExceeded, limit_bytes

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
