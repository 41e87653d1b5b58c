"""Sessions of checks: read-only, with plans that do not depend on statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from pgdyno.errors import DatasetError, ServerError
from pgdyno.workload.interface import Connection

WORK_MEM = "256MB"
"""A hash table of all orders of 30 warehouses. Above it, PostgreSQL goes to disk or sorts: slower, never
wrong."""

SESSION = {
    "application_name": "pgdyno check",
    "default_transaction_read_only": "on",
    "statement_timeout": "0",
    "work_mem": WORK_MEM,
    "jit": "off",  # costs more than these statements gain; unknown before 11
    # A trial ends without ANALYZE, and a join of 300 000 rows that the planner takes for one is done by a
    # nested loop in minutes, by hash in a second. The conditions name every join's keys, so that there is
    # always a hash join.
    "enable_nestloop": "off",
    "enable_hashjoin": "on",
    "enable_hashagg": "on",
}


@contextlib.contextmanager
def checking(conn: Connection, workload: str) -> Iterator[None]:
    """Readies the session, and says in our words what PostgreSQL refuses. Raises DatasetError (no such
    tables), ServerError.
    """
    name = conn.info.dbname  # unknown to a connection that was lost
    try:
        prepare_session(conn)
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise DatasetError(f"there is no {workload} dataset in {name}: {first_line(error)}") from error
    except psycopg.Error as error:
        raise ServerError(f"checking {name} failed: {first_line(error)}") from error


def prepare_session(conn: Connection) -> None:
    """Set what this server's version knows of SESSION."""
    conn.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
        " JOIN pg_settings USING (name)",
        (list(SESSION), list(SESSION.values())),
    )


def first_line(error: psycopg.Error) -> str:
    """Without the statement and the caret."""
    return str(error).partition("\n")[0]
