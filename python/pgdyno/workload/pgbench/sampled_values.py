"""Values of a column for ``\\sample``: a random part of them, the same for the same data and seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import psycopg
from psycopg import sql

from pgdyno.errors import DatasetError
from pgdyno.study.column_sample import ColumnSample
from pgdyno.workload.check_session import first_line
from pgdyno.workload.interface import Connection

VALUES_MAX = 100_000
"""Maximum number of values of a column: they are in the memory of the driver, once per server."""

BYTES_MAX = 64 << 20
"""Maximum size of the values of all columns. Each block sends them to the driver."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class SampledValues:
    """Values of a column as texts. ``is_number``: they need no quotes in SQL. ``is_part``: there are more."""

    values: Sequence[str]
    is_number: bool
    is_part: bool

    @property
    def digest(self) -> str:
        """A digest of the values in their order, which does not reveal them."""
        return hashlib.sha256("\0".join(self.values).encode()).hexdigest()[:16]

    def constants(self) -> tuple[str, ...]:
        """Return the values as SQL constants, for the simple query protocol."""
        return tuple(
            value if self.is_number and _NUMBER.fullmatch(value) else sql.Literal(value).as_string(None)
            for value in self.values
        )


def read_sample(conn: Connection, of: ColumnSample, seed: int, bytes_max: int = BYTES_MAX) -> SampledValues:
    """Read up to VALUES_MAX values other than null in a transaction.

    Raises DatasetError: no such column, no value, or rows without an address (``frequency`` of a view).
    """
    table, column = sql.Identifier(*of.table), sql.Identifier(of.column)
    names = {
        "table": table,
        "column": column,
        "seed": sql.Literal(str(seed)),
        "limit": sql.Literal(VALUES_MAX + 1),
    }
    values: list[str] = []
    size_bytes = 0
    try:
        with conn.transaction():
            is_number = _is_number(conn, table, column)
            if of.weighting == "frequency" and not _has_row_addresses(conn, table):
                raise DatasetError(f"{of.table[-1]} is no table: use uniform")
            with conn.cursor(name="pgdyno_sample") as cursor:
                cursor.itersize = 1000
                cursor.execute(sql.SQL(_statement(of.weighting)).format(**names))
                for (value,) in cursor:
                    size_bytes += len(value.encode())
                    if values and (len(values) == VALUES_MAX or size_bytes > bytes_max):
                        return SampledValues(values, is_number, is_part=True)
                    values.append(value)
    except psycopg.Error as error:
        raise DatasetError(first_line(error)) from error
    if not values:
        raise DatasetError("the column has no value")
    return SampledValues(values, is_number, is_part=False)


def _statement(weighting: str) -> str:
    return resources.files(__package__).joinpath("sql", f"sample_{weighting}.sql").read_text(encoding="utf-8")


def _is_number(conn: Connection, table: sql.Identifier, column: sql.Identifier) -> bool:
    """Return whether the type of the column is a number, or a domain over one."""
    described = conn.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(column, table)).description
    assert described is not None
    row = conn.execute("SELECT typcategory FROM pg_type WHERE oid = %s", (described[0].type_code,)).fetchone()
    return row is not None and row[0] == "N"


def _has_row_addresses(conn: Connection, table: sql.Identifier) -> bool:
    """Return whether rows have a ctid: those of tables and materialized views, not of views."""
    name = table.as_string(conn)
    row = conn.execute("SELECT relkind FROM pg_class WHERE oid = %s::regclass", (name,)).fetchone()
    return row is not None and row[0] in {"r", "p", "m"}
