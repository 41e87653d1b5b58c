"""How scripts draw the value of each parameter: sampled from a column, new, or a neutral constant. Pure.

No value of a row or of the workload is written: \\sample reads the values from the data that are measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pgdyno.workload.statements.column_scopes import ColumnName
from pgdyno.workload.statements.referenced_tables import Column, Table, Tables
from pgdyno.workload.statements.statement_parameters import Role, Use
from pgdyno.workload.statements.statement_parser import Reason, Unusable

LIST_ITEMS_MAX = 100
"""Maximum number of values of a list."""

RANGE_SHARE = 0.01
"""Width of a range, as a share of the column's histogram: statistics do not have that of the workload."""

NEUTRAL: Mapping[str, str] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric", "real", "double precision", "oid"), "1"),
    **dict.fromkeys(("text", "character varying", "character", "name", '"char"', "bytea", "xml"), "'a'"),
    "boolean": "true",
    "date": "current_date",
    "timestamp without time zone": "localtimestamp",
    "timestamp with time zone": "now()",
    "time without time zone": "localtime",
    "time with time zone": "current_time",
    "interval": "'1 day'",
    "json": "'{}'",
    "jsonb": "'{}'",
    "uuid": "'00000000-0000-4000-8000-000000000000'",
    "inet": "'127.0.0.1'",
}
"""Constants outside of filters, by type. Arrays are empty."""

_RANDOM_TEXT = "md5(random()::text || clock_timestamp()::text)"
NEW_NUMBERS: Mapping[str, tuple[int, int]] = {
    "integer": (10**9, 2**31 - 1),
    "bigint": (10**15, 4 * 10**18),
    "numeric": (10**15, 4 * 10**18),
}
"""Ranges of new numbers, by type: above those of most sequences. Two of 10,000 new integers of 32 bits are
equal with a probability of 4%."""

NEW_VALUES: Mapping[str, str] = {
    "text": _RANDOM_TEXT,
    "character varying": _RANDOM_TEXT,
    "uuid": f"{_RANDOM_TEXT}::uuid",
    "timestamp without time zone": "clock_timestamp()",
    "timestamp with time zone": "clock_timestamp()",
}
"""Expressions for new values, by type, that every version of PostgreSQL has."""


@dataclass(frozen=True)
class Draw:
    """A parameter in a script: commands that set variables, and the SQL in the place of the parameter.

    ``variables`` are the names in ``sql``, each as ``:name``.
    """

    number: int
    type: str
    sql: str
    about: str
    commands: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """Facts about a statement besides its text. ``types``: by number of the parameter. ``copied``: as
    returned by ``parameter_uses``. ``prefix``: of its variables, so that those of a transaction differ.
    """

    uses: Sequence[Use]
    types: Mapping[int, str]
    tables: Tables
    rows_per_call: float
    copied: frozenset[ColumnName] = frozenset()
    prefix: str = "p"


def draw_all(statement: Statement) -> dict[int, Draw]:
    """Return a draw for each parameter, by its number. Raises Unusable."""
    return _Drawing(statement).all()


def with_values(text: str, uses: Iterable[Use], sql: Mapping[int, str]) -> str:
    """Return the statement with SQL in the places of its parameters, given by their numbers."""
    encoded = text.encode()
    parts, at = [], 0
    for use in uses:
        value = sql[use.number]
        parts += [encoded[at : use.start], (f"CAST({value} AS {use.cast})" if use.cast else value).encode()]
        at = use.end
    return b"".join([*parts, encoded[at:]]).decode()


_LAST = (Role.ASSIGNED, Role.RANGE_END)
"""Roles whose draws use those of others."""


@dataclass
class _Drawing:
    """The draws of one statement, so far."""

    statement: Statement
    draws: dict[int, Draw] = field(default_factory=dict)

    def all(self) -> dict[int, Draw]:
        chosen: dict[int, Use] = {}
        for use in self.statement.uses:
            # One value for all occurrences: that of the first one with a column.
            if use.number not in chosen or (chosen[use.number].column is None and use.column is not None):
                chosen[use.number] = use
        free = list(chosen.values())
        new = _with_new_values([use for use in free if use.role is Role.ASSIGNED], self.statement)
        for use in sorted(free, key=lambda use: use.role in _LAST):
            self.draws[use.number] = self._draw(use, free, new)
        return dict(sorted(self.draws.items()))

    def _draw(self, use: Use, uses: Sequence[Use], new: frozenset[ColumnName]) -> Draw:
        match use.role:
            case Role.ROW_COUNT:
                rows = str(max(1, math.ceil(self.statement.rows_per_call)))
                return self._made(use, rows, f"{rows}, the mean number of rows per call")
            case Role.FIXED:
                return self._made(use, use.fixed, f"the constant {use.fixed}")
            case Role.OFFSET:
                return self._made(use, "0", "0")
            case Role.CONSTANT:
                return self._neutral(use)
        assert use.column is not None
        table = self.statement.tables[use.column[0]]
        column = table.columns[use.column[1]]
        if column.is_always_null and use.role is Role.ASSIGNED:
            return self._made(use, "NULL", f"NULL, as every value of {table.source(column.name)}")
        if use.role is Role.ASSIGNED and use.column in new:
            same = [one.number for one in uses if (one.role, one.column) == (Role.VALUE, use.column)]
            if same and not use.is_inserted:
                return self._made(use, self.draws[same[0]].sql, f"the value of ${same[0]}")
            return self._new_value(use, table, column)
        if table.is_empty or column.is_always_null:
            return self._neutral(use)
        if use.role is Role.RANGE_END and (start := self.draws[use.start_number]).variables:
            return self._range_end(use, start, table, column)
        return self._sampled(use, table, column)

    def _made(
        self, use: Use, sql: str, about: str, commands: Sequence[str] = (), variables: Sequence[str] = ()
    ) -> Draw:
        type_ = self.statement.types.get(use.number, "")
        return Draw(use.number, type_, sql, about, tuple(commands), tuple(variables))

    def _neutral(self, use: Use) -> Draw:
        type_ = self.statement.types.get(use.number, "")
        value = "'{}'" if type_.endswith("[]") else NEUTRAL.get(type_)
        if value is None:
            raise Unusable(Reason.TYPE, f"${use.number}, {type_}")
        return self._made(use, f"{value}::{type_}", f"the constant {value}")

    def _sampled(self, use: Use, table: Table, column: Column) -> Draw:
        mode = "uniform" if table.is_unique(column.name) else table.mode(column.name)
        first = f"{self.statement.prefix}{use.number}"
        count = self._items(table, column) if use.role is Role.LIST else 1
        variables = [first, *(f"{first}_{number}" for number in range(2, count + 1))]
        commands = [f"\\sample {name} FROM {table.source(column.name)} {mode}" for name in variables]
        values = [f"{use.wrapper}(:{name})" if use.wrapper else f":{name}" for name in variables]
        sql, about = ", ".join(values), f"sampled from {table.source(column.name)}, {mode}"
        type_ = self.statement.types.get(use.number, "")
        if use.role is Role.LIST:
            about = f"{count} values, {about}"
            if type_.endswith("[]"):
                sql = f"ARRAY[{sql}]::{type_}"
        if use.role is Role.PATTERN:
            about = f"{about}, without wildcards"
        return self._made(use, sql, about, commands, variables)

    def _items(self, table: Table, column: Column) -> int:
        """Return the number of values of a list: the rows per call, if each value has one row."""
        rows = round(self.statement.rows_per_call) if table.is_unique(column.name) else 1
        return min(max(rows, 1), LIST_ITEMS_MAX)

    def _range_end(self, use: Use, start: Draw, table: Table, column: Column) -> Draw:
        value = f":{start.variables[0]}::{column.base_type}"
        width = (column.width or 0) * RANGE_SHARE
        about = f"${start.number} and 1% of the histogram of {table.source(column.name)}"
        if column.base_type in ("numeric", "real", "double precision"):
            return self._made(use, f"({value} + {width})", about)
        whole = max(1, math.ceil(width))
        if column.base_type in ("smallint", "integer", "bigint", "date"):
            return self._made(use, f"({value} + {whole})", about)
        if column.base_type.startswith("timestamp"):
            return self._made(use, f"({value} + interval '{whole} seconds')", about)
        return self._made(use, start.sql, f"the value of ${start.number}")

    def _new_value(self, use: Use, table: Table, column: Column) -> Draw:
        if column.has_default and use.is_item:
            return self._made(use, "DEFAULT", f"the default of {table.source(column.name)}")
        if column.base_type in NEW_NUMBERS:
            name = f"{self.statement.prefix}{use.number}"
            low, high = NEW_NUMBERS[column.base_type]
            command = f"\\set {name} random({low}, {high})"
            about = f"a new value for {table.source(column.name)}, random"
            return self._made(use, f":{name}", about, [command], [name])
        value = NEW_VALUES[column.base_type]
        if length := re.search(r"\((\d+)\)", column.type):
            value = f"left({value}, {length[1]})"
        return self._made(use, value, f"a new value for {table.source(column.name)}, random")


def _with_new_values(uses: Sequence[Use], statement: Statement) -> frozenset[ColumnName]:
    """Return the columns that need values without a row, so that a unique key is not violated.

    An INSERT with ON CONFLICT needs none. An UPDATE needs them for keys of one column. Raises Unusable.
    """
    found = set()
    for name, table in statement.tables.items():
        of_table = [use for use in uses if use.column is not None and use.column[0] == name]
        inserted = {
            use.column[1] for use in of_table if use.column and use.is_inserted and not use.on_conflict
        }
        updated = {use.column[1] for use in of_table if use.column and not use.is_inserted}
        items = {use.column[1] for use in of_table if use.column and use.is_item}
        copied = {column for of, column in statement.copied if of == name}
        for key in sorted(table.unique_keys):
            if set(key) <= inserted | copied or (len(key) == 1 and set(key) <= updated):
                found.add((name, _new_column(key, table, items, set(key) - copied)))
    return frozenset(found)


def _new_column(key: tuple[str, ...], table: Table, items: set[str], drawn: set[str]) -> str:
    """Return the column of a key that gets new values, one of those drawn. Raises Unusable if none can."""
    for name in key:
        if table.columns[name].has_default and name in items:
            return name
    for name in key:
        column = table.columns[name]
        is_plain = column.base_type in (column.type, "character varying")
        if (
            name in drawn
            and not column.in_foreign_key
            and is_plain
            and column.base_type in {*NEW_NUMBERS, *NEW_VALUES}
        ):
            return name
    raise Unusable(Reason.UNIQUE, f"{table.name} ({', '.join(key)})")
