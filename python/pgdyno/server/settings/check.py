"""After the start: is what was asked for what is in effect?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import psycopg

from pgdyno.errors import StartError
from pgdyno.server.settings.definition import Definition
from pgdyno.server.version import Version, version_of

COLUMNS = (
    "name, vartype, unit, min_val, max_val, enumvals, context, boot_val, category, short_desc, extra_desc"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def definition(row: tuple[Any, ...]) -> Definition:
    """From a row of COLUMNS."""
    name, vartype, unit, low, high, enumvals, *rest = row
    return Definition(name, vartype, unit or None, low, high, tuple(enumvals or ()), *rest)


def verify(
    connection: Connection, requested: Mapping[str, str], optional: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """All settings in effect, and those of ``optional`` that are not, each with the reason. Closes the
    connection.

    Raises StartError for a setting that is not in effect and not optional.
    """
    with connection:
        version = version_of(connection)
        rows = connection.execute(
            f"select setting, pending_restart, current_setting(name, true), {COLUMNS} from pg_settings"
        ).fetchall()
    found = {row[3].lower(): row for row in rows}
    dropped: dict[str, str] = {}
    for name, text in requested.items():
        row = found.get(name.lower())
        reason = _unlike(row, text, version)
        if reason is None:
            continue
        if name not in optional:
            raise StartError(f"{name}={text} is not in effect on PostgreSQL {version}: {reason}")
        dropped[name] = reason
    return {row[3]: row[2] or "" for row in rows}, dropped


def _unlike(row: tuple[Any, ...] | None, text: str, version: Version) -> str | None:
    if row is None:
        return "this server does not know it (is its library in shared_preload_libraries?)"
    setting, pending_restart, shown = row[:3]
    if pending_restart:
        return "it waits for a restart"
    if not definition(row[3:]).same(text, setting or "", version):
        return f"the server has {shown}"
    return None
