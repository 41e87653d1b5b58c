"""The SQL of the probes: one file a statement for all versions, in ``sql``, and how a statement is run.

A line may say at its end which versions it is for: the comment ``-- from 14``, ``-- to 12`` or
``-- 14 to 16`` keeps it from, up to, or between these major versions; a colon and a remark may follow. Lines
without it are for all.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import LiteralString

from psycopg import sql
from psycopg.rows import dict_row

from pgdyno.probe.reading import Row
from pgdyno.server.running import Connection
from pgdyno.server.version import OLDEST_MAJOR

_FOR = re.compile(r"--\s+(?:from (?P<from>\d+)|to (?P<to>\d+)|(?P<first>\d+) to (?P<last>\d+))(?::.*)?\s*$")


@cache
def statement(name: str, major: int) -> LiteralString:
    """``sql/NAME.sql`` for a server of this major version."""
    path = resources.files(__package__).joinpath("sql", f"{name}.sql")
    return for_major(path.read_text(encoding="utf-8"), major)


def fetch(connection: Connection, text: sql.SQL | sql.Composed) -> list[Row]:
    """All rows by column; what is null is left out. Raises psycopg.Error."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(text).fetchall()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def for_major(text: str, major: int) -> LiteralString:
    """The lines for a server of this major version, without comments. Pure."""
    kept = [_uncommented(line) for line in text.splitlines() if _is_for(line, major)]
    return "\n".join(line for line in kept if line.strip())


def _is_for(line: str, major: int) -> bool:
    found = _FOR.search(line)
    if found is None:
        return True
    first = int(found["from"] or found["first"] or OLDEST_MAJOR)
    last = int(found["to"] or found["last"] or major)
    return first <= major <= last


def _uncommented(line: str) -> str:
    """Nothing in these files has two hyphens in a row but a comment."""
    return line.partition("--")[0].rstrip()
