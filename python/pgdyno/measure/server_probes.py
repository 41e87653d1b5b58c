"""Probes of a server: their sessions, their readings, and statements that a database has recorded.

- Session, statements and reading of a probe: read-only, short, one SQL file for all versions.
- SQL probes of a server: each reads counters or a current state over one connection.
"""

from __future__ import annotations

import re
import struct
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, LiteralString

import psycopg
from psycopg import generators, sql
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.rows import dict_row

from pgdyno.server.builds import OLDEST_MAJOR
from pgdyno.server.connections import set_limit
from pgdyno.server.processes import Connection
from pgdyno.study.defaults import Absence

# ----------------------------------------------------------------------
# Session, statements and reading of a probe: read-only, short, one SQL file for all versions.
#
# Statements of probes must not count in the observed workload. In sessions of superusers pg_stat_statements
# does not track them. In other sessions each statement has a comment by which the probes exclude it.
#
# A line of an SQL file can be limited to versions with a comment at its end: ``-- from 14``, ``-- to 12`` or
# ``-- 14 to 16`` (major versions, inclusive). A colon and a remark can follow. Other lines are for all
# versions.
# ----------------------------------------------------------------------

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
        set_settings(connection, {"pg_stat_statements.track": "none"})
    set_settings(connection, {name: value for name, value in SESSION.items() if _is_known(connection, name)})


def set_statement_timeout(connection: Connection, timeout_s: int) -> None:
    """Set another timeout, for probes that read more than counters."""
    set_limit(connection, timeout_s + NETWORK_S)
    set_settings(connection, {"statement_timeout": f"{timeout_s}s"})


def set_settings(connection: Connection, settings: Mapping[str, str]) -> None:
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


_PREPARED: weakref.WeakKeyDictionary[Connection, set[str]] = weakref.WeakKeyDictionary()
_FLOAT8, _FLOAT8_OID = struct.Struct("!d"), 701


def fetch_prepared(connection: Connection, name: str) -> list[Mapping[str, Any]]:
    """Return the rows of ``sql/NAME.sql``, of texts and float8, as ``fetch`` in half of its CPU time.

    Prepares the connection for probes. Raises psycopg.Error.
    """
    pgconn, key = connection.pgconn, name.encode()
    if name not in (prepared := _PREPARED.setdefault(connection, set())):
        prepare_probe_session(connection)
        pgconn.send_prepare(key, statement(name, connection.info.server_version // 10000).encode())
        _answer(connection)
        prepared.add(name)
    pgconn.send_query_prepared(key, [], result_format=Format.BINARY)
    found = _answer(connection)
    columns = [
        (at, (found.fname(at) or b"").decode(), found.ftype(at) == _FLOAT8_OID) for at in range(found.nfields)
    ]
    return [
        {
            column: _FLOAT8.unpack(value)[0] if is_number else bytes(value).decode()
            for at, column, is_number in columns
            if (value := found.get_value(row, at)) is not None
        }
        for row in range(found.ntuples)
    ]


def _answer(connection: Connection) -> PGresult:
    last: PGresult = connection.wait(generators.execute(connection.pgconn))[-1]
    if last.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise psycopg.errors.error_from_result(last)
    return last


def for_major(text: str, major: int) -> LiteralString:
    """Return the lines for a server of this major version, without comments. Pure."""
    # In these files two hyphens occur only in comments.
    kept = [line.partition("--")[0].rstrip() for line in text.splitlines() if _is_for(line, major)]
    return "\n".join(line for line in kept if line.strip())


def _is_for(line: str, major: int) -> bool:
    found = _FOR.search(line)
    if found is None:
        return True
    first = int(found["from"] or found["first"] or OLDEST_MAJOR)
    return first <= major <= int(found["to"] or found["last"] or major)


# ----------------------------------------------------------------------
# SQL probes of a server: each reads counters or a current state over one connection.
#
# Values are raw, with the column names of the newest PostgreSQL: ``sql/NAME.sql`` has one statement for all
# versions. A probe does not fail if the server lacks something or denies access: the reading then has the
# reason and the remedy.
# ----------------------------------------------------------------------


def find_clients(connection: Connection) -> tuple[int, ...]:
    """Return the process IDs of the client backends of the current database, without probes.

    Prepares the connection for probes. Raises psycopg.Error.
    """
    prepare_probe_session(connection)
    rows = fetch(connection, sql.SQL(statement("clients", connection.info.server_version // 10000)))
    return tuple(int(row["pid"]) for row in rows if row["pid"] is not None)


def autovacuum_runs(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    """Return the number of completed automatic vacuums and analyzes of tables; use differences.

    Needs no privilege (pg_stat_user_tables). Running ones are not included.
    """
    ((total,),) = connection.execute(
        "select coalesce(sum(autovacuum_count + autoanalyze_count), 0) from pg_stat_user_tables"
    ).fetchall()
    return int(total)


ROWS_MAX = 500
"""Maximum number of statements or relations in one reading, the largest; one row has the sums of the others.
Known benchmarks have several times fewer."""

STATTUPLE_ROWS_MAX = 100
"""Maximum number of relations that pgstattuple reads, because it scans them."""

EXACT_BYTES_MAX = 64 << 20
"""Maximum size of a relation that pgstattuple reads completely: at most 0.1 s from memory."""

STATTUPLE_TIMEOUT_S = 60
"""Timeout for 100 relations of 64 MiB. A slow disk reads less than half of them, and the reading has the
reason."""


@dataclass(frozen=True)
class Probe:
    """One source of telemetry of a server.

    ``kind``: counters (use differences of two readings), a snapshot (current state), or sizes (both).
    ``in_series``: some values are also in the series. ``of_server``: values of the whole server, not of one
    database. ``extension``: required in the database; ``preloaded``: also in shared_preload_libraries.
    ``role``: membership that gives access to all values.
    """

    name: str
    about: str
    kind: Literal["counters", "snapshot", "sizes"]
    in_series: bool = False
    of_server: bool = False
    since: int = OLDEST_MAJOR
    extension: str = ""
    preloaded: bool = False
    role: str = "pg_read_all_stats"
    timeout_s: int = STATEMENT_TIMEOUT_S

    def statement(self, major: int) -> LiteralString:
        """Return its SQL for a server of this major version, with placeholders."""
        return statement(self.name, major)


_ALL = (
    Probe(
        "statements",
        "pg_stat_statements: calls, times, rows, blocks and WAL of each statement",
        "counters",
        extension="pg_stat_statements",
        preloaded=True,
    ),
    Probe("wal", "WAL position and pg_stat_wal", "counters", in_series=True, of_server=True),
    Probe(
        "checkpoints",
        "checkpoints, their buffers and times; bgwriter",
        "counters",
        in_series=True,
        of_server=True,
    ),
    Probe("io", "pg_stat_io: reads and writes by kind of process", "counters", since=16, of_server=True),
    Probe(
        "database",
        "pg_stat_database: transactions, rows, blocks, temporary files, deadlocks",
        "counters",
        in_series=True,
    ),
    Probe("blocks", "pg_statio: hits and reads of heaps, indexes and TOAST", "counters"),
    Probe("relations", "tables and indexes: sizes, rows, scans, HOT updates, vacuums", "sizes"),
    Probe(
        "pgstattuple",
        "live, dead and free bytes of tables and indexes",
        "snapshot",
        extension="pgstattuple",
        role="pg_stat_scan_tables",
        timeout_s=STATTUPLE_TIMEOUT_S,
    ),
    Probe("wraparound", "ages of transaction IDs, and the next one", "sizes", in_series=True, of_server=True),
    Probe("waits", "processes by wait event; running vacuums", "snapshot", in_series=True),
    Probe("locks", "locks held and waited for", "snapshot"),
    Probe("replication", "standbys and slots: lag, and WAL kept for them", "snapshot", of_server=True),
)

PROBES: Mapping[str, Probe] = {probe.name: probe for probe in _ALL}

EXTENSIONS: Mapping[str, str] = {probe.name: probe.extension for probe in _ALL if probe.extension}
"""Required extension of a probe in its database."""

NEEDS_PRELOAD = frozenset(probe.name for probe in _ALL if probe.preloaded)
"""Probes whose extension must be in shared_preload_libraries as well."""

_STATEMENTS_MAJORS = (("1.13", 19), ("1.12", 18), ("1.11", 17), ("1.10", 15), ("1.9", 14), ("1.8", 13))
"""Versions of pg_stat_statements, and the server versions with the same columns."""


_SERVER_ENDS = "57P"
"""SQLSTATE class of a server that shuts down or has crashed: the connection is lost."""


class MissingObject(Exception):
    """A missing requirement of a probe: the reason and its code."""

    def __init__(self, reason: str, absence: Absence = Absence.OTHER) -> None:
        super().__init__(reason)
        self.absence = absence


def read_probe(connection: Connection, probe: str) -> ProbeReading:
    """Read one probe. Prepares the connection for probes: autocommit mode, read-only.

    If the server lacks something or denies access, the reading has the ``reason``. Raises psycopg.Error if
    the connection is lost or in a transaction, KeyError for an unknown probe.
    """
    wanted = PROBES[probe]
    begun_s = time.monotonic()
    rows, reason, absence = None, "", None
    try:
        prepare_probe_session(connection)
        rows = _rows(connection, wanted)
        reason = _all_hidden(connection, wanted, rows)
    except MissingObject as missing:
        reason, absence = str(missing), missing.absence
    except psycopg.Error as error:
        if connection.closed or error.sqlstate is None or error.sqlstate.startswith(_SERVER_ENDS):
            raise
        reason = _why_not(connection, wanted, error)
    return ProbeReading(probe, time.monotonic() - begun_s, None if reason else rows, reason, absence)


def _rows(connection: Connection, probe: Probe) -> list[Row]:
    major = connection.info.server_version // 10000
    if major < probe.since:
        raise MissingObject(
            f"requires PostgreSQL {probe.since} or later; the server is {major}", Absence.VERSION
        )
    schema = ""
    if probe.extension:
        version, schema = installed_extension(connection, probe)
        if probe.name == "statements":
            major = statements_major(version)
    text = sql.SQL(probe.statement(major)).format(
        extension=sql.Identifier(schema),
        rows_max=STATTUPLE_ROWS_MAX if probe.name == "pgstattuple" else ROWS_MAX,
        exact_bytes_max=EXACT_BYTES_MAX,
    )
    if probe.timeout_s == STATEMENT_TIMEOUT_S:
        return fetch(connection, text)
    set_statement_timeout(connection, probe.timeout_s)
    try:
        return fetch(connection, text)
    finally:
        if not connection.closed:
            set_statement_timeout(connection, STATEMENT_TIMEOUT_S)


def installed_extension(connection: Connection, probe: Probe) -> tuple[str, str]:
    """Return version and schema of the extension that a probe requires.

    Without this check, the server log would contain errors.
    """
    found = fetch(connection, sql.SQL(statement("extension", 0)).format(name=probe.extension))
    preload = f"add {probe.extension} to shared_preload_libraries and restart the server"
    if not found:
        also = f"; {preload} if it is not preloaded" if probe.preloaded else ""
        raise MissingObject(
            f"requires an extension in the database {connection.info.dbname}: "
            f"CREATE EXTENSION {probe.extension}{also}"
        )
    if probe.preloaded and not found[0]["preloaded"]:
        raise MissingObject(f"{probe.extension} is not preloaded: {preload}")
    return str(found[0]["version"]), str(found[0]["schema"])


def statements_major(version: str) -> int:
    """Return the server version with the columns of a version of pg_stat_statements. The extension may be
    older than the server, until ``ALTER EXTENSION … UPDATE``.
    """
    number = tuple(int(part) for part in version.split("."))
    for first, major in _STATEMENTS_MAJORS:
        if number >= tuple(int(part) for part in first.split(".")):
            return major
    return OLDEST_MAJOR


def _all_hidden(connection: Connection, probe: Probe, rows: list[Row]) -> str:
    """Return the reason if all rows belong to other roles and are hidden; else an empty string."""
    if rows and all(row.get("hidden") for row in rows):
        return f"all rows are hidden from {_grant(connection, probe)}"
    return ""


def _grant(connection: Connection, probe: Probe) -> str:
    user = connection.info.user
    return f"the user {user}: GRANT {probe.role} TO {user}, or pg_monitor"


def _why_not(connection: Connection, probe: Probe, error: psycopg.Error) -> str:
    words = error.diag.message_primary or str(error).partition("\n")[0]
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return f"{words}, for {_grant(connection, probe)}"
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return f"a relation was locked: {words}"
    if isinstance(error, psycopg.errors.QueryCanceled):
        return f"timeout after {probe.timeout_s} s: {words}"
    if isinstance(error, psycopg.errors.CharacterNotInRepertoire) and probe.name == "statements":
        # PostgreSQL converts the texts of all databases; one that cannot be converted fails the whole view.
        return (
            f"pg_stat_statements contains a text of a database with another encoding: {words}; "
            "to remove it, run SELECT pg_stat_statements_reset()"
        )
    return f"the server rejected the query: {words}"
