"""The connection of a probe: marked, read-only, and never long in anybody's way.

What a probe does must not be counted in the workload that it watches. A superuser's session is not tracked
by pg_stat_statements at all; any other one's statements carry a mark, by which they are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

from pgdyno.server.limited_connection import set_limit
from pgdyno.server.running import Connection

APPLICATION_NAME = "pgdyno probe"
"""Also the mark in every statement. Only ``prepare`` gives it to a session: it tells which are ready."""

STATEMENT_TIMEOUT_S = 5
"""A reading takes milliseconds: what takes this long on a busy server would disturb it."""

NETWORK_S = 15
"""What a server may take beyond its own limit to say that it has given a reading up."""

LOCK_TIMEOUT_S = 1
"""To know the size of a table that is being rewritten, one would wait until that is done."""

SESSION = {
    "application_name": APPLICATION_NAME,
    "default_transaction_read_only": "on",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    "search_path": "pg_catalog",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "max_parallel_workers_per_gather": "0",  # those are the workload's
    "jit": "off",  # compiling costs more than such statements take; unknown before 11
    "idle_session_timeout": "0",  # unknown before 14
    "extra_float_digits": "3",  # before 12 anything less would lose digits
}


def prepare(connection: Connection) -> None:
    """Makes the connection a probe's; once done, this costs nothing. Raises psycopg.Error."""
    if connection.info.parameter_status("application_name") == APPLICATION_NAME:
        return
    connection.autocommit = True
    set_limit(connection, STATEMENT_TIMEOUT_S + NETWORK_S)
    if connection.info.parameter_status("is_superuser") == "on":
        # Where the library is not loaded, this is a name without a meaning.
        _set(connection, {"pg_stat_statements.track": "none"})
    _set(connection, {name: value for name, value in SESSION.items() if _is_known(connection, name)})


def set_statement_timeout(connection: Connection, timeout_s: int) -> None:
    """For what reads more than counters."""
    set_limit(connection, timeout_s + NETWORK_S)
    _set(connection, {"statement_timeout": f"{timeout_s}s"})


def _set(connection: Connection, settings: Mapping[str, str]) -> None:
    """As a query, since that can carry the mark in all versions."""
    calls = [sql.SQL("set_config({}, {}, false)").format(*setting) for setting in settings.items()]
    connection.execute(sql.SQL("SELECT /* pgdyno probe */ {}").format(sql.SQL(", ").join(calls)))


def _is_known(connection: Connection, name: str) -> bool:
    since = {"jit": 11_00_00, "idle_session_timeout": 14_00_00}
    return connection.info.server_version >= since.get(name, 0)
