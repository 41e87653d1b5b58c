"""Sessions for checks: read-only, with plans that do not depend on statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from pgdyno.errors import DatasetError, ServerError
from pgdyno.workload.interface import Connection

WORK_MEM = "256MB"
"""work_mem for a hash table of all orders of 30 warehouses. For more, PostgreSQL uses temporary files or
sorts, which is slower but correct."""

SESSION = {
    "application_name": "pgdyno check",
    "default_transaction_read_only": "on",
    "statement_timeout": "0",
    "work_mem": WORK_MEM,
    "jit": "off",  # costs more than it saves here; unknown before 11
    # A trial ends without ANALYZE. If the planner estimates one row instead of 300,000, a nested loop takes
    # minutes and a hash join a second. All joins of the conditions have equality keys, so a hash join is
    # always possible.
    "enable_nestloop": "off",
    "enable_hashjoin": "on",
    "enable_hashagg": "on",
}


@contextlib.contextmanager
def checking(conn: Connection, workload: str) -> Iterator[None]:
    """Prepare the session, and convert errors of PostgreSQL. Raises DatasetError (no such tables),
    ServerError.
    """
    name = conn.info.dbname  # not available after a loss of the connection
    try:
        prepare_session(conn)
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise DatasetError(f"the database {name} contains no {workload} data: {first_line(error)}") from error
    except psycopg.Error as error:
        raise ServerError(f"checking {name} failed: {first_line(error)}") from error


def prepare_session(conn: Connection) -> None:
    """Set the settings of SESSION that this version has."""
    conn.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
        " JOIN pg_settings USING (name)",
        (list(SESSION), list(SESSION.values())),
    )


def first_line(error: psycopg.Error) -> str:
    """Return the message without the statement and the caret."""
    return str(error).partition("\n")[0]
