"""Session, statements and reading of a probe: read-only, short, one SQL file for all versions.

Statements of probes must not count in the observed workload. In sessions of superusers pg_stat_statements
does not track them. In other sessions each statement has a comment by which the probes exclude it.

A line of an SQL file can be limited to versions with a comment at its end: ``-- from 14``, ``-- to 12`` or
``-- 14 to 16`` (major versions, inclusive). A colon and a remark can follow. Other lines are for all
versions.
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
"""One row by column. A value that is unknown, or not available in this version, is absent or None, never
0."""


@dataclass(frozen=True)
class ProbeReading:
    """Result of one probe at one time. Without data ``rows`` is None, and ``reason`` is set."""

    probe: str
    took_s: float
    rows: Sequence[Row] | None
    reason: str = ""
    absence: Absence | None = None  # the code of the reason


APPLICATION_NAME = "pgdyno probe"
"""Also the comment in every statement. ``prepare`` sets it, so it identifies prepared sessions."""

STATEMENT_TIMEOUT_S = 5
"""Timeout of a statement. A reading takes milliseconds; a longer one would disturb the server."""

NETWORK_S = 15
"""Additional time for the server to report a timeout."""

LOCK_TIMEOUT_S = 1
"""Timeout of locks, for example for the size of a table that is being rewritten."""

SESSION = {
    "application_name": APPLICATION_NAME,
    "default_transaction_read_only": "on",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    "search_path": "pg_catalog",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "max_parallel_workers_per_gather": "0",  # reserved for the workload
    "jit": "off",  # costs more than it saves here; unknown before 11
    "idle_session_timeout": "0",  # unknown before 14
    "extra_float_digits": "3",  # before 12 a lower value loses digits
}


def prepare_probe_session(connection: Connection) -> None:
    """Prepare the connection for probes; a second call has no cost. Raises psycopg.Error."""
    if connection.info.parameter_status("application_name") == APPLICATION_NAME:
        return
    connection.autocommit = True
    set_limit(connection, STATEMENT_TIMEOUT_S + NETWORK_S)
    if connection.info.parameter_status("is_superuser") == "on":
        # Without the library this setting has no effect.
        _set(connection, {"pg_stat_statements.track": "none"})
    _set(connection, {name: value for name, value in SESSION.items() if _is_known(connection, name)})


def set_statement_timeout(connection: Connection, timeout_s: int) -> None:
    """Set another timeout, for probes that read more than counters."""
    set_limit(connection, timeout_s + NETWORK_S)
    _set(connection, {"statement_timeout": f"{timeout_s}s"})


def _set(connection: Connection, settings: Mapping[str, str]) -> None:
    """Change settings with a query, which can contain the comment in all versions."""
    calls = [sql.SQL("set_config({}, {}, false)").format(*setting) for setting in settings.items()]
    connection.execute(sql.SQL("SELECT /* pgdyno probe */ {}").format(sql.SQL(", ").join(calls)))


def _is_known(connection: Connection, name: str) -> bool:
    since = {"jit": 11_00_00, "idle_session_timeout": 14_00_00}
    return connection.info.server_version >= since.get(name, 0)


_FOR = re.compile(r"--\s+(?:from (?P<from>\d+)|to (?P<to>\d+)|(?P<first>\d+) to (?P<last>\d+))(?::.*)?\s*$")


@cache
def statement(name: str, major: int) -> LiteralString:
    """Return ``sql/NAME.sql`` for a server of this major version."""
    path = resources.files(__package__).joinpath("sql", f"{name}.sql")
    return for_major(path.read_text(encoding="utf-8"), major)


def fetch(connection: Connection, text: sql.SQL | sql.Composed) -> list[Row]:
    """Return all rows by column, without null values. Raises psycopg.Error."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(text).fetchall()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def for_major(text: str, major: int) -> LiteralString:
    """Return the lines for a server of this major version, without comments. Pure."""
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
    """Return the line without its comment. In these files two hyphens occur only in comments."""
    return line.partition("--")[0].rstrip()
