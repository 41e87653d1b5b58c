"""Poolers that give each transaction another server process: pgbouncer with ``pool_mode = transaction``.

pgdyno needs sessions for its advisory locks and settings. In a pooled session they would be left to
strangers: a lock that nobody releases makes later runs wait forever. So a connection through such a pooler is
refused before anything is set or locked. The probe itself leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from pgdyno.errors import ConnectError
from pgdyno.server.running import Connection

ROUNDS = 8
"""Two connections that share n server processes are told apart from sessions in a round with a probability of
1 - 1/n or more: 8 rounds miss a pool of 2 once in 256 times, and one process is known at once."""

REMEDY = "connect to the server itself, or to a pool with pool_mode = session and room for every connection"


def require_session(connection: Connection, connect: Callable[[], Connection]) -> None:
    """Raises ConnectError where the connection has no session of its own.

    ``connection`` is new and in autocommit mode; ``connect`` gives another one like it. A server tells a
    client the number of the process that serves it; a pooler has to invent one. So a direct connection costs
    one statement. Raises psycopg.Error where not even that can be asked.
    """
    if _server_process(connection) == connection.info.backend_pid:
        return
    try:
        with connect() as other:
            pooled = _is_pooled_by_transaction(connection, other)
    except psycopg.Error as error:
        words = error.diag.message_primary or str(error)
        raise ConnectError(f"a pooler in between refuses a second transaction: {words}: {REMEDY}") from None
    if pooled:
        raise ConnectError(
            "a pooler in between gives each transaction another session (transaction pooling), "
            f"and pgdyno's locks and settings need one session: {REMEDY}"
        )


def _is_pooled_by_transaction(connection: Connection, other: Connection) -> bool:
    """Return whether the process of one connection changes, or is found on both."""
    own = _server_process(connection)
    for _ in range(ROUNDS):
        # While this transaction is open its process is taken, so that the pooler has to find another one.
        with other.transaction():
            if _server_process(other) == own or _server_process(connection) != own:
                return True
    return False


def _server_process(connection: Connection) -> int:
    # Marked as a probe's, so that it is not counted in the workload.
    row = connection.execute("select /* pgdyno probe */ pg_backend_pid()", prepare=False).fetchone()
    if row is None or not isinstance(row[0], int):
        raise ConnectError("the server does not tell the number of the process that serves this connection")
    return row[0]
