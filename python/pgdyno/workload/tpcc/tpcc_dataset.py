"""A tpcc dataset: its ownership marker and its cardinalities."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import psycopg
from psycopg import sql

from pgdyno.engine import dataset_format
from pgdyno.errors import DatasetError, ServerError
from pgdyno.estimate import counted
from pgdyno.workload.interface import Connection

READ_MARK = resources.files(__package__).joinpath("sql", "mark.sql").read_bytes()
READ_COLUMNS = """
    SELECT attname::text
      FROM pg_attribute
     WHERE attrelid = to_regclass('public.' || quote_ident(%s)) AND attnum > 0 AND NOT attisdropped
     ORDER BY attnum
"""
"""Columns of a table of the schema public, in order."""
_WHOLE_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


@dataclass(frozen=True)
class OwnershipMarker:
    """The row of ``pgdyno_dataset``, written last: it marks a complete dataset."""

    workload: str
    scale: int
    seed: int
    format: str
    c_load: int
    deviations: tuple[str, ...] = ()  # from TPC-C, those of the data
    table_sets: int = 1

    @property
    def suffixed_sets(self) -> int:
        """Number of sets of tables with a number as suffix; 0 for tables without suffix."""
        return self.table_sets if "sysbench-sql" in self.deviations else 0


def read_marker(conn: Connection) -> OwnershipMarker:
    """Return the marker of the dataset in this database.

    Raises DatasetError if pgdyno did not create it, or if it is incomplete, malformed, not tpcc, or of
    another format.
    """
    try:
        rows = conn.execute(READ_MARK).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        raise DatasetError(
            f"the database {conn.info.dbname} contains no pgdyno dataset: load one with pgdyno load"
        ) from None
    if not rows:
        raise DatasetError(
            f"the dataset in {conn.info.dbname} is incomplete, because its load did not finish: load it again"
        )
    mark = _mark_of(rows)
    if mark is None:
        raise DatasetError(
            f"the row of pgdyno_dataset in {conn.info.dbname} is malformed ({_shown(rows[0])}): "
            "load the dataset again"
        )
    if mark.workload != "tpcc":
        raise DatasetError(
            f"the dataset in {conn.info.dbname} belongs to the workload {mark.workload}, not tpcc"
        )
    if mark.format != dataset_format(mark.workload):
        raise DatasetError(
            f"the dataset in {conn.info.dbname} was loaded by another version of pgdyno: load it again"
        )
    return mark


def marker_or_none(conn: Connection) -> OwnershipMarker | None:
    """Return the marker; None if pgdyno did not load the data."""
    try:
        return read_marker(conn)
    except DatasetError:
        return None


TABLES = (
    "warehouse",
    "district",
    "customer",
    "history",
    "orders",
    "order_line",
    "new_order",
    "stock",
    "item",
)


def create_views(conn: Connection, suffixed_sets: int) -> None:
    """Create temporary views under the usual names over the sets of tables of sysbench-tpcc, if any.

    Warehouses belong to the sets in turn, and have the numbers of the whole dataset in the views. Raises
    DatasetError for another number of sets, ServerError.
    """
    if not suffixed_sets:
        return
    name = conn.info.dbname
    remedy = "use --table-sets with their number, or load the data with pgdyno load"
    try:
        for table in TABLES:
            conn.execute(_view(conn, table, suffixed_sets))
        row = conn.execute(
            "SELECT to_regclass(format('public.warehouse%%s', %s::integer))::text", [suffixed_sets + 1]
        ).fetchone()
    except psycopg.errors.UndefinedTable:
        raise DatasetError(
            f"the database {name} does not have {counted(suffixed_sets, 'set')} of tables: {remedy}"
        ) from None
    except psycopg.Error as error:
        message = str(error).partition("\n")[0]
        raise ServerError(
            f"checking {name} needs temporary views over its tables, and cannot create them: {message}"
        ) from error
    if row is not None and row[0] is not None:
        raise DatasetError(
            f"the database {name} has more than {counted(suffixed_sets, 'set')} of tables: {remedy}"
        )


def _view(conn: Connection, table: str, sets: int) -> sql.Composed:
    of_sets = "new_orders" if table == "new_order" else table
    columns = [name for (name,) in conn.execute(READ_COLUMNS, [f"{of_sets}1"])]
    if not columns:
        raise psycopg.errors.UndefinedTable(f"{of_sets}1")
    selects = []
    for number in range(1, sets + 1):
        values = [
            sql.SQL("(({0}::integer - 1) * {1} + {2})").format(sql.Identifier(name), sets, number)
            if name.endswith("w_id")
            else sql.Identifier(name)
            for name in columns
        ]
        selects.append(
            sql.SQL("SELECT {} FROM {}").format(
                sql.SQL(", ").join(values), sql.Identifier("public", f"{of_sets}{number}")
            )
        )
    return sql.SQL("CREATE OR REPLACE TEMPORARY VIEW {} ({}) AS {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(" UNION ALL ").join(selects),
    )


def _mark_of(rows: Sequence[Sequence[str | None]]) -> OwnershipMarker | None:
    """Return the marker in the rows; None unless there is exactly one valid row."""
    if len(rows) != 1 or None in rows[0]:
        return None
    workload, scale, seed, form, c_load = map(str, rows[0])
    form, _, further = form.partition("+")
    deviations, _, sets = further.partition(",table-sets=")
    if not (_WHOLE_NUMBER.fullmatch(scale) and _WHOLE_NUMBER.fullmatch(seed)):
        return None
    if not _WHOLE_NUMBER.fullmatch(c_load) or int(scale) < 1:
        return None
    if sets and not _WHOLE_NUMBER.fullmatch(sets):
        return None
    names = tuple(name for name in deviations.split(",") if name)
    return OwnershipMarker(workload, int(scale), int(seed), form, int(c_load), names, int(sets or 1))


def _shown(row: Sequence[str | None]) -> str:
    names = ("workload", "scale", "seed", "format", "c_load")
    return ", ".join(f"{name} {value!r}" for name, value in zip(names, row, strict=True))


def require_warehouses(conn: Connection) -> int:
    """Return the number of warehouses, whoever loaded them. Raises DatasetError without any, because then all
    conditions are true."""
    try:
        row = conn.execute("SELECT count(*) FROM warehouse").fetchone()
    except psycopg.errors.UndefinedTable:
        raise DatasetError(
            f"the database {conn.info.dbname} contains no tpcc data: it has no table warehouse"
        ) from None
    if row is None or row[0] == 0:
        raise DatasetError(
            f"the database {conn.info.dbname} contains no tpcc data: its table warehouse is empty"
        )
    return int(row[0])
