"""A tpcc dataset: its mark and its cardinalities. How many bytes it takes is the engine's knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pgdyno.engine import dataset_format
from pgdyno.errors import DatasetError
from pgdyno.workload.check import Check
from pgdyno.workload.interface import Connection

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
"""Per warehouse: 30 000 orders of 5 to 15 lines, each number as likely, whose variance is (11² - 1) / 12 =
10."""
ORDER_LINES_SIGMAS_MAX = 6.0
"""Two correct populations in a thousand million are further out; the seed is known, so it would be the same
each time."""


@dataclass(frozen=True)
class Mark:
    """The row of ``pgdyno_dataset``, written last of all: with it a dataset is whole."""

    workload: str
    scale: int
    seed: int
    format: str
    c_load: int


def read_mark(conn: Connection) -> Mark:
    """The mark of the dataset in this database.

    Raises DatasetError: not pgdyno's, half-made, not tpcc, or of another format than this pgdyno loads.
    """
    try:
        row = conn.execute("SELECT workload, scale, seed, format, c_load FROM pgdyno_dataset").fetchone()
    except psycopg.errors.UndefinedTable:
        raise DatasetError(
            f"{conn.info.dbname} holds no dataset of pgdyno: load one with pgdyno load"
        ) from None
    if row is None:
        raise DatasetError(
            f"the dataset in {conn.info.dbname} is half-made: its load did not end; load it again"
        )
    workload, scale, seed, form, c_load = row
    mark = Mark(workload, int(scale), int(seed), str(form), int(c_load))
    if mark.workload != "tpcc":
        raise DatasetError(f"{conn.info.dbname} holds a dataset of {mark.workload}, not of tpcc")
    if mark.format != dataset_format(mark.workload):
        raise DatasetError(
            f"the dataset in {conn.info.dbname} was loaded by another version of pgdyno: load it again"
        )
    return mark


def require_warehouses(conn: Connection) -> int:
    """How many warehouses there are, whoever loaded them. Raises DatasetError: none, of which any condition
    is true."""
    try:
        row = conn.execute("SELECT count(*) FROM warehouse").fetchone()
    except psycopg.errors.UndefinedTable:
        raise DatasetError(f"there is no tpcc dataset in {conn.info.dbname}: no table warehouse") from None
    if row is None or row[0] == 0:
        raise DatasetError(f"there is no tpcc dataset in {conn.info.dbname}: no warehouse in its table")
    return int(row[0])


def check_fresh(conn: Connection, warehouses: int) -> Check:
    """The cardinalities of clause 4.3.3.1: exact, and of order_line within what chance allows. For a fresh
    dataset."""
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
