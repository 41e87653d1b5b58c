"""Ownership marker and cardinalities of a dataset, on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest
from checks_population import populate
from psycopg import sql

from pgdyno.errors import DatasetError
from pgdyno.results.records import Check
from pgdyno.server.engine import dataset_format
from pgdyno.server.processes import Server
from pgdyno.workloads.tpcc.checks import OwnershipMarker, read_marker, require_warehouses

pytestmark = pytest.mark.server
Connection = psycopg.Connection[tuple[Any, ...]]

MARKS = """
    CREATE TABLE pgdyno_dataset (
        workload text, scale integer, seed numeric(20), format text, c_load integer, loaded_at timestamptz)
"""


ROWS_PER_WAREHOUSE: Mapping[str, int] = {
    "warehouse": 1,
    "district": 10,
    "customer": 30_000,
    "history": 30_000,
    "orders": 30_000,
    "new_order": 9_000,
    "stock": 100_000,
}
ITEMS = 100_000
ORDER_LINES_MEAN = 300_000
ORDER_LINES_VARIANCE = 30_000 * 10
"""Per warehouse: 30,000 orders of 5 to 15 lines, uniformly distributed, with variance (11² - 1) / 12 = 10."""
ORDER_LINES_SIGMAS_MAX = 6.0
"""Limit in standard errors. Two correct populations in a billion exceed it. The seed is fixed, so the result
is reproducible.
"""


def check_fresh(conn: Connection, warehouses: int) -> Check:
    """Check the cardinalities of clause 4.3.3.1 in a new dataset: exactly, except order_line within a
    probability bound.
    """
    due = {table: n * warehouses for table, n in ROWS_PER_WAREHOUSE.items()} | {"item": ITEMS}
    rows = {table: _count(conn, table) for table in (*due, "order_line")}
    wrong = [f"{table} has {rows[table]} rows instead of {n}" for table, n in due.items() if rows[table] != n]
    lines_due = ORDER_LINES_MEAN * warehouses
    stray_max = ORDER_LINES_SIGMAS_MAX * (ORDER_LINES_VARIANCE * warehouses) ** 0.5
    if abs(rows["order_line"] - lines_due) > stray_max:
        wrong.append(f"order_line has {rows['order_line']} rows instead of {lines_due} ± {stray_max:.0f}")
    detail = "; ".join(wrong) or f"{sum(rows.values())} rows in {len(rows)} tables"
    return Check("cardinalities", not wrong, statistic=float(len(wrong)), detail=detail)


def _count(conn: Connection, table: str) -> int:
    row = conn.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def conn(running_server: Server) -> Iterator[Connection]:
    with closing(running_server.connect()) as connection:
        connection.autocommit = False
        yield connection
        connection.rollback()


def test_the_mark_is_read(conn: Connection) -> None:
    conn.execute(MARKS)
    form = dataset_format("tpcc")
    conn.execute(
        "INSERT INTO pgdyno_dataset VALUES ('tpcc', 10, 18446744073709551615, %s, 123, now())", [form]
    )
    assert read_marker(conn) == OwnershipMarker("tpcc", 10, 2**64 - 1, form, 123)


NO_DATASET = [
    ("SELECT", "contains no pgdyno dataset"),
    (MARKS, "incomplete, because its load did not finish"),
    (
        f"{MARKS}; INSERT INTO pgdyno_dataset VALUES ('pgbench', 10, 1, 1, 0, now())",
        "belongs to the workload pgbench, not tpcc",
    ),
    (
        f"{MARKS}; INSERT INTO pgdyno_dataset VALUES ('tpcc', 10, 1, '1', 0, now())",
        "loaded by another version of pgdyno: load it again",
    ),
]


@pytest.mark.parametrize(("statements", "message"), NO_DATASET)
def test_an_incomplete_dataset_is_rejected(conn: Connection, statements: str, message: str) -> None:
    conn.execute(statements)
    with pytest.raises(DatasetError, match=message):
        read_marker(conn)


def test_incorrect_cardinalities_are_named(conn: Connection) -> None:
    populate(conn, warehouses=2, customers=30)
    assert require_warehouses(conn) == 2
    check = check_fresh(conn, warehouses=2)
    assert not check.passed
    assert "customer has 600 rows instead of 60000" in check.detail
    assert "order_line has " in check.detail
    assert "warehouse has" not in check.detail


FULL = """
    CREATE TABLE warehouse AS SELECT 1;
    CREATE TABLE district AS SELECT generate_series(1, 10);
    CREATE TABLE customer AS SELECT generate_series(1, 30000);
    CREATE TABLE history AS TABLE customer;
    CREATE TABLE orders AS TABLE customer;
    CREATE TABLE new_order AS SELECT generate_series(1, 9000);
    CREATE TABLE stock AS SELECT generate_series(1, 100000);
    CREATE TABLE item AS TABLE stock;
    CREATE TABLE order_line AS SELECT generate_series(1, {lines})
"""


@pytest.mark.parametrize(
    ("lines", "passed"), [(300_000, True), (303_000, True), (303_500, False), (296_500, False)]
)
def test_order_lines_may_deviate_within_the_probability_bound(
    conn: Connection, lines: int, passed: bool
) -> None:
    conn.execute(FULL.format(lines=lines))
    assert check_fresh(conn, warehouses=1).passed is passed


@pytest.mark.parametrize(
    ("statements", "message"),
    [("SELECT", "it has no table warehouse"), ("CREATE TABLE warehouse ()", "its table warehouse is empty")],
)
def test_a_database_without_warehouses_has_nothing_to_check(
    conn: Connection, statements: str, message: str
) -> None:
    conn.execute(statements)
    with pytest.raises(DatasetError, match=message):
        require_warehouses(conn)
