"""Consistency of a tpcc database: the twelve conditions (clause 3.3.2), and committed orders.

A statement returns no rows if its condition is true, else the first three violations, with the total number
in the first column. Each statement uses one database snapshot, so they can run concurrently and on a live
database.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from queue import SimpleQueue
from typing import Any

from psycopg import sql

from pgdyno.workload.check_session import checking
from pgdyno.workload.interface import Check, Connect, Connection


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


CONNECTIONS_MAX = 5
"""Number of conditions that read order_line; the others take little time."""


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


def check_conditions(connect: Connect, connections: int | None = None) -> list[Check]:
    """Run all conditions over several connections at once (default: one per core) and return them in order.

    ``connect`` opens a new connection in autocommit mode. Raises ConnectError, DatasetError (no such tables),
    ServerError.
    """
    todo = conditions()
    connections = connections or min(CONNECTIONS_MAX, len(os.sched_getaffinity(0)))
    # The longest first, so that a short one ends last.
    queue: SimpleQueue[ConsistencyCondition] = SimpleQueue()
    for condition in sorted(todo, key=lambda condition: -condition.statement.count(" order_line\n")):
        queue.put(condition)
    with ThreadPoolExecutor(connections) as pool:
        workers = [pool.submit(_work, connect, queue) for _ in range(connections)]
        found = {number: check for worker in workers for number, check in worker.result().items()}
    return [found[condition.number] for condition in todo]


def _work(connect: Connect, queue: SimpleQueue[ConsistencyCondition]) -> dict[int, Check]:
    found: dict[int, Check] = {}
    with closing(connect()) as conn, checking(conn, "tpcc"):
        while not queue.empty():
            condition = queue.get()
            found[condition.number] = check_condition(conn, condition)
    return found


def check_condition(conn: Connection, condition: ConsistencyCondition) -> Check:
    """Run one condition."""
    cursor = conn.execute(sql.SQL(condition.statement))
    rows = cursor.fetchall()
    if not rows:
        return Check(condition.name, True, statistic=0.0, detail=condition.text)
    columns = [column.name for column in cursor.description or ()][1:]
    violations = rows[0][0]
    examples = "; ".join(_example(columns, row[1:]) for row in rows)
    detail = f"{condition.text}: {violations} violations, the first: {examples}"
    return Check(condition.name, False, statistic=float(violations), detail=detail)


def _example(columns: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(
        f"{column} {'null' if value is None else value}"
        for column, value in zip(columns, values, strict=True)
    )
