"""Statements that a server has recorded, the types of their parameters, and the tables that they name.

Everything is read in sessions that cannot write. PREPARE types the parameters: the server analyzes the
statement and does not execute it. pg_stat_statements does not record PREPARE. It records the reading
statements of this module unless the user is a superuser; their comment excludes them from the load.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pgdyno.errors import ConnectError, ServerError, in_one_line
from pgdyno.probe.probe_session import Row, fetch, statement
from pgdyno.probe.server_probes import extension_of_statements, statements_major
from pgdyno.server.data_sources import read_only_conninfo
from pgdyno.server.dsn import Dsn
from pgdyno.server.limited_connection import connect
from pgdyno.server.running import Connection
from pgdyno.server.version import OLDEST_MAJOR, version_of
from pgdyno.workload.statements.referenced_tables import Column, Table, Tables
from pgdyno.workload.statements.statement_parser import TableName

ROWS_MAX = 5000
"""Maximum number of statements read, those with the longest time; the default of pg_stat_statements.max."""

READ_TIMEOUT_S = 60
"""Timeout of each statement: the catalog of a large database takes seconds."""


@dataclass(frozen=True)
class RecordedStatement:
    """A statement with its totals over all roles. ``text`` is None if the server has lost it."""

    queryid: str
    text: str | None
    calls: float
    rows: float
    time_ms: float


@dataclass(frozen=True)
class RecordedLoad:
    """The statements of a database, by time. ``hidden`` and ``beyond``: number and time in ms of those that
    the role cannot see, and of those after the first ROWS_MAX."""

    database: str
    statements: tuple[RecordedStatement, ...]
    hidden: tuple[int, float] = (0, 0.0)
    beyond: tuple[int, float] = (0, 0.0)

    @property
    def time_ms(self) -> float:
        """Total execution time."""
        return sum(one.time_ms for one in self.statements) + self.hidden[1] + self.beyond[1]


class NotPrepared(Exception):
    """The server rejects a statement. The text is its message."""


@contextlib.contextmanager
def reading_session(dsn: Dsn) -> Iterator[Connection]:
    """Open a session that cannot write. Raises ConnectError; ServerError if it can write all the same."""
    try:
        connection = connect(read_only_conninfo(dsn, "workload", READ_TIMEOUT_S))
    except (psycopg.Error, OSError, UnicodeError) as error:
        raise ConnectError(f"no connection to {dsn}: {dsn.masked(in_one_line(error))}") from None
    with contextlib.closing(connection):
        if (version := version_of(connection)).major < OLDEST_MAJOR:
            raise ConnectError(f"{dsn} runs PostgreSQL {version}: pgdyno requires {OLDEST_MAJOR} or newer")
        try:
            row = connection.execute(
                "SELECT /* pgdyno probe */ set_config('client_encoding', 'UTF8', false),"
                " current_setting('transaction_read_only')"
            ).fetchone()
            if row is None or row[1] != "on":
                raise ServerError(
                    f"the session on {dsn} is not read-only: connect to the server itself, not to a pooler "
                    "that ignores options"
                )
            if connection.info.parameter_status("is_superuser") == "on":
                connection.execute(
                    "SELECT /* pgdyno probe */ set_config('pg_stat_statements.track', 'none', false)"
                )
            yield connection
        except psycopg.Error as error:
            raise ServerError(f"reading {dsn} failed: {dsn.masked(in_one_line(error))}") from None


def read_load(connection: Connection) -> RecordedLoad:
    """Return the statements of the current database. Raises ServerError with the remedy, psycopg.Error."""
    version, schema = extension_of_statements(connection)
    text = sql.SQL(statement("statement_texts", statements_major(version)))
    rows = fetch(connection, text.format(extension=sql.Identifier(schema), rows_max=ROWS_MAX))
    sums = {
        str(row["query"]): (int(_number(row, "statements")), _number(row, "time_ms"))
        for row in rows
        if "queryid" not in row
    }
    found = tuple(_recorded(row) for row in rows if "queryid" in row)
    database = str(connection.info.dbname)
    user = connection.info.user
    if not found and "hidden" in sums:
        raise ServerError(
            f"all statements are hidden from the user {user}: GRANT pg_read_all_stats TO {user}, or "
            "pg_monitor"
        )
    if not found:
        raise ServerError(
            f"pg_stat_statements has no statement of the database {database}: name another with --database, "
            "or run the workload first"
        )
    return RecordedLoad(database, found, sums.get("hidden", (0, 0.0)), sums.get("beyond", (0, 0.0)))


def _recorded(row: Row) -> RecordedStatement:
    text = row.get("query")
    return RecordedStatement(
        str(row["queryid"]),
        None if text in (None, "", "<insufficient privilege>") else str(text),
        _number(row, "calls"),
        _number(row, "rows"),
        _number(row, "time_ms"),
    )


def _number(row: Mapping[str, Any], name: str) -> float:
    return float(row.get(name) or 0)


def read_tables(connection: Connection, names: Iterable[TableName]) -> Tables:
    """Return the tables with these names that exist, by name. Raises psycopg.Error."""
    wanted = sorted(names)
    keys: dict[tuple[int, int], list[str]] = defaultdict(list)
    for row in _read(connection, "statement_keys", wanted):
        keys[int(row["place"]), int(row["key"])].append(str(row["column_name"]))
    columns: dict[int, list[Row]] = defaultdict(list)
    for row in _read(connection, "statement_columns", wanted):
        columns[int(row["place"])].append(row)
    return {
        wanted[place - 1]: _table(rows, frozenset(tuple(key) for (at, _), key in keys.items() if at == place))
        for place, rows in columns.items()
    }


def _read(connection: Connection, name: str, tables: Sequence[TableName]) -> list[Mapping[str, Any]]:
    text = sql.SQL(statement(name, connection.info.server_version // 10000))
    schemas, names = ([table[part] for table in tables] for part in (0, 1))
    return list(fetch(connection, text.format(schemas=sql.Literal(schemas), names=sql.Literal(names))))


def _table(rows: list[Row], keys: frozenset[tuple[str, ...]]) -> Table:
    first = rows[0]
    return Table(
        name=str(first["table_name"]),
        is_system=bool(first["is_system"]),
        is_empty=bool(first["is_empty"]),
        is_referenced=bool(first["is_referenced"]),
        columns={str(row["column_name"]): _column(row) for row in rows},
        unique_keys=keys,
    )


def _column(row: Mapping[str, Any]) -> Column:
    common = row.get("has_common_values")
    return Column(
        name=str(row["column_name"]),
        quoted=str(row["quoted"]),
        type=str(row["type"]),
        base_type=str(row["base_type"]),
        has_default=bool(row["has_default"]),
        in_foreign_key=bool(row["in_foreign_key"]),
        null_fraction=row.get("null_fraction"),
        has_common_values=None if common is None else bool(common),
        width=row.get("width"),
    )


def parameter_types(connection: Connection, text: str) -> tuple[str, ...]:
    """Return the types of $1, $2, … as the server infers them. Raises NotPrepared, psycopg.Error."""
    try:
        # Rolled back, so that no lock of the analysis is held longer.
        with connection.transaction(force_rollback=True):
            connection.execute(f"PREPARE pgdyno_statement AS {text}\n".encode())
    except psycopg.Error as error:
        if connection.closed or error.sqlstate is None:
            raise
        raise NotPrepared(error.diag.message_primary or in_one_line(error)) from None
    row = connection.execute(
        "SELECT /* pgdyno probe */ parameter_types::text[] FROM pg_prepared_statements"
        " WHERE name = 'pgdyno_statement'"
    ).fetchone()
    connection.execute("DEALLOCATE pgdyno_statement")
    return tuple(row[0]) if row else ()
