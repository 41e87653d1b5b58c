"""A tpcc dataset: its mark, its cardinalities, and whether a disk can hold it.

How many bytes a dataset takes is the engine's knowledge (event ``started`` of ``load``); here it is only
compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from pgdyno.errors import DatasetError, DiskFullError
from pgdyno.units import format_size
from pgdyno.workload.check import Check
from pgdyno.workload.tpcc.conservation import Connection

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

FREE_BYTES_MIN = 256 * 2**20
"""Left free beside what is asked for: the log, the evidence, temporary files, and room for the estimate to be
wrong."""


@dataclass(frozen=True)
class Mark:
    """The row of ``pgdyno_dataset``, written last of all: with it a dataset is whole."""

    workload: str
    scale: int
    seed: int
    format: int
    c_load: int


def read_mark(conn: Connection) -> Mark:
    """The mark of the dataset in this database. Raises DatasetError: not pgdyno's, half-made, or not tpcc."""
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
    mark = Mark(str(row[0]), *(int(value) for value in row[1:]))
    if mark.workload != "tpcc":
        raise DatasetError(f"{conn.info.dbname} holds a dataset of {mark.workload}, not of tpcc")
    return mark


def count_warehouses(conn: Connection) -> int:
    """How many warehouses there are, whoever loaded them."""
    row = conn.execute("SELECT count(*) FROM warehouse").fetchone()
    assert row is not None
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
    row = conn.execute(
        psycopg.sql.SQL("SELECT count(*) FROM {}").format(psycopg.sql.Identifier(table))
    ).fetchone()
    assert row is not None
    return int(row[0])


def forecast_bytes(started: Mapping[str, Any]) -> int:
    """What the engine's event ``started`` says the dataset will take, tables and indexes."""
    return sum(int(table["bytes_estimated"]) for table in started["tables"].values())


def require_space(directory: Path, needed_bytes: int, what: str) -> None:
    """Raises DiskFullError unless the file system of ``directory`` can take ``needed_bytes`` and keep some
    free."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes + FREE_BYTES_MIN:
        raise DiskFullError(
            f"{what} needs {format_size(needed_bytes)} and {format_size(FREE_BYTES_MIN)} to spare, but only"
            f" {format_size(free_bytes)} are free in {directory}: take fewer warehouses, or make room"
        )
