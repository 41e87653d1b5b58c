"""Statements of a database, parsed by PostgreSQL's own parser: parameters, columns, tables.

- Statements of pg_stat_statements, parsed by PostgreSQL's own parser (libpg_query).
- Names that are visible in a part of a statement, and the column of a table behind each of them.
- Tables and columns that statements name, with the statistics that decide how values are drawn.
- Parameters of a statement: their roles, and the column that each is compared with or assigned to. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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


def is_transaction_control(text: str, kinds: Collection[str]) -> bool:
    """True if a text only controls a transaction, by statements of these kinds, for example BEGIN."""
    import pgparse  # noqa: PLC0415

    try:
        found = {one["stmt"].get("TransactionStmt", {}).get("kind", "") for one in pgparse.parse(text)}
    except (pgparse.PGQueryError, RecursionError, ValueError, UnicodeError):
        return False
    return bool(found) and found <= {f"TRANS_STMT_{kind}" for kind in kinds}


_MODES: Mapping[str, tuple[str, str]] = {
    "transaction_read_only": ("READ WRITE", "READ ONLY"),
    "transaction_deferrable": ("NOT DEFERRABLE", "DEFERRABLE"),
}
"""Modes of a transaction that are off or on."""


def transaction_modes(text: str) -> str:
    """Return the modes that a BEGIN sets, such as ``ISOLATION LEVEL SERIALIZABLE``; empty without any."""
    import pgparse  # noqa: PLC0415

    found = []
    for one in nodes(pgparse.parse(text), "DefElem"):
        value = one["arg"]["A_Const"]
        if "sval" in value:
            found.append(f"ISOLATION LEVEL {value['sval']['sval'].upper()}")
        else:
            found.append(_MODES[one["defname"]][value.get("ival", {}).get("ival", 0)])
    return " ".join(sorted(found))


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


Columns = Mapping[str, ColumnName | None]
"""Columns of a table, a subquery or a WITH query, each with its column of a table, if it is one."""


def _renamed(columns: Columns, given: Sequence[str]) -> Columns:
    """Return the columns with other names for the first ones, as in ``AS t (a, b)``."""
    new = [*given[: len(columns)], *list(columns)[len(given) :]]
    return dict(zip(new, columns.values(), strict=True))


@dataclass
class Scopes:
    """The names of a query and of the queries around it. ``common`` are WITH queries."""

    outer: Scopes | None = None
    common: dict[str, Columns] = field(default_factory=dict)
    sources: list[tuple[str, Columns]] = field(default_factory=list)
    """Aliases, which can be empty, with their columns."""

    def query(self, name: str) -> Columns | None:
        """Return the WITH query of that name; None without one."""
        if name in self.common:
            return self.common[name]
        return None if self.outer is None else self.outer.query(name)

    def all_columns(self, alias: str) -> dict[str, ColumnName | None]:
        """Return what ``*`` or ``alias.*`` stands for."""
        chosen = [columns for name, columns in self.sources if alias in ("", name)]
        return {name: column for columns in chosen for name, column in columns.items()}

    def column(self, fields: Sequence[str]) -> ColumnName | None:
        """Return the column of a table that a reference names; None if it is none, or ambiguous."""
        name = fields[-1]
        if len(fields) > 1:
            found = [columns for alias, columns in self.sources if alias == fields[-2]]
        else:
            found = [columns for _, columns in self.sources if name in columns]
        if found:
            # In a join with USING both columns have the name, and either has the values.
            return next(filter(None, (columns.get(name) for columns in found)), None)
        return None if self.outer is None else self.outer.column(fields)


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
    null_fraction: float | None = None
    has_common_values: bool | None = None
    width: float | None = None

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


# ----------------------------------------------------------------------
# Parameters of a statement: their roles, and the column that each is compared with or assigned to. Pure.
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


_EQUAL, _LOWER, _UPPER = frozenset(("=", "<>", "!=")), frozenset((">", ">=")), frozenset(("<", "<="))
_REVERSED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


@dataclass(frozen=True)
class _Place:
    """Context of an expression. ``argument``: what a parameter without a column is there; empty where any
    constant has the same effect.
    """

    argument: str = ""
    group: int = 0
    """The AND that the expression is a part of."""


_OUTPUT = _Place()
_FILTER = _Place("part of a filter")


def parameter_uses(statement: ParsedStatement, tables: Tables) -> tuple[list[Use], frozenset[ColumnName]]:
    """Return every occurrence of every parameter, in the order of the text, and the columns into which an
    INSERT without ON CONFLICT copies columns of a query. Raises Unusable.
    """
    walk = _Walk(statement.text.encode(), tables)
    walk.statement(statement.tag, statement.body, Scopes())
    by_place = {(use.start, use.number): use for use in walk.uses}
    found = _with_ranges(sorted(by_place.values(), key=lambda use: use.start))
    if missing := {*statement.numbers} - {0, *(use.number for use in found)}:
        raise Unusable(Reason.PLACE, f"${min(missing)}")
    return found, frozenset(walk.copied)


def _with_ranges(uses: Sequence[Use]) -> list[Use]:
    """Return the uses; an upper bound of a column with a lower bound beside it becomes the end of a range."""
    lower = {(use.group, use.column): use.number for use in uses if use.order in _LOWER and use.group}
    return [
        replace(use, role=Role.RANGE_END, start_number=lower[use.group, use.column])
        if use.order in _UPPER and (use.group, use.column) in lower
        else use
        for use in uses
    ]


def _copied(query: Node, targets: Sequence[ColumnName | None]) -> set[ColumnName]:
    outputs = [output["ResTarget"].get("val", {}) for output in query.get("targetList", ())]
    pairs = zip(outputs, targets, strict=False)
    return {target for output, target in pairs if target is not None and "ColumnRef" in output}


class _Walk:
    """One pass over the tree. ``uses`` and ``copied`` are the result."""

    def __init__(self, text: bytes, tables: Tables) -> None:
        self.uses: list[Use] = []
        self.copied: set[ColumnName] = set()
        self._text, self._tables = text, tables
        self._groups = 0

    # Statements

    def statement(self, tag: str, body: Node, scopes: Scopes) -> Columns:
        """Visit a statement, also one of WITH. Return its output columns."""
        scopes = Scopes(scopes)
        for one in body.get("withClause", {}).get("ctes", ()):
            expression = one["CommonTableExpr"]
            query = self.statement(*parts(expression["ctequery"]), scopes)
            scopes.common[expression["ctename"]] = _renamed(query, names(expression.get("aliascolnames")))
        match tag:
            case "SelectStmt":
                return self._select(body, scopes)
            case "InsertStmt":
                self._insert(body, scopes)
            case "UpdateStmt" | "DeleteStmt":
                table = self._from({"RangeVar": body["relation"]}, scopes)
                for item in (*body.get("fromClause", ()), *body.get("usingClause", ())):
                    self._from(item, scopes)
                self._assignments(body.get("targetList", ()), table, scopes)
                self._expression(body.get("whereClause"), scopes, _FILTER)
            case "MergeStmt":
                self._merge(body, scopes)
        return self._outputs(body.get("returningList", ()), scopes)

    def _select(self, body: Node, scopes: Scopes, targets: Sequence[ColumnName | None] = ()) -> Columns:
        outputs: Columns = {}
        if "larg" in body:
            outputs = self.statement("SelectStmt", body["larg"], scopes)
            self.statement("SelectStmt", body["rarg"], scopes)
        for item in body.get("fromClause", ()):
            self._from(item, scopes)
        for row in body.get("valuesLists", ()):
            for place, item in enumerate(row["List"]["items"]):
                self._assigned(item, targets[place] if place < len(targets) else None, scopes, is_item=True)
        if targets and "targetList" in body:
            for place, target in enumerate(body["targetList"]):
                column = targets[place] if place < len(targets) else None
                self._assigned(target["ResTarget"].get("val"), column, scopes)
        elif "targetList" in body:
            outputs = self._outputs(body["targetList"], scopes)
        for clause in ("whereClause", "havingClause"):
            self._expression(body.get(clause), scopes, _FILTER)
        for clause in ("groupClause", "sortClause", "distinctClause", "windowClause"):
            self._expression(body.get(clause), scopes, _OUTPUT)
        for clause, role in (("limitCount", Role.ROW_COUNT), ("limitOffset", Role.OFFSET)):
            if not self._as(body.get(clause), role):
                self._expression(body.get(clause), scopes, _FILTER)
        return outputs

    def _outputs(self, targets: Sequence[Node], scopes: Scopes) -> Columns:
        found: dict[str, ColumnName | None] = {}
        for target in targets:
            value = target["ResTarget"].get("val", {})
            self._expression(value, scopes, _OUTPUT)
            if (fields := names(value.get("ColumnRef", {}).get("fields"))) and not fields[-1]:
                found |= scopes.all_columns(fields[0] if len(fields) > 1 else "")
                continue
            column = scopes.column(fields) if fields else None
            found[str(target["ResTarget"].get("name") or (fields or ["?column?"])[-1])] = column
        return found

    def _insert(self, body: Node, scopes: Scopes) -> None:
        name = table_of(body["relation"])
        table = self._source(name, Scopes())
        given = [column["ResTarget"]["name"] for column in body.get("cols", ())] or list(table)
        targets = [table.get(column) for column in given]
        conflict = body.get("onConflictClause")
        first = len(self.uses)
        if "selectStmt" in body:
            query = body["selectStmt"]["SelectStmt"]
            inner = Scopes(scopes)
            if "withClause" in query or "larg" in query:
                self.statement("SelectStmt", query, inner)
            else:
                self._select(query, inner, targets)
                if conflict is None:
                    self.copied |= _copied(query, targets)
        self._mark_inserted(first, on_conflict=conflict is not None)
        scopes.sources.append((body["relation"].get("alias", {}).get("aliasname", name[1]), table))
        if conflict is not None:
            scopes.sources.append(("excluded", {}))
            self._assignments(conflict.get("targetList", ()), table, scopes)
            self._expression(conflict.get("whereClause"), scopes, _FILTER)
            self._expression(conflict.get("infer"), scopes, _FILTER)

    def _merge(self, body: Node, scopes: Scopes) -> None:
        table = self._from({"RangeVar": body["relation"]}, scopes)
        self._from(body["sourceRelation"], scopes)
        self._expression(body.get("joinCondition"), scopes, _FILTER)
        for one in body.get("mergeWhenClauses", ()):
            when = one["MergeWhenClause"]
            self._expression(when.get("condition"), scopes, _FILTER)
            if "values" not in when:
                self._assignments(when.get("targetList", ()), table, scopes)
                continue
            given = [target["ResTarget"]["name"] for target in when.get("targetList", ())]
            first = len(self.uses)
            for column, item in zip(given or list(table), when["values"], strict=False):
                self._assigned(item, table.get(column), scopes, is_item=True)
            self._mark_inserted(first, on_conflict=False)

    def _mark_inserted(self, first: int, *, on_conflict: bool) -> None:
        """Mark the uses from this one on as parts of an INSERT."""
        self.uses[first:] = [
            replace(use, is_inserted=use.role is Role.ASSIGNED, on_conflict=on_conflict)
            for use in self.uses[first:]
        ]

    def _assignments(self, targets: Sequence[Node], table: Columns, scopes: Scopes) -> None:
        for one in targets:
            target = one["ResTarget"]
            column = None if "indirection" in target else table.get(target.get("name", ""))
            value = target.get("val", {})
            if row := value.get("MultiAssignRef"):
                items = row["source"].get("RowExpr", {}).get("args", ())
                if len(items) == row["ncolumns"]:
                    value = items[row["colno"] - 1]
                else:  # a subquery or row(t.*), which every column repeats
                    value = row["source"] if row["colno"] == 1 else None
            self._assigned(value, column, scopes)

    def _assigned(
        self, value: Node | None, column: ColumnName | None, scopes: Scopes, *, is_item: bool = False
    ) -> None:
        is_item = is_item and value is not None and "ParamRef" in value
        if column is None or not self._as(value, Role.ASSIGNED, column=column, is_item=is_item):
            self._expression(value, scopes, _OUTPUT)

    # FROM

    def _from(self, item: Node, scopes: Scopes) -> Columns:
        tag, body = parts(item)
        alias = body.get("alias", {})
        renamed = names(alias.get("colnames"))
        found: Columns = {}
        match tag:
            case "RangeVar":
                found = _renamed(self._source(table_of(body), scopes), renamed)
                scopes.sources.append((alias.get("aliasname", body["relname"]), found))
            case "RangeSubselect":
                found = _renamed(self.statement(*parts(body["subquery"]), scopes), renamed)
                scopes.sources.append((alias.get("aliasname", ""), found))
            case "JoinExpr":
                self._from(body["larg"], scopes)
                self._from(body["rarg"], scopes)
                self._expression(body.get("quals"), scopes, _FILTER)
            case _:
                # Functions, XMLTABLE, JSON_TABLE, TABLESAMPLE: the columns are not those of a table.
                self._expression(item, scopes, _FILTER)
                scopes.sources.append((alias.get("aliasname", ""), found))
        return found

    def _source(self, name: tuple[str, str], scopes: Scopes) -> Columns:
        if not name[0] and (common := scopes.query(name[1])) is not None:
            return common
        table = self._tables.get(name)
        return {column: (name, column) for column in table.columns} if table else {}

    # Expressions

    def _expression(self, node: Any, scopes: Scopes, place: _Place) -> None:
        for one in node if isinstance(node, list) else [node]:
            if isinstance(one, dict):
                self._node(one, scopes, place)

    def _node(self, node: Node, scopes: Scopes, place: _Place) -> None:
        tag, body = parts(node)
        match tag:
            case "ParamRef" | "TypeCast" if self._parameter(node) is not None:
                self._as(node, Role.ARGUMENT if place.argument else Role.CONSTANT, place=place.argument)
            case "A_Expr":
                self._operator(body, scopes, place)
            case "BoolExpr":
                self._groups += 1
                group = self._groups if body["boolop"] == "AND_EXPR" else 0
                self._expression(body["args"], scopes, replace(place, group=group))
            case "SubLink":
                self._subquery(body, scopes, place)
            case "FuncCall":
                self._function(body, scopes, place)
            case "CoalesceExpr" | "MinMaxExpr":
                self._alternatives(body["args"], scopes, place)
            case "CaseExpr":
                self._case(body, scopes, place)
            case "SelectStmt":
                self.statement(tag, body, scopes)
            case _:
                # A node with its tag, or the content of one without.
                for value in body.values() if tag and isinstance(body, dict) else node.values():
                    self._expression(value, scopes, place)

    def _subquery(self, body: Node, scopes: Scopes, place: _Place) -> None:
        outputs = self.statement(*parts(body["subselect"]), scopes)
        first = next(iter(outputs.values()), None)
        if not (first and self._as(body.get("testexpr"), Role.VALUE, column=first)):
            self._expression(body.get("testexpr"), scopes, place)

    def _operator(self, body: Node, scopes: Scopes, place: _Place) -> None:
        left, right = body.get("lexpr"), body.get("rexpr", {})
        name = (names(body.get("name")) or [""])[-1]
        match body["kind"]:
            case "AEXPR_IN":
                items = right["List"]["items"] if "List" in right else [right]
                self._compared(left, [(item, "=") for item in items], scopes, place, place)
            case "AEXPR_BETWEEN" | "AEXPR_NOT_BETWEEN" | "AEXPR_BETWEEN_SYM" | "AEXPR_NOT_BETWEEN_SYM":
                self._groups += 1
                bounds = list(zip(right["List"]["items"], (">=", "<="), strict=True))
                self._compared(left, bounds, scopes, place, replace(place, group=self._groups))
            case "AEXPR_OP_ANY" | "AEXPR_OP_ALL":
                elements = right.get("A_ArrayExpr", {}).get("elements")
                column, wrapper = self._column(left, scopes)
                if elements is None and not (
                    column and self._as(right, Role.LIST, column=column, wrapper=wrapper)
                ):
                    self._expression(right, scopes, place)
                self._compared(left, [(item, "=") for item in elements or ()], scopes, place, place)
            case "AEXPR_OP" if left is None:
                self._expression(right, scopes, place)
            case kind:
                self._pair(left, right, "like" if "LIKE" in kind else name, scopes, place)
                self._pair(right, left, _REVERSED.get(name, name), scopes, place)
                within = replace(place, argument=f"operand of {name}") if place.argument else place
                for side in (left, right):
                    self._side(side, scopes, within)

    def _compared(
        self, left: Any, items: Sequence[tuple[Any, str]], scopes: Scopes, place: _Place, within: _Place
    ) -> None:
        """Visit a comparison of the left operand with several others, each with its operator."""
        for item, name in items:
            self._pair(left, item, name, scopes, within)
            self._side(item, scopes, place)
        self._side(left, scopes, place)

    def _side(self, node: Any, scopes: Scopes, place: _Place) -> None:
        """Visit an operand unless a pair has already used it."""
        found = self._parameter(node)
        if found is None or all(use.start != found.start for use in self.uses):
            if found is None and isinstance(node, dict) and "RowExpr" in node:
                for one in node["RowExpr"].get("args", ()):
                    self._side(one, scopes, place)
            else:
                self._expression(node, scopes, place)

    def _pair(self, left: Any, right: Any, name: str, scopes: Scopes, place: _Place) -> None:
        """Record the right operand, a parameter, if the left one is a column or a parameter, too."""
        if isinstance(left, dict) and isinstance(right, dict) and "RowExpr" in left and "RowExpr" in right:
            items = (side["RowExpr"].get("args", ()) for side in (left, right))
            for one, other in zip(*items, strict=False):
                self._pair(one, other, name, scopes, replace(place, group=0))
            return
        column, wrapper = self._column(left, scopes)
        if column is None:
            if name in _EQUAL and self._parameter(left) and self._parameter(right):
                self._as(right, Role.CONSTANT)  # WHERE 1 = 1
            return
        if name in _EQUAL or name == "IS DISTINCT FROM":
            found = self._parameter(right)
            is_list = found is not None and self._text[found.end :].lstrip().startswith(b"/*, ... */")
            self._as(right, Role.LIST if is_list else Role.VALUE, column=column, wrapper=wrapper)
        elif name in _LOWER or name in _UPPER:
            self._as(right, Role.BOUND, column=column, wrapper=wrapper, group=place.group, order=name)
        elif name == "like":
            self._as(right, Role.PATTERN, column=column, wrapper=wrapper)

    def _function(self, body: Node, scopes: Scopes, place: _Place) -> None:
        name = (names(body.get("funcname")) or [""])[-1]
        if name.startswith("pg_"):  # locks, sleeps, resets of statistics
            raise Unusable(Reason.SYSTEM, name)
        for number, argument in enumerate(body.get("args", ())):
            fixed = FIXED.get((name, number), "")
            if fixed and self._as(argument, Role.FIXED, fixed=fixed):
                continue
            words = ("argument", argument.get("NamedArgExpr", {}).get("name", ""), "of", name)
            inside = place if name in WITHOUT_EFFECT else _Place(" ".join(filter(None, words)))
            self._expression(argument, scopes, inside)
        self._expression(body.get("agg_filter"), scopes, _FILTER)
        for part in ("agg_order", "over"):
            self._expression(body.get(part), scopes, place)

    def _alternatives(self, values: Sequence[Node], scopes: Scopes, place: _Place) -> None:
        column = next((found for one in values if (found := self._column(one, scopes)[0])), None)
        for one in values:
            if not (column and self._as(one, Role.VALUE, column=column)):
                self._expression(one, scopes, place)

    def _case(self, body: Node, scopes: Scopes, place: _Place) -> None:
        compared, wrapper = self._column(body.get("arg"), scopes)
        for one in body["args"]:
            when = one["CaseWhen"]
            if not (compared and self._as(when["expr"], Role.VALUE, column=compared, wrapper=wrapper)):
                self._expression(when["expr"], scopes, place)
            self._expression(when["result"], scopes, place)
        self._expression(body.get("defresult"), scopes, place)
        self._expression(body.get("arg"), scopes, place)

    # Leaves

    def _column(self, node: Any, scopes: Scopes) -> tuple[ColumnName | None, str]:
        """Return the column that an operand is, and the function around it; else None."""
        tag, body = parts(node) if isinstance(node, dict) else ("", {})
        if tag == "ColumnRef":
            return scopes.column(names(body["fields"])), ""
        if tag in ("TypeCast", "CollateClause"):
            return self._column(body["arg"], scopes)
        if tag == "FuncCall" and len(body.get("args", ())) == 1:
            name = names(body["funcname"])[-1]
            column, inner = self._column(body["args"][0], scopes)
            if name in WRAPPERS and not inner:
                return column, name
        return None, ""

    def _parameter(self, node: Any) -> Use | None:
        """Return the parameter that an operand is, within casts, COLLATE, lower and the like; else None."""
        tag, body = parts(node) if isinstance(node, dict) else ("", {})
        if tag == "ParamRef" and "number" in body:
            start = int(body["location"])
            return Use(int(body["number"]), start, start + len(f"${body['number']}"), Role.CONSTANT)
        if tag == "TypeCast":
            found = self._parameter(body["arg"])
            start = int(body["typeName"].get("location", -1))
            if found is not None and 0 <= start < found.start:  # interval $1, which servers do not accept
                name = self._text[start : found.start].decode(errors="replace").strip()
                return replace(found, start=start, cast=name)
            return found
        if tag == "CollateClause":
            return self._parameter(body["arg"])
        if tag == "FuncCall" and len(body.get("args", ())) == 1 and names(body["funcname"])[-1] in WRAPPERS:
            found = self._parameter(body["args"][0])
            return replace(found, wrapper="-") if found else None
        return None

    def _as(self, node: Any, role: Role, **facts: Any) -> bool:
        """Record a parameter with its role. Return False if the node is none."""
        found = self._parameter(node)
        if found is None:
            return False
        # Without a wrapper if the statement has the function itself.
        wrapper = "" if found.wrapper else facts.pop("wrapper", "")
        self.uses.append(replace(found, **{**facts, "wrapper": wrapper}, role=role))
        return True
