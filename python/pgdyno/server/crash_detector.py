"""Crash detector: a connection held through a trial, which a crash or restart would end.

A server's processes share memory: when one crashes, PostgreSQL ends them all and starts anew at once. A
driver whose clients were idle at that moment may not have seen it, and the log of a server that runs
elsewhere is out of our reach.
"""

from __future__ import annotations

import psycopg

from pgdyno.errors import ServerError
from pgdyno.server.limited_connection import NoAnswer
from pgdyno.server.running import Connection


def keep_idle(connection: Connection) -> Connection:
    """The connection, now one that the server lets be idle for as long as it takes."""
    if connection.info.server_version >= 14_00_00:
        connection.execute("set idle_session_timeout = 0")
    return connection


def require_undisturbed(witness: Connection) -> None:
    """Raises ServerError where the witness was lost."""
    try:
        witness.execute("select 1")
    except NoAnswer as error:
        raise ServerError(str(error)) from None
    except psycopg.Error:
        raise ServerError(
            "the server crashed or was restarted: it ended a connection that was held through the trial"
        ) from None
