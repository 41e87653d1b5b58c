"""Values of parameters: those of a log, and how scripts draw them.

- Values of parameters in a log: which are equal, and the ranges of numbers. They stay in memory.
- How scripts draw the value of each parameter: sampled from a column, new, or a neutral constant. Pure.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from pgdyno.features.statement_parameters.parse import (
    Column,
    ColumnName,
    Reason,
    Role,
    Table,
    Tables,
    Unusable,
    Use,
    nodes,
    parameter_locations,
    shape_of,
)
from pgdyno.workloads.pgbench.parameters import STUB

# ----------------------------------------------------------------------
# Values of parameters in a log: which are equal, and the ranges of numbers. They stay in memory.
# ----------------------------------------------------------------------

NULL = "\0"
"""The value NULL, which no text is."""

Value = str | None
"""The text of a value; None if the log does not have it."""

DISTINCT_MAX = 3
"""Number of different values that is counted at most."""

_PARAMETER = re.compile(r"\$(\d+) = (?:NULL|'((?:[^']|'')*)')")
_NUMBER = re.compile(r"[+-]?\d{1,12}(\.\d{1,6})?")
_INTERVAL = re.compile(
    r"([+-]?\d{1,9}(?:\.\d{1,6})?) ?(second|sec|minute|min|hour|day|week|month|mon|year)s?", re.IGNORECASE
)
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)")


@dataclass(frozen=True)
class LoggedStatement:
    """A statement that was executed: its shape, and the value at each place of a parameter."""

    shape: str
    values: tuple[Value, ...]


def logged_statement(text: str, detail: str) -> LoggedStatement | None:
    """Return the values of a statement, whose constants are in its text and whose parameters are in the
    detail of its entry; None if the text cannot be read.
    """
    sources = _sources(text)
    if sources is None:
        return None
    bound: dict[int, Value] = {}
    for found in _PARAMETER.finditer(detail):
        value = NULL if found[2] is None else found[2].replace("''", "'")
        is_cut = value.endswith("...")  # by log_parameter_max_length
        bound[int(found[1])] = None if is_cut else value
    shape, places = sources
    return LoggedStatement(shape, tuple(bound.get(one) if isinstance(one, int) else one for one in places))


@lru_cache(maxsize=10_000)
def _sources(text: str) -> tuple[str, tuple[str | int, ...]] | None:
    """Return the shape of a statement, and for each place of a parameter its constant or its number."""
    import pgparse  # noqa: PLC0415

    try:
        normalized = str(pgparse.normalize(text))
        before, after = pgparse.parse(text), pgparse.parse(normalized)
    except (pgparse.PGQueryError, RecursionError, ValueError, UnicodeError):
        return None
    numbers = parameter_locations(before)
    known: dict[int, str | int] = {**numbers}
    for constant in nodes(before, "A_Const"):
        known.setdefault(int(constant.get("location", 0)), _text_of(constant))
    places = _aligned(text.encode(), normalized.encode(), known, parameter_locations(after))
    return None if places is None else (shape_of(normalized), places)


def _aligned(
    text: bytes, normalized: bytes, known: Mapping[int, str | int], parameters: Mapping[int, int]
) -> tuple[str | int, ...] | None:
    """Return what the original text has at each parameter: both texts are equal in between."""
    found: list[str | int] = []
    starts = iter(sorted(known))
    end = 0
    for location, number in parameters.items():
        between = normalized[end:location]
        start = next((one for one in starts if text[:one].endswith(between)), None)
        if start is None:
            return None
        found.append(known[start])
        end = location + len(f"${number}")
    return tuple(found)


def _text_of(constant: Mapping[str, Any]) -> str:
    if constant.get("isnull"):
        return NULL
    for kind, of in (("sval", "sval"), ("fval", "fval"), ("bsval", "bsval")):
        if kind in constant:
            return str(constant[kind].get(of, ""))
    if "boolval" in constant:
        return "t" if constant["boolval"].get("boolval") else "f"
    return str(constant.get("ival", {}).get("ival", 0))  # 0 is omitted


@dataclass
class EqualValues:
    """The places of a transaction whose values were equal in each of its executions.

    ``groups`` has the number of a group for each place, ``distinct`` the first different values of a group.
    """

    executions: int = 0
    groups: list[int] = field(default_factory=list)
    distinct: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, values: Sequence[Value]) -> None:
        """Divide the groups by the values of one more execution."""
        before = self.groups or [0] * len(values)
        numbers: dict[tuple[int, object], int] = {}
        distinct: dict[int, set[str]] = {}
        groups = []
        for place, (group, value) in enumerate(zip(before, values, strict=True)):
            key = (group, ("unknown", place) if value is None else value)
            number = numbers.setdefault(key, len(numbers))
            groups.append(number)
            known = distinct.setdefault(number, set(self.distinct[group]))
            if value not in (None, NULL) and len(known) < DISTINCT_MAX:
                known.add(str(value))
        self.executions += 1
        self.groups, self.distinct = groups, defaultdict(set, distinct)


@dataclass
class LoggedRange:
    """Smallest and largest value of a number, or of an interval in units (``day``)."""

    low: float = math.inf
    high: float = -math.inf
    unit: str | None = None
    is_usable: bool = True

    def add(self, value: Value) -> None:
        """Include a value. One that is no number makes the range unusable."""
        measured = _measured(value) if self.is_usable else None
        if measured is None or self.unit not in (None, measured[1]):
            self.is_usable = False
            return
        self.unit = measured[1]
        self.low, self.high = min(self.low, measured[0]), max(self.high, measured[0])

    def rounded(self) -> tuple[float, float] | None:
        """Return the limits rounded outward to two digits; None if unusable."""
        if not self.is_usable or self.unit is None:
            return None
        return _two_digits(self.low, math.floor), _two_digits(self.high, math.ceil)


def _measured(value: Value) -> tuple[float, str] | None:
    if value is None:
        return None
    if _NUMBER.fullmatch(value):
        return float(value), ""
    if found := _INTERVAL.fullmatch(value):
        unit = {"sec": "second", "min": "minute", "mon": "month"}.get(found[2].lower(), found[2].lower())
        return float(found[1]), unit
    if found := _CLOCK.fullmatch(value):
        return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]), "second"
    return None


def _two_digits(value: float, direction: Any) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    if step <= 1 and value == round(value):
        return value
    return float(round(direction(round(value / step, 9)) * step, 9))


# ----------------------------------------------------------------------
# How scripts draw the value of each parameter: sampled from a column, new, or a neutral constant. Pure.
#
# No value of a row is written: \sample reads the values from the data that are measured. A value that nothing
# shows is a stub, which the user edits.
# ----------------------------------------------------------------------

LIST_ITEMS_MAX = 100
"""Maximum number of values of a list."""

RANGE_SHARE = 0.01
"""Width of a range, as a share of the column's histogram: statistics do not have that of the workload."""

NEUTRAL: Mapping[str, str] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric", "real", "double precision", "oid"), "1"),
    **dict.fromkeys(("text", "character varying", "bpchar", "name", '"char"', "bytea", "xml"), "'a'"),
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

NUMBERS = frozenset(("smallint", "integer", "bigint", "numeric", "real", "double precision"))
TEXTS = frozenset(("text", "character varying", "character", "bpchar", "name"))

STUB_RANGE = (1, 30)
"""Range of numbers, or of days, in a stub."""

DECIMALS = 6
"""Digits after the point of drawn numbers with fractions, as many as are read."""

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

    ``variables`` are the names in ``sql``, each as ``:name``. ``is_new``: it must be in no row. ``is_stub``:
    the user has to edit it.
    """

    number: int
    type: str
    sql: str
    about: str
    commands: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    role: Role = Role.CONSTANT
    column: ColumnName | None = None
    is_new: bool = False
    is_stub: bool = False


@dataclass
class Statement:
    """Facts about a statement besides its text. ``types``: by number of the parameter. ``copied``: as
    returned by ``parameter_uses``. ``prefix``: of its variables, so that those of a transaction differ.
    ``ranges``: of numbers and intervals in a log, by number. ``equal``: draws that others repeat, by number.
    """

    uses: Sequence[Use]
    types: Mapping[int, str]
    tables: Tables
    rows_per_call: float
    copied: frozenset[ColumnName] = frozenset()
    prefix: str = "p"
    ranges: Mapping[int, LoggedRange] = field(default_factory=dict)
    equal: Mapping[int, Draw] = field(default_factory=dict)
    draws: dict[int, Draw] = field(default_factory=dict, init=False)

    def type_of(self, use: Use) -> str:
        """Return the type of a parameter as casts name it; empty if it is not known."""
        # A cast to character cuts the value to one character.
        return re.sub(r"^character(?=$|\[)", "bpchar", self.types.get(use.number, ""))

    def draw_all(self) -> dict[int, Draw]:
        """Return a draw for each parameter, by its number. Raises Unusable."""
        chosen: dict[int, Use] = {}
        for use in self.uses:
            # One value for all occurrences: that of the first one with a column.
            if use.number not in chosen or (chosen[use.number].column is None and use.column is not None):
                chosen[use.number] = use
        free = list(chosen.values())
        new = self._with_new_values([use for use in free if use.role is Role.ASSIGNED])
        for use in sorted(free, key=lambda use: use.role in _LAST):
            self.draws[use.number] = self._draw(use, free, new)
        return dict(sorted(self.draws.items()))

    def _with_new_values(self, uses: Sequence[Use]) -> frozenset[ColumnName]:
        """Return the columns that need values without a row, so that a unique key is not violated.

        An INSERT with ON CONFLICT needs none. An UPDATE needs them for keys of one column. Raises Unusable.
        """
        found = set()
        for name, table in self.tables.items():
            of_table = [(use.column[1], use) for use in uses if use.column and use.column[0] == name]
            inserted = {column for column, use in of_table if use.is_inserted and not use.on_conflict}
            updated = {column for column, use in of_table if not use.is_inserted}
            items = {column for column, use in of_table if use.is_item}
            copied = {column for of, column in self.copied if of == name}
            for key in sorted(table.unique_keys):
                if set(key) <= inserted | copied or (len(key) == 1 and set(key) <= updated):
                    found.add((name, _new_column(key, table, items, set(key) - copied)))
        return frozenset(found)

    def _draw(self, use: Use, uses: Sequence[Use], new: frozenset[ColumnName]) -> Draw:
        if (source := self.equal.get(use.number)) is not None:
            return self._repeated(use, source)
        match use.role:
            case Role.ROW_COUNT:
                rows = str(max(1, math.ceil(self.rows_per_call)))
                return self._made(use, rows, f"{rows}, the mean number of rows per call")
            case Role.FIXED:
                return self._made(use, use.fixed, f"the constant {use.fixed}")
            case Role.OFFSET:
                return self._made(use, "0", "0")
            case Role.CONSTANT:
                return self._neutral(use)
            case Role.ARGUMENT:
                return self._argument(use)
        assert use.column is not None
        table = self.tables[use.column[0]]
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
        type_ = self.type_of(use)
        return Draw(use.number, type_, sql, about, tuple(commands), tuple(variables), use.role, use.column)

    def _neutral(self, use: Use) -> Draw:
        type_ = self.type_of(use)
        value = "'{}'" if type_.endswith("[]") else NEUTRAL.get(type_)
        if value is None:
            return self._stub(use)
        return self._made(use, f"{value}::{type_}", f"the constant {value}")

    def _argument(self, use: Use) -> Draw:
        """Return a value of the range in the log, or a stub."""
        known = self.ranges.get(use.number)
        limits = None if known is None else known.rounded()
        type_ = self.type_of(use)
        if known is None or limits is None:
            return self._stub(use)
        if type_ != "interval" if known.unit else type_ not in NUMBERS:
            return self._stub(use)
        low, high = limits
        value = words = _plain(low)
        commands, variables = [], []
        if low < high:
            scale = 1 if low == round(low) and high == round(high) else 10**DECIMALS
            name = f"{self.prefix}{use.number}"
            commands, variables = [f"\\set {name} random({low * scale:.0f}, {high * scale:.0f})"], [name]
            value = f":{name}" if scale == 1 else f"(:{name} / {scale}.0)"
            words = f"{words} to {_plain(high)}"
        sql = f"({value} * interval '1 {known.unit}')" if known.unit else f"{value}::{type_}"
        about = f"{words} {known.unit}".rstrip() + f", from the log, {use.place}"
        return self._made(use, sql, about, commands, variables)

    def _stub(self, use: Use) -> Draw:
        """Return a value that only the user knows, with a mark above it."""
        type_ = self.type_of(use)
        name = f"{self.prefix}{use.number}"
        edit, commands, variables = f"'stub_{name}' in the statement", [], []
        if type_ in NUMBERS or (type_ == "interval" and use.place != "operand of *"):
            sql = f":{name}::{type_}" if type_ in NUMBERS else f"(:{name} * interval '1 day')"
            edit = f"the range of {name}" + ("" if type_ in NUMBERS else ", in days,")
            commands, variables = [f"\\set {name} random({STUB_RANGE[0]}, {STUB_RANGE[1]})"], [name]
        elif type_ in NEUTRAL and type_ not in TEXTS:
            sql = f"{NEUTRAL[type_]}::{type_}"
            edit = f"{NEUTRAL[type_]} in the statement"
        else:  # the value is not read before the script runs: a name need not exist yet
            sql = f"'stub_{name}'::text" + ("" if type_ == "text" else f"::{type_}")
        place = f", {use.place}" if use.place else ""
        mark = f"{STUB} ${use.number} {type_}{place}: edit {edit}, then delete this line"
        made = self._made(use, sql, f"a stub{place}", [mark, *commands], variables)
        return replace(made, is_stub=True)

    def _repeated(self, use: Use, source: Draw) -> Draw:
        about = f"the value of :{source.variables[0]}: equal in the log"
        if use.role is Role.LIST:
            return self._made(use, source.sql, about, (), source.variables)
        # The variable of an argument may be a multiple of the value, or its number without the unit.
        value = source.sql if source.role is Role.ARGUMENT else f":{source.variables[0]}"
        if use.role in (Role.CONSTANT, Role.ARGUMENT) or "::" in source.sql:
            value = f"({value})::{self.type_of(use)}"
        sql = f"{use.wrapper}({value})" if use.wrapper else value
        return self._made(use, sql, about, (), source.variables[:1])

    def _sampled(self, use: Use, table: Table, column: Column) -> Draw:
        mode = "uniform" if table.is_unique(column.name) else table.mode(column.name)
        first = f"{self.prefix}{use.number}"
        count = self._items(table, column) if use.role is Role.LIST else 1
        variables = [first, *(f"{first}_{number}" for number in range(2, count + 1))]
        commands = [f"\\sample {name} FROM {table.source(column.name)} {mode}" for name in variables]
        type_ = self.type_of(use)
        item = type_.removesuffix("[]") if use.role is Role.LIST else type_
        # In the simple protocol a sampled number has no quotes, so that it would not become a text.
        is_cast = item and item not in NUMBERS and column.base_type not in (item, *TEXTS)
        values = [f"(:{name})::{item}" if is_cast else f":{name}" for name in variables]
        if use.wrapper:
            values = [f"{use.wrapper}({value})" for value in values]
        sql, about = ", ".join(values), f"sampled from {table.source(column.name)}, {mode}"
        if use.role is Role.LIST:
            about = f"{count} values, {about}"
            if type_.endswith("[]"):
                sql = f"ARRAY[{sql}]::{type_}"
        if use.role is Role.PATTERN:
            about = f"{about}, without wildcards"
        return self._made(use, sql, about, commands, variables)

    def _items(self, table: Table, column: Column) -> int:
        """Return the number of values of a list: the rows per call, if each value has one row."""
        rows = round(self.rows_per_call) if table.is_unique(column.name) else 1
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
        about = f"a new value for {table.source(column.name)}, random"
        if column.base_type in NEW_NUMBERS:
            name = f"{self.prefix}{use.number}"
            low, high = NEW_NUMBERS[column.base_type]
            command = f"\\set {name} random({low}, {high})"
            return replace(self._made(use, f":{name}", about, [command], [name]), is_new=True)
        value = NEW_VALUES[column.base_type]
        if length := re.search(r"\((\d+)\)", column.type):
            value = f"left({value}, {length[1]})"
        return replace(self._made(use, value, about), is_new=True)


Place = tuple[int, int]
"""A parameter of a transaction: the place of its statement, and its number."""


class EqualPlaces(NamedTuple):
    """Parameters with equal values. ``is_varied``: they had so many different values that those of different
    columns are not equal by chance.
    """

    places: tuple[Place, ...]
    is_varied: bool


def repeated_draws(draws: Sequence[Mapping[int, Draw]], equal: Iterable[EqualPlaces]) -> dict[Place, Draw]:
    """Return the parameters of a transaction that repeat the draw of another one, with that draw.

    A new value is repeated first, then a value that is searched.
    """
    found: dict[Place, Draw] = {}
    sources: set[Place] = set()
    for places, is_varied in equal:
        known = sorted({place for place in places if place[1] in draws[place[0]]})
        ordered = sorted(known, key=lambda place: _precedence(draws[place[0]][place[1]]))
        for first in ordered:
            source = draws[first[0]][first[1]]
            if first in found or not source.variables or source.role is Role.RANGE_END:
                continue
            for place in ordered:
                draw = draws[place[0]][place[1]]
                is_free = place != first and place not in found and place not in sources
                if is_free and _can_repeat(draw, source, is_varied):
                    found[place] = source
                    sources.add(first)
    return found


def _precedence(draw: Draw) -> tuple[bool, bool, bool]:
    return not draw.is_new, draw.column is None, draw.role is not Role.VALUE


_REPEATING = frozenset((Role.VALUE, Role.BOUND, Role.PATTERN, Role.ASSIGNED, Role.CONSTANT, Role.ARGUMENT))


def _can_repeat(draw: Draw, source: Draw, is_varied: bool) -> bool:
    if not is_varied and (draw.column is None or draw.column != source.column):
        return False
    if draw.is_new or draw.sql in ("DEFAULT", "NULL"):
        return False
    if Role.LIST in (draw.role, source.role):
        return (draw.role, draw.type, draw.column) == (source.role, source.type, source.column)
    return draw.role in _REPEATING and _family(draw.type) == _family(source.type)


def _family(type_: str) -> str:
    return "number" if type_ in NUMBERS else "text" if type_ in TEXTS else type_


_JOINING = re.compile(rb"([-:]|[~!@#%^&|`?][+*/<>=]*)\Z")
"""Ends of SQL before a value: a minus sign would continue an operator, or begin a comment, and a colon would
continue a cast.
"""


def with_values(text: str, uses: Iterable[Use], sql: Mapping[int, str]) -> str:
    """Return the statement with SQL in the places of its parameters, given by their numbers."""
    encoded = text.encode()
    parts, at = [], 0
    for use in uses:
        value = f"CAST({sql[use.number]} AS {use.cast})" if use.cast else sql[use.number]
        before = encoded[at : use.start]
        parts += [before, b" " if _JOINING.search(before) else b"", value.encode()]
        at = use.end
    return b"".join([*parts, encoded[at:]]).decode()


_LAST = (Role.ASSIGNED, Role.RANGE_END)
"""Roles whose draws use those of others."""


def _plain(number: float) -> str:
    return f"{number:.{DECIMALS}f}".rstrip("0").rstrip(".")


def _new_column(key: tuple[str, ...], table: Table, items: set[str], drawn: set[str]) -> str:
    """Return the column of a key that gets new values, one of those drawn. Raises Unusable if none can."""
    for name in key:
        if table.columns[name].has_default and name in items:
            return name
    for name in key:
        column = table.columns[name]
        is_plain = column.base_type in (column.type, "character varying")
        is_known = column.base_type in {*NEW_NUMBERS, *NEW_VALUES}
        if name in drawn and not column.in_foreign_key and is_plain and is_known:
            return name
    raise Unusable(Reason.UNIQUE, f"{table.name} ({', '.join(key)})")
