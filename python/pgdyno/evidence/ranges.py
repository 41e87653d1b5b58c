"""Numbers that no study can measure: found when evidence is opened, before anything is computed from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

REAL_MAX = 1e12
"""Of seconds, which most of them are: 30 000 years. Their squares and products stay far below infinity."""

INTEGER_MAX = 2**53
"""Whole numbers are exact as floating-point ones up to here: as nanoseconds 104 days."""

REAL_MIN = 1e-30
"""What is smaller and not zero is no time that anybody took; ratios to it would have no finite logarithm."""

_ANY_SIGN = frozenset({"seed"})
_NOT_NEGATIVE = (
    "cpu_s",
    "cpu_user_s",
    "cpu_system_s",
    "restore_s",
    "start_s",
    "took_s",
    "recovery_s",
    "p_value",
)


def column_out_of_range(connection: sqlite3.Connection) -> str | None:
    """Return the first ``table.column`` that holds an impossible number, or None."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
    for (table,) in tables.fetchall():
        ranges = dict(_ranges(connection, table))
        if not ranges:
            continue
        is_any = ", ".join(f"max(coalesce({outside}, 0))" for outside in ranges.values())
        found = connection.execute(f"SELECT {is_any} FROM {table} NOT INDEXED").fetchone()
        for column, is_outside in zip(ranges, found, strict=True):
            if is_outside:
                return f"{table}.{column}"
    return None


def _ranges(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, str]]:
    for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
        if kind == "REAL":
            least = 0.0 if column.endswith(_NOT_NEGATIVE) else -REAL_MAX
            tiny = f" OR ({column} <> 0 AND abs({column}) < {REAL_MIN})" if column.endswith("_s") else ""
            yield column, f"{column} NOT BETWEEN {least} AND {REAL_MAX}{tiny}"
        elif kind == "INTEGER" and column not in _ANY_SIGN:
            yield column, f"{column} NOT BETWEEN 0 AND {INTEGER_MAX}"
