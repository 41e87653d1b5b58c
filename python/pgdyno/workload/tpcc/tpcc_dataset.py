"""A tpcc dataset: its ownership marker and its cardinalities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import psycopg
from psycopg import sql

from pgdyno.engine import dataset_format
from pgdyno.errors import DatasetError
from pgdyno.workload.interface import Check, Connection

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


READ_MARK = resources.files(__package__).joinpath("sql", "mark.sql").read_bytes()
_WHOLE_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


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

    Raises DatasetError: not pgdyno's, half-made, malformed, not tpcc, or of another format than this pgdyno
    loads.
    """
    try:
        rows = conn.execute(READ_MARK).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        raise DatasetError(
            f"{conn.info.dbname} holds no dataset of pgdyno: load one with pgdyno load"
        ) from None
    if not rows:
        raise DatasetError(
            f"the dataset in {conn.info.dbname} is half-made: its load did not end; load it again"
        )
    mark = _mark_of(rows)
    if mark is None:
        raise DatasetError(
            f"the row of pgdyno_dataset in {conn.info.dbname} is malformed ({_shown(rows[0])}): "
            "load the dataset again"
        )
    if mark.workload != "tpcc":
        raise DatasetError(f"{conn.info.dbname} holds a dataset of {mark.workload}, not of tpcc")
    if mark.format != dataset_format(mark.workload):
        raise DatasetError(
            f"the dataset in {conn.info.dbname} was loaded by another version of pgdyno: load it again"
        )
    return mark


def _mark_of(rows: Sequence[Sequence[str | None]]) -> Mark | None:
    """Return what the rows say; None unless it is one row of a load's values."""
    if len(rows) != 1 or None in rows[0]:
        return None
    workload, scale, seed, form, c_load = map(str, rows[0])
    if not (_WHOLE_NUMBER.fullmatch(scale) and _WHOLE_NUMBER.fullmatch(seed)):
        return None
    if not _WHOLE_NUMBER.fullmatch(c_load) or int(scale) < 1:
        return None
    return Mark(workload, int(scale), int(seed), form, int(c_load))


def _shown(row: Sequence[str | None]) -> str:
    names = ("workload", "scale", "seed", "format", "c_load")
    return ", ".join(f"{name} {value!r}" for name, value in zip(names, row, strict=True))


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
