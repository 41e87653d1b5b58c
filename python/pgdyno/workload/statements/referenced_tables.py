"""Tables and columns that statements name, with the statistics that decide how values are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgdyno.workload.statements.statement_parser import TableName


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
