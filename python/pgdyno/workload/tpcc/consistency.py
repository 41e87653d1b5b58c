"""Consistency of a tpcc database: the twelve conditions (clause 3.3.2), and committed orders.

A statement returns no rows if its condition is true, else the first three violations, with the total number
in the first column. Each statement uses one database snapshot, so they can run on a live database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from typing import Any

from psycopg import sql

from pgdyno.study.tpcc_dialects import TpccDeviation
from pgdyno.workload.check_session import checking
from pgdyno.workload.interface import Check, Connect, Connection
from pgdyno.workload.tpcc.tpcc_dataset import create_views


def sum_d_next_o_id(conn: Connection) -> int:
    """Return the sum of D_NEXT_O_ID over all districts. Only committed New-Orders change it, by exactly 1."""
    row = conn.execute("SELECT coalesce(sum(d_next_o_id), 0) FROM district").fetchone()
    assert row is not None
    return int(row[0])


def check_new_orders(before: int, after: int, committed: int) -> Check:
    """Check that the committed new orders counted by the driver = growth of the sum of D_NEXT_O_ID."""
    difference = after - before - committed
    detail = f"driver committed {committed}, the database has {after - before} more"
    return Check("new orders conserved", difference == 0, statistic=float(difference), detail=detail)


@dataclass(frozen=True)
class ConsistencyCondition:
    """A consistency condition: its number (1 to 12), its text, and the statement that finds violations."""

    number: int
    text: str
    statement: str

    @property
    def name(self) -> str:
        """Name in checks and reports."""
        return f"condition {self.number}"


def conditions() -> list[ConsistencyCondition]:
    """Return all twelve, in the order of the specification."""
    files = [
        file
        for file in resources.files(__package__).joinpath("conditions").iterdir()
        if file.name.endswith(".sql")
    ]
    return [
        _read(file.name, file.read_text(encoding="utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    ]


def _read(name: str, statement: str) -> ConsistencyCondition:
    first_line = statement.partition("\n")[0]
    return ConsistencyCondition(int(name[:2]), first_line.partition("): ")[2].rstrip("."), statement)


def check_conditions(
    connect: Connect, deviations: Iterable[TpccDeviation] = (), suffixed_sets: int = 0
) -> list[Check]:
    """Run the conditions and return them in order; those that cannot hold under a deviation are skipped.

    ``connect`` opens a new connection in autocommit mode. ``suffixed_sets``: number of sets of tables with a
    number as suffix. Raises ConnectError, DatasetError (no such tables), ServerError.
    """
    with closing(connect()) as conn:
        create_views(conn, suffixed_sets)
        return _check_conditions(conn, deviations)


def _check_conditions(conn: Connection, deviations: Iterable[TpccDeviation]) -> list[Check]:
    with checking(conn, "tpcc"):
        satisfied = satisfied_by_one_scan(conn)
        broken = {number: one for one in deviations for number in one.broken}
        checks = []
        for condition in conditions():
            if deviation := broken.get(condition.number):
                checks.append(skipped(condition.name, deviation))
            elif condition.number in satisfied:
                checks.append(_passed(condition))
            else:
                checks.append(check_condition(conn, condition))
        return checks


def skipped(name: str, deviation: TpccDeviation) -> Check:
    """Return a check that was not run, because it cannot hold under a deviation."""
    detail = f"skipped: it cannot hold under the deviation {deviation.name} (clause {deviation.clause})"
    return Check(name, True, detail=detail, skipped=True)


def satisfied_by_one_scan(conn: Connection) -> set[int]:
    """Return the conditions on ORDER-LINE that one common scan shows to be satisfied.

    Only the statement of a condition finds its violations, so the others have to be run. A scan per condition
    takes about twice the CPU time.
    """
    statement = resources.files(__package__).joinpath("sql", "order_line_violations.sql").read_bytes()
    cursor = conn.execute(statement)
    row = cursor.fetchone()
    assert row is not None
    numbers = [int(column.name) for column in cursor.description or ()]
    return {number for number, differs in zip(numbers, row, strict=True) if differs is False}


def check_condition(conn: Connection, condition: ConsistencyCondition) -> Check:
    """Run one condition."""
    cursor = conn.execute(sql.SQL(condition.statement))
    rows = cursor.fetchall()
    if not rows:
        return _passed(condition)
    columns = [column.name for column in cursor.description or ()][1:]
    violations = rows[0][0]
    examples = "; ".join(_example(columns, row[1:]) for row in rows)
    detail = f"{condition.text}: {violations} violations, the first: {examples}"
    return Check(condition.name, False, statistic=float(violations), detail=detail)


def _passed(condition: ConsistencyCondition) -> Check:
    return Check(condition.name, True, statistic=0.0, detail=condition.text)


def _example(columns: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(
        f"{column} {'null' if value is None else value}"
        for column, value in zip(columns, values, strict=True)
    )
