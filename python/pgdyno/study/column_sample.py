"""Columns that scripts draw values from: ``\\sample NAME FROM table.column [uniform|frequency]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

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
