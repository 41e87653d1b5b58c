r"""Data and invariants of the user, and columns that scripts draw values from.

- Data and invariants of the user: where the data come from, and queries that must return no row.
- Columns that scripts draw values from: ``\sample NAME FROM table.column [uniform|frequency]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from psycopg import ProgrammingError
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from pgdyno.study.arm_spec import has_secrets

# ----------------------------------------------------------------------
# Data and invariants of the user: where the data come from, and queries that must return no row.
# ----------------------------------------------------------------------

Form = Literal["", "archive", "plain", "scripts", "backup"]
"""archive: a custom, directory or tar dump; plain: an SQL file; scripts: a directory with load.sql; backup: a
base backup or data directory. Empty until the source is read."""

_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$|.",
    re.DOTALL,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


FOUND = ("name", "form", "path", "digest", "size_bytes", "major")
"""Fields of OwnData that the user does not give."""


def _as_given(schema: dict[str, Any]) -> None:
    """Leave out of the schema of study files what is found."""
    for name in FOUND:
        del schema["properties"][name]


class OwnData(BaseModel):
    """Data of the user. ``source`` and the options are given. The other fields describe what was found there;
    they are filled in before the data are loaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_as_given)

    source: str = Field(min_length=1, description="Dump, directory, DSN, or name given by pgdyno data add.")
    analyze: bool = Field(default=True, description="Run ANALYZE before the snapshot.")
    database: str = Field(default="", description="Database to measure. [default: the only one]")
    locale: str = Field(default="", description="Locale of the database. [default: that of the origin]")
    name: str = Field(default="", description="Name of the data.")
    form: Form = Field(default="", description="Form of the source.")
    path: str = Field(default="", description="Absolute path of the source.")
    digest: str = Field(default="", description="Digest of the content.")
    size_bytes: int = Field(default=0, ge=0, description="Size of the source.")
    major: int | None = Field(default=None, description="Major version of the origin, if known.")

    @model_validator(mode="before")
    @classmethod
    def _source_alone(cls, given: Any) -> Any:
        """Accept a source alone, and drop the list of columns that older versions masked."""
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name != "masked"}
        return {"source": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _has_no_password(self) -> Self:
        try:
            if is_connection_string(self.source) and has_secrets(self.source):
                raise ValueError("the source must not contain a password: put it in ~/.pgpass or PGPASSWORD")
        except ProgrammingError:
            raise ValueError("the connection string is malformed") from None
        return self

    @property
    def label(self) -> str:
        """The name of the data, or their source until it is read."""
        return self.name or self.source

    def shape(self) -> Mapping[str, int | str]:
        """Return everything that determines the data."""
        return {
            "data": self.digest or self.source,
            "analyze": int(self.analyze),
            "database": self.database,
            "locale": self.locale,
        }


def is_connection_string(source: str) -> bool:
    """Return whether a source is a DSN: a URI, or keyword=value."""
    return re.match(r"postgres(ql)?://|[a-z_]+\s*=", source) is not None


class Invariant(BaseModel):
    """A file of queries, each of which must return no row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="Name in reports.")
    text: str = Field(min_length=1, description="Queries, separated by semicolons.")

    @model_validator(mode="after")
    def _has_a_query(self) -> Self:
        if not self.queries():
            raise ValueError(f"{self.name} contains no query")
        return self

    def queries(self) -> tuple[str, ...]:
        """Return the queries of the file, without comments in front."""
        found = ("".join(part) for part in _statements(self.text))
        return tuple(query for text in found if (query := _without_leading_comments(text)))


def _statements(text: str) -> Iterator[list[str]]:
    """Yield the tokens of each statement. Semicolons in strings, names and comments separate nothing."""
    tokens: list[str] = []
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            yield tokens
            tokens = []
        else:
            tokens.append(token[0])
    yield tokens


def _without_leading_comments(text: str) -> str:
    text = text.strip()
    while found := _COMMENT.match(text):
        text = text[found.end() :].strip()
    return text


def first_line(query: str) -> str:
    """Return the first line of a query, shortened, for messages."""
    line = query.splitlines()[0].strip()
    return line if len(line) <= LINE_MAX else f"{line[:LINE_MAX]}…"


LINE_MAX = 100
"""Maximum number of characters of a quoted query."""


# ----------------------------------------------------------------------
# Columns that scripts draw values from: ``\sample NAME FROM table.column [uniform|frequency]``.
# ----------------------------------------------------------------------

Weighting = Literal["uniform", "frequency"]
"""uniform: every distinct value is equally likely; frequency: every row is."""

_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_SOURCE = re.compile(rf"({_IDENTIFIER}(?:\.{_IDENTIFIER}){{1,2}})(?:\s+(uniform|frequency))?", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnSample:
    """A column and how its values are weighted. ``table`` has one name, or schema and name."""

    table: tuple[str, ...]
    column: str
    weighting: Weighting = "uniform"

    @classmethod
    def parse(cls, text: str) -> ColumnSample:
        """Parse ``table.column`` or ``schema.table.column``, and the weighting. Raises ValueError."""
        found = _SOURCE.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} does not have the form table.column or schema.table.column, with uniform or "
                "frequency after it"
            )
        *table, column = (_name(part) for part in re.findall(_IDENTIFIER, found[1]))
        return cls(
            tuple(table), column, "frequency" if (found[2] or "").lower() == "frequency" else "uniform"
        )


def _name(identifier: str) -> str:
    """Return the name that PostgreSQL reads: folded to lower case unless it is quoted."""
    if identifier.startswith('"'):
        return identifier[1:-1].replace('""', '"')
    return identifier.lower()
