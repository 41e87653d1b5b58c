"""Invariants of the user after a trial: queries that must return no row."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import psycopg

from pgdyno.errors import ServerError
from pgdyno.estimate import counted
from pgdyno.study.own_data import Invariant, first_line
from pgdyno.workload import check_session
from pgdyno.workload.interface import Check, Connect

PREFIX = "invariant "
"""Start of the names of these checks, which are followed by a file and a query."""


def check_invariants(connect: Connect, invariants: Sequence[Invariant]) -> list[Check]:
    """Run each query in a read-only session. A check fails if its query returns a row.

    Only the number of rows reaches pgdyno, never their values. Raises ConnectError, ServerError (a statement
    that is no query, or fails).
    """
    if not invariants:
        return []
    with closing(connect()) as conn:
        conn.execute("SET default_transaction_read_only = on")
        conn.execute("SET application_name = 'pgdyno check'")
        return [_check(conn, one.name, query) for one in invariants for query in one.queries()]


def _check(conn: psycopg.Connection[tuple[int, ...]], name: str, query: str) -> Check:
    shown = f"{name}: {first_line(query)}"
    try:
        # A line break, because the query may end with a comment.
        row = conn.execute(f"SELECT count(*) FROM (\n{query}\n) AS violations".encode()).fetchone()
    except psycopg.Error as error:
        raise ServerError(
            f"the check {shown} failed: {check_session.first_line(error)}: each statement of --check must be "
            "a query"
        ) from error
    assert row is not None
    return Check(f"{PREFIX}{shown}", row[0] == 0, float(row[0]), None, f"returned {counted(row[0], 'row')}")
