"""Names that are visible in a part of a statement, and the column of a table behind each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgdyno.workload.statements.statement_parser import TableName

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
