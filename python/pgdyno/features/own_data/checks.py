"""Checks after a trial on the user's data, and values that no log may have.

- Removal of the values of rows from errors and logs of servers on data of the user.
- Invariants of the user after a trial: queries that must return no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing

import psycopg

from pgdyno.errors import ServerError
from pgdyno.features.own_data.plan import Invariant, first_line
from pgdyno.features.own_data.source import own_data_of
from pgdyno.measure.arms import Redaction
from pgdyno.results.records import Check
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import counted
from pgdyno.workloads import workload
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.workload import INVARIANT, Connect

# ----------------------------------------------------------------------
# Removal of the values of rows from errors and logs of servers on data of the user.
# ----------------------------------------------------------------------

HIDDEN = "…"

_QUOTED = re.compile(r'"[^"\n]*"')
_OF_NAMES = re.compile(
    r"\b(relation|table|view|index|column|constraint|database|schema|sequence|trigger|function|type|role|"
    r"extension|parameter|partition|statement|portal|policy|of)\s*$"
)
_ERROR = re.compile(r"^(?P<start>.*?\b(?:ERROR|FATAL|PANIC|WARNING|NOTICE|INFO):  )(?P<text>.*)$")
_MORE = re.compile(r"^(?P<start>.*? (?:DETAIL|HINT|CONTEXT|STATEMENT|QUERY):  ).*$")
_SAFE = ("08", "0A", "25", "3D", "40", "42", "53", "55", "57", "58")
"""Classes of SQLSTATEs whose messages have no values of rows."""


def redaction(parameters: WorkloadParameters) -> Redaction | None:
    """Return the removal of values if the rows are those of the user."""
    return Redaction(log_without_values, message_without_values) if own_data_of(parameters) else None


def message_without_values(message: str, sqlstate: str) -> str:
    """Return an error message with names of objects, but without values, and without its detail.

    A message of RAISE can contain anything, so nothing of it is left.
    """
    if sqlstate.startswith("P0"):
        return f"a message of RAISE{HIDDEN}"
    return message if sqlstate.startswith(_SAFE) else _without_quotes(message.split("; ", 1)[0])


def log_without_values(log: str) -> str:
    """Return a server log without values in errors, and without details and statements. Lines stay lines."""
    return "\n".join(map(_line, log.split("\n")))


def _line(line: str) -> str:
    if line.startswith("\t"):
        return f"\t{HIDDEN}"
    if found := _MORE.match(line):
        return f"{found['start']}{HIDDEN}"
    if found := _ERROR.match(line):
        return f"{found['start']}{_without_quotes(found['text'])}"
    return line


def _without_quotes(text: str) -> str:
    """Return the text without quoted words, except names of objects."""

    def shown(quoted: re.Match[str]) -> str:
        return quoted[0] if _OF_NAMES.search(text[: quoted.start()]) else f'"{HIDDEN}"'

    return _QUOTED.sub(shown, text)


# ----------------------------------------------------------------------
# Invariants of the user after a trial: queries that must return no row.
# ----------------------------------------------------------------------


def check_after_trial(parameters: PgbenchParameters, connect: Connect) -> list[Check]:
    """Check the invariants of a workload."""
    return check_invariants(connect, parameters.checks)


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
            f"the check {shown} failed: {workload.first_line(error)}: each statement of --check must be "
            "a query"
        ) from error
    assert row is not None
    return Check(
        f"{INVARIANT}{shown}", row[0] == 0, float(row[0]), None, f"returned {counted(row[0], 'row')}"
    )
