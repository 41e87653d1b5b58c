"""Statements of a database, parsed by PostgreSQL's own parser: parameters, columns, tables.

- Statements of pg_stat_statements, parsed by PostgreSQL's own parser (libpg_query).
- Names that are visible in a part of a statement, and the column of a table behind each of them.
- Parameters of a statement: their roles, and the operands that are parameters. Pure.
- Tables and columns that statements name, with the statistics that decide how values are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

# ----------------------------------------------------------------------
# Statements of pg_stat_statements, parsed by PostgreSQL's own parser (libpg_query).
#
# A parse tree is JSON: a node is an object with one key, its tag, and positions are bytes of the UTF-8 text.
# ----------------------------------------------------------------------

Node = Mapping[str, Any]
TableName = tuple[str, str]
"""Schema, empty if the statement has none, and table."""

KINDS: Mapping[str, str] = {
    "SelectStmt": "select",
    "InsertStmt": "insert",
    "UpdateStmt": "update",
    "DeleteStmt": "delete",
    "MergeStmt": "merge",
}
"""Statements that a script can have, by the tag of their node."""

TEXT_BYTES_MAX = 100_000
"""Maximum size of a statement. Longer ones are lists of thousands of constants."""

_COMMENT = re.compile(
    r"""(?P<kept>"[^"]*"|'[^']*'|/\*\+.*?\*/|/\*, \.\.\. \*/)|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
"""Comments, and what is kept. Of a nested comment a part stays, which the parser then rejects."""


class Reason(StrEnum):
    """Why no script was made of a statement."""

    HIDDEN = "the text is hidden from this role: GRANT pg_read_all_stats"
    NO_TEXT = "pg_stat_statements has no text"
    TOO_LONG = "the text is longer than 100 kB"
    NOT_PARSED = "the parser rejects the text"
    TRANSACTION = "transaction control"
    UTILITY = "utility statement"
    SYSTEM = "uses system catalogs or functions"
    NOT_PREPARED = "the server rejects the statement"
    ONE_OFF = "one-off statement"
    PLACE = "the place of a parameter is not supported"
    REFERENCED = "deletes rows that a foreign key may reference"
    NAME = "a name has a control character"
    UNIQUE = "new values for a unique key are not known"
    BEYOND = "beyond --limit or --share"


class Unusable(Exception):
    """No script can be made of a statement. ``detail`` has no value of a row."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class ParsedStatement:
    """A statement without constants: ``text`` has $1, $2, … instead."""

    text: str
    tag: str
    body: Node
    tables: tuple[TableName, ...]  # in the order of the text; some are names of WITH queries

    @property
    def kind(self) -> str:
        """The kind: select, insert, update, delete or merge."""
        return KINDS[self.tag]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each occurrence of a parameter, in the order of the text."""
        return tuple(parameter_locations(self.body).values())

    @property
    def shape(self) -> str:
        """The text without numbers of parameters, comments and spelling: equal if places are equal."""
        return shape_of(self.text)


def parse_statement(text: str) -> ParsedStatement:
    """Return the parsed statement, its constants replaced by parameters. Raises Unusable."""
    import pgparse  # noqa: PLC0415  # a library of 11 MB that one command needs

    if len(text.encode()) > TEXT_BYTES_MAX:
        raise Unusable(Reason.TOO_LONG)
    try:
        _require_one(pgparse.parse(text))
        # pg_stat_statements keeps constants if the entry was evicted while the statement ran.
        normalized = _without_comments(str(pgparse.normalize(text))).strip().rstrip(";").rstrip()
        tag, body = _require_one(pgparse.parse(normalized))
    except pgparse.PGQueryError as error:
        raise Unusable(Reason.NOT_PARSED, _without_quotes(str(error))) from None
    except (RecursionError, ValueError, UnicodeError):
        raise Unusable(Reason.NOT_PARSED, "it is nested too deeply") from None
    return ParsedStatement(normalized, tag, body, tuple(dict.fromkeys(_tables(body))))


def _without_comments(text: str) -> str:
    """Return a text without comments, which can contain values; hints and shortened lists stay."""
    return _COMMENT.sub(lambda found: found[0] if found["kept"] else " ", text)


def _require_one(statements: Sequence[Node]) -> tuple[str, Node]:
    """Return tag and content of the only statement. Raises Unusable if a script cannot have it."""
    if len(statements) != 1:
        raise Unusable(Reason.NOT_PARSED, f"it has {len(statements)} statements")
    tag, body = parts(statements[0]["stmt"])
    if tag == "TransactionStmt":
        raise Unusable(Reason.TRANSACTION)
    if tag not in KINDS or "intoClause" in body:
        words = re.findall("[A-Z][a-z]*", tag.removesuffix("Stmt"))
        raise Unusable(Reason.UTILITY, "SELECT INTO" if tag in KINDS else " ".join(words).upper())
    return tag, body


def shape_of(normalized: str) -> str:
    """Return the shape of a statement whose constants are parameters."""
    words = re.findall(r"\w+|[^\w\s]", _without_comments(normalized).lower().strip().rstrip(";"))
    return re.sub(r"\$ \d+", "$", " ".join(words))


def fingerprint(text: str) -> str:
    """Return a value that is equal for statements that differ in constants only; empty if not parsed."""
    import pgparse  # noqa: PLC0415

    try:
        return str(pgparse.fingerprint(text))
    except (pgparse.PGQueryError, ValueError, UnicodeError):
        return ""


def is_begin_or_commit(text: str) -> bool:
    """True if a statement begins or commits a transaction."""
    import pgparse  # noqa: PLC0415

    try:
        kinds = {one["stmt"].get("TransactionStmt", {}).get("kind", "") for one in pgparse.parse(text)}
    except (pgparse.PGQueryError, RecursionError, ValueError, UnicodeError):
        return False
    return bool(kinds) and kinds <= {"TRANS_STMT_BEGIN", "TRANS_STMT_START", "TRANS_STMT_COMMIT"}


def parts(node: Node) -> tuple[str, Any]:
    """Return tag and content of a node; an empty tag if it is none."""
    if len(node) != 1:
        return "", {}
    return next(iter(node.items()))


def names(strings: object) -> list[str]:
    """Return the values of a list of String nodes; * is an empty one."""
    if not isinstance(strings, list):
        return []
    return [str(one.get("String", {}).get("sval", "")) for one in strings]


def parameter_numbers(body: object) -> set[int]:
    """Return the numbers of all parameters below a node."""
    return {int(one["number"]) for one in nodes(body, "ParamRef") if "number" in one}


def parameter_locations(tree: object) -> dict[int, int]:
    """Return the number of the parameter at each position, in bytes, by position."""
    found = {int(one.get("location", 0)): int(one.get("number", 0)) for one in nodes(tree, "ParamRef")}
    return dict(sorted(found.items()))


def _tables(body: Node) -> Iterator[TableName]:
    found = [*nodes(body, "RangeVar")]
    found += nodes(body, "relation")  # the target of INSERT, UPDATE, DELETE and MERGE has no tag
    for one in sorted(found, key=lambda one: int(one.get("location", 0))):
        yield table_of(one)


def table_of(range_variable: Node) -> TableName:
    """Return the name of a table in FROM, or of a target."""
    return str(range_variable.get("schemaname", "")), str(range_variable.get("relname", ""))


def nodes(node: object, key: str) -> Iterator[Any]:
    """Yield all values of a key, at any depth."""
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            for name, value in one.items():
                if name == key:
                    yield value
                pending.append(value)
        elif isinstance(one, list):
            pending.extend(one)


def _without_quotes(message: str) -> str:
    """Return a parser's message without the text that it quotes, which may be a constant."""
    return message.partition(" at or near ")[0]


# ----------------------------------------------------------------------
# Names that are visible in a part of a statement, and the column of a table behind each of them.
# ----------------------------------------------------------------------

ColumnName = tuple[TableName, str]
"""A column of a table that the statement names."""


@dataclass(frozen=True)
class Source:
    """Columns of a table, a subquery or a WITH query, each with its column of a table, if it is one."""

    columns: Mapping[str, ColumnName | None] = field(default_factory=dict)

    def renamed(self, given: Sequence[str]) -> Source:
        """Return the source with other names for its first columns, as in ``AS t (a, b)``."""
        if not given:
            return self
        old = list(self.columns.items())
        new = [*given[: len(old)], *(name for name, _ in old[len(given) :])]
        return Source({name: column for name, (_, column) in zip(new, old, strict=True)})


@dataclass
class Scopes:
    """The names of a query and of the queries around it. ``common`` are WITH queries."""

    outer: Scopes | None = None
    common: dict[str, Source] = field(default_factory=dict)
    sources: list[tuple[str, Source]] = field(default_factory=list)

    def nested(self) -> Scopes:
        """Return the scopes of a query inside this one."""
        return Scopes(self)

    def add(self, alias: str, source: Source) -> None:
        """Make a source visible. An alias can be empty."""
        self.sources.append((alias, source))

    def query(self, name: str) -> Source | None:
        """Return the WITH query of that name; None without one."""
        if name in self.common:
            return self.common[name]
        return None if self.outer is None else self.outer.query(name)

    def all_columns(self, alias: str) -> dict[str, ColumnName | None]:
        """Return what ``*`` or ``alias.*`` stands for."""
        chosen = [source for name, source in self.sources if alias in ("", name)]
        return {name: column for source in chosen for name, column in source.columns.items()}

    def column(self, fields: Sequence[str]) -> ColumnName | None:
        """Return the column of a table that a reference names; None if it is none, or ambiguous."""
        name = fields[-1]
        if len(fields) > 1:
            found = [source for alias, source in self.sources if alias == fields[-2]]
        else:
            found = [source for _, source in self.sources if name in source.columns]
        if found:
            columns = {source.columns.get(name) for source in found}
            # In a join with USING both columns have the name, and either has the values.
            return next(iter(columns - {None}), None)
        return None if self.outer is None else self.outer.column(fields)


# ----------------------------------------------------------------------
# Parameters of a statement: their roles, and the operands that are parameters. Pure.
# ----------------------------------------------------------------------


class Role(StrEnum):
    """Role of a parameter in its statement."""

    VALUE = "value"  # compared for equality
    BOUND = "bound"  # compared by order
    RANGE_END = "range end"  # the upper bound of a column that has a lower one, too
    PATTERN = "pattern"
    LIST = "list"
    ASSIGNED = "assigned"
    ROW_COUNT = "row count"
    OFFSET = "offset"
    FIXED = "fixed"  # an argument with one sensible value: fields, formats, lengths
    CONSTANT = "constant"  # outside of filters
    ARGUMENT = "argument"  # of a function, or an operand of a filter without a column


@dataclass(frozen=True)
class Use:
    """One occurrence of a parameter, at these bytes of the text.

    ``wrapper``: function around the column, which the value needs, too. ``cast``: type name in front of it.
    ``is_item``: an item of VALUES, which can be DEFAULT. ``start_number``: the lower bound of a range.
    """

    number: int
    start: int
    end: int
    role: Role
    column: ColumnName | None = None
    wrapper: str = ""
    cast: str = ""
    fixed: str = ""  # the value of Role.FIXED
    place: str = ""  # of Role.ARGUMENT
    is_item: bool = False
    is_inserted: bool = False
    on_conflict: bool = False
    start_number: int = 0
    group: int = 0
    order: str = ""


FIXED: Mapping[tuple[str, int], str] = {
    **dict.fromkeys((("extract", 0), ("date_part", 0), ("date_trunc", 0)), "'day'"),
    ("to_char", 1): "'YYYY-MM-DD'",
    **dict.fromkeys((("substring", 1), ("substring", 2), ("substr", 1), ("substr", 2)), "1"),
    **dict.fromkeys((("left", 1), ("right", 1), ("lpad", 1), ("rpad", 1), ("round", 1), ("trunc", 1)), "1"),
}
"""Arguments of functions that name a field, a format or a length, and their value in scripts. Without a value
the server could not know their type."""

# fmt: off
WITHOUT_EFFECT = frozenset((
    "abs", "array_agg", "avg", "bool_and", "bool_or", "btrim", "ceil", "char_length", "concat",
    "concat_ws", "count", "date_part", "date_trunc", "dense_rank", "extract", "first_value", "floor",
    "format", "json_agg", "json_build_object", "jsonb_agg", "jsonb_build_object", "lag", "last_value",
    "lead", "left", "length", "lower", "lpad", "ltrim", "max", "min", "mod", "nth_value", "ntile",
    "power", "rank", "replace", "right", "round", "row_number", "rpad", "rtrim",
    "split_part", "string_agg", "substr", "substring", "sum", "to_char", "to_json", "to_jsonb",
    "translate", "trim", "trunc", "upper",
))
# fmt: on
"""Built-in functions whose cost depends little on constant arguments, outside of filters."""

WRAPPERS = frozenset(("lower", "upper", "btrim"))
"""Functions around a column whose value needs the same function."""


def parameter_of(node: Any, text: bytes) -> Use | None:
    """Return the parameter that an operand is, within casts, COLLATE, lower and the like; else None."""
    tag, body = parts(node) if isinstance(node, dict) else ("", {})
    if tag == "ParamRef" and "number" in body:
        start = int(body["location"])
        end = start + len(f"${body['number']}")
        return Use(int(body["number"]), start, end, Role.CONSTANT)
    if tag == "TypeCast":
        found = parameter_of(body["arg"], text)
        start = int(body["typeName"].get("location", -1))
        if found is not None and 0 <= start < found.start:  # interval $1, which servers do not accept
            name = text[start : found.start].decode(errors="replace").strip()
            return replace(found, start=start, cast=name)
        return found
    if tag == "CollateClause":
        return parameter_of(body["arg"], text)
    if tag == "FuncCall" and len(body.get("args", ())) == 1 and names(body["funcname"])[-1] in WRAPPERS:
        found = parameter_of(body["args"][0], text)
        return replace(found, wrapper="-") if found else None
    return None


# ----------------------------------------------------------------------
# Tables and columns that statements name, with the statistics that decide how values are drawn.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column. Statistics are those of pg_stats: None without ANALYZE, or without access to the table.

    ``width``: largest minus smallest bound of the histogram, in units of the type, days or seconds.
    """

    name: str
    quoted: str
    type: str  # with modifiers
    base_type: str
    has_default: bool
    in_foreign_key: bool
    null_fraction: float | None
    has_common_values: bool | None
    width: float | None

    @property
    def is_always_null(self) -> bool:
        """True if ANALYZE found nothing but NULL."""
        return self.null_fraction == 1


@dataclass(frozen=True)
class Table:
    """A table. ``name`` is SQL: schema-qualified, and quoted where needed. ``unique_keys`` are those of the
    table and of its partitions. ``is_referenced``: a foreign key forbids to delete referenced rows."""

    name: str
    is_system: bool
    is_empty: bool
    is_referenced: bool
    columns: Mapping[str, Column]
    unique_keys: frozenset[tuple[str, ...]]

    def is_unique(self, column: str) -> bool:
        """True if a unique index has this column alone."""
        return (column,) in self.unique_keys

    def source(self, column: str) -> str:
        """Return the column as \\sample takes it."""
        return f"{self.name}.{self.columns[column].quoted}"

    def mode(self, column: str) -> Literal["uniform", "frequency"]:
        """Return how values are drawn: by frequency if some are more common than others."""
        return "frequency" if self.columns[column].has_common_values else "uniform"


Tables = Mapping[TableName, Table]
"""The tables that statements name, by their name there."""
