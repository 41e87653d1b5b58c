"""Statements of pg_stat_statements, parsed by PostgreSQL's own parser (libpg_query).

A parse tree is JSON: a node is an object with one key, its tag, and positions are bytes of the UTF-8 text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
