"""Session and statements of a probe: read-only, short, one SQL file for all versions; and its reading.

What a probe does must not be counted in the workload that it watches. A superuser's session is not tracked
by pg_stat_statements at all; any other one's statements carry a mark, by which they are left out.

A line may say at its end which versions it is for: the comment ``-- from 14``, ``-- to 12`` or
``-- 14 to 16`` keeps it from, up to, or between these major versions; a colon and a remark may follow. Lines
without it are for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import LiteralString

from psycopg import sql
from psycopg.rows import dict_row

from pgdyno.server.limited_connection import set_limit
from pgdyno.server.running import Connection
from pgdyno.server.version import OLDEST_MAJOR
from pgdyno.study.probe_names import Absence

Row = Mapping[str, float | int | str | None]
"""One row by column. What is not known, or not of this version, is absent or None: never 0."""


@dataclass(frozen=True)
class Reading:
    """What one probe read at one moment. ``rows`` is None where there is nothing, and ``reason`` says why."""

    probe: str
    took_s: float
    rows: Sequence[Row] | None
    reason: str = ""
    absence: Absence | None = None  # the code of the reason


APPLICATION_NAME = "pgdyno probe"
"""Also the mark in every statement. Only ``prepare`` gives it to a session: it tells which are ready."""

STATEMENT_TIMEOUT_S = 5
"""A reading takes milliseconds: what takes this long on a busy server would disturb it."""

NETWORK_S = 15
"""What a server may take beyond its own limit to say that it has given a reading up."""

LOCK_TIMEOUT_S = 1
"""To know the size of a table that is being rewritten, one would wait until that is done."""

SESSION = {
    "application_name": APPLICATION_NAME,
    "default_transaction_read_only": "on",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    "search_path": "pg_catalog",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "max_parallel_workers_per_gather": "0",  # those are the workload's
    "jit": "off",  # compiling costs more than such statements take; unknown before 11
    "idle_session_timeout": "0",  # unknown before 14
    "extra_float_digits": "3",  # before 12 anything less would lose digits
}


def prepare(connection: Connection) -> None:
    """Makes the connection a probe's; once done, this costs nothing. Raises psycopg.Error."""
    if connection.info.parameter_status("application_name") == APPLICATION_NAME:
        return
    connection.autocommit = True
    set_limit(connection, STATEMENT_TIMEOUT_S + NETWORK_S)
    if connection.info.parameter_status("is_superuser") == "on":
        # Where the library is not loaded, this is a name without a meaning.
        _set(connection, {"pg_stat_statements.track": "none"})
    _set(connection, {name: value for name, value in SESSION.items() if _is_known(connection, name)})


def set_statement_timeout(connection: Connection, timeout_s: int) -> None:
    """For what reads more than counters."""
    set_limit(connection, timeout_s + NETWORK_S)
    _set(connection, {"statement_timeout": f"{timeout_s}s"})


def _set(connection: Connection, settings: Mapping[str, str]) -> None:
    """As a query, since that can carry the mark in all versions."""
    calls = [sql.SQL("set_config({}, {}, false)").format(*setting) for setting in settings.items()]
    connection.execute(sql.SQL("SELECT /* pgdyno probe */ {}").format(sql.SQL(", ").join(calls)))


def _is_known(connection: Connection, name: str) -> bool:
    since = {"jit": 11_00_00, "idle_session_timeout": 14_00_00}
    return connection.info.server_version >= since.get(name, 0)


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
