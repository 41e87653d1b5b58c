"""Detection of connection poolers (pgbouncer) with transaction pooling.

pgdyno needs sessions for its advisory locks and settings. With transaction pooling they would stay in server
sessions of other clients: an advisory lock that is never released blocks later runs forever. So pgdyno
rejects a connection through such a pooler before it sets or locks anything. The test leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from pgdyno.errors import ConnectError
from pgdyno.server.running import Connection

ROUNDS = 8
"""Rounds of the test for transaction pooling. Each round detects a pool of n server processes with a
probability of at least 1 - 1/n. So 8 rounds miss a pool of 2 once in 256 times, and never a pool of 1."""

REMEDY = "connect directly, or to a pool with pool_mode = session and enough connections"


def require_session(connection: Connection, connect: Callable[[], Connection]) -> None:
    """Raise ConnectError if the connection has no session of its own.

    ``connection`` is new and in autocommit mode; ``connect`` opens another one like it. A server reports its
    backend process ID at login; a pooler invents one. So the test of a direct connection costs one statement.
    Raises psycopg.Error if that statement fails.
    """
    if _server_process(connection) == connection.info.backend_pid:
        return
    try:
        with connect() as other:
            pooled = _is_pooled_by_transaction(connection, other)
    except psycopg.Error as error:
        words = error.diag.message_primary or str(error)
        raise ConnectError(f"a connection pooler refuses a second transaction: {words}: {REMEDY}") from None
    if pooled:
        raise ConnectError(
            "a connection pooler uses transaction pooling, but the locks and settings of pgdyno need a "
            f"session: {REMEDY}"
        )


def _is_pooled_by_transaction(connection: Connection, other: Connection) -> bool:
    """Return whether the backend of one connection changes, or serves both."""
    own = _server_process(connection)
    for _ in range(ROUNDS):
        # An open transaction occupies its backend, so the pooler must use another one.
        with other.transaction():
            if _server_process(other) == own or _server_process(connection) != own:
                return True
    return False


def _server_process(connection: Connection) -> int:
    # The comment excludes the statement from the statistics of the workload.
    row = connection.execute("select /* pgdyno probe */ pg_backend_pid()", prepare=False).fetchone()
    if row is None or not isinstance(row[0], int):
        raise ConnectError("the server does not report the backend process ID of this connection")
    return row[0]
