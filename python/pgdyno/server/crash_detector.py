"""Crash detector: a connection that is idle during a trial and ends with a crash or restart.

Server processes share memory: if one crashes, PostgreSQL terminates all of them and restarts at once. Clients
that were idle at that moment may not notice it, and the log of a remote server is not accessible.
"""

from __future__ import annotations

import psycopg

from pgdyno.errors import ServerError
from pgdyno.server.limited_connection import NoAnswer
from pgdyno.server.running import Connection


def keep_idle(connection: Connection) -> Connection:
    """Disable the idle timeout of the session, and return the connection."""
    if connection.info.server_version >= 14_00_00:
        connection.execute("set idle_session_timeout = 0")
    return connection


def require_no_crash(detector: Connection) -> None:
    """Raise ServerError if the connection was lost."""
    try:
        detector.execute("select 1")
    except NoAnswer as error:
        raise ServerError(str(error)) from None
    except psycopg.Error:
        raise ServerError(
            "the server crashed or restarted during the trial: an idle connection was lost"
        ) from None
