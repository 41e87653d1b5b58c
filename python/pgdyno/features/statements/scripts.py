"""Scripts from recorded statements and from the transactions of a log.

- Statements that a server has recorded, the types of their parameters, and the tables that they name.
- Transactions in a log of the server: which statements they execute, in which order, and which of their
  values are equal. Values are compared in memory.
- Scripts from the statements that a server has recorded: choose, parse, type and draw.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from pgdyno.errors import ConnectError, DatasetError, PgdynoError, ServerError, UsageError, in_one_line
from pgdyno.features.own_data.source import reading_session as read_only_session
from pgdyno.features.own_data.source import unpacked_lines
from pgdyno.features.statement_parameters.draws import (
    Draw,
    EqualPlaces,
    EqualValues,
    LoggedRange,
    Place,
    Statement,
    logged_statement,
    repeated_draws,
    with_values,
)
from pgdyno.features.statement_parameters.parse import (
    Column,
    ParsedStatement,
    Reason,
    Role,
    Table,
    TableName,
    Tables,
    Unusable,
    fingerprint,
    is_transaction_control,
    parameter_uses,
    parse_statement,
    table_of,
    transaction_modes,
)
from pgdyno.measure.server_probes import (
    PROBES,
    MissingObject,
    fetch,
    installed_extension,
    statement,
    statements_major,
)
from pgdyno.server.builds import OLDEST_MAJOR, version_of
from pgdyno.server.connections import Dsn
from pgdyno.server.processes import Connection
from pgdyno.units import counted, given_percent, percent_text
from pgdyno.workloads.pgbench.parameters import Script

# ----------------------------------------------------------------------
# Statements that a server has recorded, the types of their parameters, and the tables that they name.
#
# Everything is read in sessions that cannot write. PREPARE types the parameters: the server analyzes the
# statement and does not execute it. pg_stat_statements does not record PREPARE. It records the reading
# statements of this module unless the user is a superuser; their comment excludes them from the load.
# ----------------------------------------------------------------------

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


@contextlib.contextmanager
def reading_session(dsn: Dsn) -> Iterator[Connection]:
    """Open a session that cannot write. Raises ConnectError; ServerError if it can write all the same."""
    with read_only_session(dsn, "workload", READ_TIMEOUT_S) as connection:
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
    try:
        version, schema = installed_extension(connection, PROBES["statements"])
    except MissingObject as missing:
        raise ServerError(f"reading the statements: {missing}") from None
    text = sql.SQL(statement("statement_texts", statements_major(version)))
    rows = fetch(connection, text.format(extension=sql.Identifier(schema), rows_max=ROWS_MAX))
    sums = {
        str(row["query"]): (int(_number(row, "statements")), _number(row, "time_ms"))
        for row in rows
        if "queryid" not in row
    }
    found = tuple(
        RecordedStatement(
            str(row["queryid"]),
            None if row.get("query") in (None, "", "<insufficient privilege>") else str(row["query"]),
            *(_number(row, name) for name in ("calls", "rows", "time_ms")),
        )
        for row in rows
        if "queryid" in row
    )
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


def _number(row: Mapping[str, Any], name: str) -> float:
    return float(row.get(name) or 0)


COLUMN_FIELDS = frozenset(one.name for one in fields(Column))


def read_tables(connection: Connection, names: Iterable[TableName]) -> Tables:
    """Return the tables with these names that exist, by name. Raises psycopg.Error."""
    wanted = sorted(names)
    keys: dict[tuple[int, int], list[str]] = defaultdict(list)
    for row in _read(connection, "statement_keys", wanted):
        keys[int(row["place"]), int(row["key"])].append(str(row["column_name"]))
    columns: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in _read(connection, "statement_columns", wanted):
        columns[int(row["place"])].append(row)
    tables = {}
    for place, rows in columns.items():
        facts = {name: rows[0][name] for name in ("is_system", "is_empty", "is_referenced")}
        known = ({name: row[name] for name in row if name in COLUMN_FIELDS} for row in rows)
        by_name = {str(of["name"]): Column(**of) for of in known}
        unique = frozenset(tuple(key) for (at, _), key in keys.items() if at == place)
        tables[wanted[place - 1]] = Table(rows[0]["table_name"], columns=by_name, unique_keys=unique, **facts)
    return tables


def _read(connection: Connection, name: str, tables: Sequence[TableName]) -> list[Mapping[str, Any]]:
    text = sql.SQL(statement(name, connection.info.server_version // 10000))
    schemas, names = ([table[part] for table in tables] for part in (0, 1))
    return list(fetch(connection, text.format(schemas=sql.Literal(schemas), names=sql.Literal(names))))


def parameter_types(connection: Connection, text: str) -> tuple[str, ...]:
    """Return the types of $1, $2, … as the server infers them. Raises Unusable, psycopg.Error."""
    try:
        # Rolled back, so that no lock of the analysis is held longer.
        with connection.transaction(force_rollback=True):
            connection.execute(f"PREPARE pgdyno_statement AS {text}\n".encode())
    except psycopg.Error as error:
        if connection.closed or error.sqlstate is None:
            raise
        raise Unusable(Reason.NOT_PREPARED, error.diag.message_primary or in_one_line(error)) from None
    row = connection.execute(
        "SELECT /* pgdyno probe */ parameter_types::text[] FROM pg_prepared_statements"
        " WHERE name = 'pgdyno_statement'"
    ).fetchone()
    connection.execute("DEALLOCATE pgdyno_statement")
    return tuple(row[0]) if row else ()


# ----------------------------------------------------------------------
# Transactions in a log of the server: which statements they execute, in which order, and which of their
# values are equal. Values are compared in memory.
# ----------------------------------------------------------------------


class Transaction(NamedTuple):
    """The BEGIN of a transaction with its modes, and fingerprints of its statements, without COMMIT."""

    begin: str
    statements: tuple[str, ...]


STATEMENTS_MAX = 30
"""Maximum number of statements of a transaction; longer ones are loads and are not counted."""

TRANSACTIONS_MAX = 100_000
"""Maximum number of different transactions; later ones are not counted."""

COMPARED_MAX = 1000
"""Maximum number of executions of a transaction, or of a statement, whose values are compared: parsing takes
0.1 ms each."""

DISTINCT_MIN = 3
"""Number of different values that places of different columns need to count as equal: fewer are often equal
by chance, or are constants of the application."""

FIELD_CHARS_MAX = 16 << 20
"""Maximum length of a field of csvlog."""

_CSV = {"dbname": 2, "session_id": 5, "vxid": 9, "message": 13, "detail": 14}
_MESSAGE = re.compile(
    r"(?:duration: [\d.]+ ms  )?(?:statement|execute (?!fetch from )[^:]*): (.*)", re.DOTALL
)
"""Executions in English. Further fetches from a portal are parts of its first execution."""


@dataclass
class TransactionLog:
    """Numbers of executions: of transactions with at least two statements, and of all statements.

    ``equal``: by the shapes of the statements of a transaction. ``ranges``: by the shape of a statement, for
    each place of a parameter.
    """

    transactions: Counter[Transaction] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    equal: dict[tuple[str, ...], EqualValues] = field(default_factory=lambda: defaultdict(EqualValues))
    ranges: dict[str, list[LoggedRange]] = field(default_factory=dict)

    def equal_places(self, statements: Sequence[ParsedStatement]) -> list[EqualPlaces]:
        """Return the parameters of a transaction that were equal in all of its executions."""
        found = self.equal.get(tuple(one.shape for one in statements))
        every = [(part, number) for part, one in enumerate(statements) for number in one.numbers]
        if found is None or len(found.groups) != len(every):
            return []
        groups: dict[int, list[Place]] = defaultdict(list)
        for at, group in zip(every, found.groups, strict=True):
            groups[group].append(at)
        return [
            EqualPlaces(tuple(places), len(found.distinct[group]) >= DISTINCT_MIN)
            for group, places in groups.items()
            if len(places) > 1
        ]


def read_transactions(path: Path, database: str, check: Callable[[], None] = lambda: None) -> TransactionLog:
    """Return the transactions of a csvlog or jsonlog, which may be compressed.

    Raises UsageError if the file is neither, or has no statement of the database; Interrupted.
    """
    found = TransactionLog()
    open_ones: dict[str, _Open] = {}  # by backend, whose number no other live session has
    for entry in _entries(path):
        check()
        message = _MESSAGE.fullmatch(entry.get("message") or "")
        if message is None or entry.get("dbname") != database:
            continue
        text, detail = message[1], entry.get("detail") or ""
        session, virtual = entry.get("session_id") or "", entry.get("vxid") or ""
        backend, _, number = virtual.partition("/")
        current = open_ones.setdefault(backend, _Open(session, virtual))
        # Without a number, the statement was logged after its own commit.
        if (current.session, current.virtual) != (session, virtual) or number in ("", "0"):
            # A rollback is logged after the transaction that it ended.
            if current.session != session or not _is_rollback(text):
                _count(found, current)
            current = open_ones[backend] = _Open(session, virtual)
        if (one := _fingerprint(text)) is not None:
            found.statements[one] += 1
            if found.statements[one] <= COMPARED_MAX:
                _add_ranges(found, text, detail)
            if len(current.executed) <= STATEMENTS_MAX:
                current.executed.append((one, text, detail))
        elif modes := _modes(text):
            current.begin = f"BEGIN {modes}"
    for current in open_ones.values():
        _count(found, current)
    if not found.statements:
        raise UsageError(
            f"--log: {path} has no statement of the database {database}: set log_min_duration_statement = 0, "
            "or log_statement = all, with lc_messages = 'C'"
        )
    return found


@dataclass
class _Open:
    """A transaction that is being read. ``executed``: fingerprint, text and detail of each statement."""

    session: str
    virtual: str
    begin: str = "BEGIN"
    executed: list[tuple[str, str, str]] = field(default_factory=list)


def _count(found: TransactionLog, ended: _Open) -> None:
    if not 2 <= len(ended.executed) <= STATEMENTS_MAX:
        return
    transaction = Transaction(ended.begin, tuple(one for one, _, _ in ended.executed))
    if transaction not in found.transactions and len(found.transactions) >= TRANSACTIONS_MAX:
        return
    found.transactions[transaction] += 1
    if found.transactions[transaction] <= COMPARED_MAX:
        logged = [logged_statement(text, detail) for _, text, detail in ended.executed]
        complete = [one for one in logged if one is not None]
        if len(complete) == len(logged):
            shapes = tuple(one.shape for one in complete)
            found.equal[shapes].add([value for one in complete for value in one.values])


def _add_ranges(found: TransactionLog, text: str, detail: str) -> None:
    if (executed := logged_statement(text, detail)) is not None:
        ranges = found.ranges.setdefault(executed.shape, [LoggedRange() for _ in executed.values])
        for one, value in zip(ranges, executed.values, strict=True):
            one.add(value)


@lru_cache(maxsize=10_000)
def _fingerprint(text: str) -> str | None:
    """Return the fingerprint of a statement; None for BEGIN and COMMIT; empty if it is not parsed."""
    return None if is_transaction_control(text, ("BEGIN", "START", "COMMIT")) else fingerprint(text)


@lru_cache(maxsize=10_000)
def _modes(text: str) -> str:
    return transaction_modes(text)


@lru_cache(maxsize=10_000)
def _is_rollback(text: str) -> bool:
    return is_transaction_control(text, ("ROLLBACK",))


def _entries(path: Path) -> Iterator[Mapping[str, str | None]]:
    lines = (line.decode("utf-8", "replace") for line in unpacked_lines(path))
    try:
        first = next(lines, "")
        every = itertools.chain([first], lines) if first else iter(())
        yield from _of_json(every, path) if first.startswith("{") else _of_csv(every, path)
    except DatasetError as error:
        raise UsageError(f"--log: {error}") from None


def _of_json(lines: Iterable[str], path: Path) -> Iterator[Mapping[str, str | None]]:
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            if not line.endswith("\n"):
                return  # the server is writing it
            raise UsageError(f"--log: {path}:{number} is not an entry of jsonlog") from None
        if isinstance(entry, dict):
            yield entry


def _of_csv(lines: Iterable[str], path: Path) -> Iterator[Mapping[str, str | None]]:
    csv.field_size_limit(FIELD_CHARS_MAX)
    reader = csv.reader(lines)
    try:
        for row in reader:
            if len(row) <= max(_CSV.values()):
                if reader.line_num > 1 and next(reader, None) is None:
                    return  # the server is writing it
                raise UsageError(
                    f"--log: {path}:{reader.line_num} is not an entry of csvlog: set log_destination to "
                    "csvlog or jsonlog"
                )
            yield {name: row[place] for name, place in _CSV.items()}
    except csv.Error as error:
        raise UsageError(f"--log: {path}:{reader.line_num}: {error}") from None


# ----------------------------------------------------------------------
# Scripts from the statements that a server has recorded: choose, parse, type and draw.
# ----------------------------------------------------------------------

WEIGHT_MAX = 10**9
"""Larger numbers of calls are scaled; the sum of 128 weights then fits into 64 bits."""

CANDIDATES_PER_SCRIPT = 4
"""Number of statements per script that are typed, so that transactions are complete. Each takes a dozen round
trips to the server."""

NAMED_MAX = 3
"""Number of statements without a script that an error names."""

SHOWN_CHARS = 200
"""Number of characters of a statement in lists."""

BULK_ROWS_MIN = 10_000
"""Number of rows per call from which an INSERT is a bulk load."""

_VARIABLE = re.compile(r"(?<!:):(\w+)")
_NAME_CHARS_MAX = 40


@dataclass(frozen=True)
class MadeScript:
    """A script of one statement, or of a transaction. ``share``: of the execution time. ``shown``: the
    beginning of the text.
    """

    script: Script
    queryids: tuple[str, ...]
    calls: float
    share: float
    draws: Sequence[Draw]
    shown: str


@dataclass(frozen=True)
class LeftOut:
    """A statement, or several, without a script. ``shown``: the beginning of the text, without constants."""

    queryid: str
    calls: float
    share: float
    reason: Reason
    detail: str = ""
    shown: str = ""
    statements: int = 1


@dataclass(frozen=True)
class StatementScripts:
    """The scripts of a database, and what was left out, each by time."""

    load: RecordedLoad
    scripts: Sequence[MadeScript]
    left_out: Sequence[LeftOut]

    @property
    def coverage(self) -> float:
        """Share of the execution time that the scripts have."""
        return min(1.0, sum(one.share for one in self.scripts))

    @property
    def made(self) -> int:
        """Number of statements with a script."""
        return len({queryid for one in self.scripts for queryid in one.queryids})

    @property
    def statements(self) -> int:
        """Number of all statements."""
        return len(self.load.statements) + self.load.hidden[0] + self.load.beyond[0]


@dataclass(frozen=True)
class _Drawn:
    """A statement that can be a part of a script. ``queryids``: more than one if several were merged."""

    queryids: tuple[str, ...]
    recorded: RecordedStatement
    parsed: ParsedStatement
    statement: Statement

    @property
    def shown(self) -> str:
        return _shown(self.parsed)

    @property
    def call_ms(self) -> float:
        return self.recorded.time_ms / max(self.recorded.calls, 1)

    def draws(self, prefix: str = "p", equal: Mapping[int, Draw] | None = None) -> dict[int, Draw]:
        return replace(self.statement, prefix=prefix, equal=equal or {}).draw_all()

    def sql(self, draws: Mapping[int, Draw]) -> str:
        values = {number: draw.sql for number, draw in draws.items()}
        return with_values(self.parsed.text, self.statement.uses, values)


@dataclass(frozen=True)
class _Unit:
    """A statement, or the statements of a transaction, with the number of executions.

    ``equal``: parameters that have the same value in each transaction of the log. ``begin``: its BEGIN.
    """

    parts: tuple[_Drawn, ...]
    calls: float
    equal: Sequence[EqualPlaces] = ()
    begin: str = ""

    @property
    def time_ms(self) -> float:
        return self.calls * sum(part.call_ms for part in self.parts)

    @property
    def shown(self) -> str:
        return self.parts[0].shown if len(self.parts) == 1 else f"transaction of {len(self.parts)} statements"


def scripts_of_load(
    connection: Connection,
    load: RecordedLoad,
    scripts_max: int,
    share_max: float,
    log: TransactionLog | None = None,
    check: Callable[[], None] = lambda: None,
) -> StatementScripts:
    """Make scripts until ``scripts_max``, or the share of the time, is reached.

    Raises PgdynoError if no statement can have a script, psycopg.Error if the connection is lost,
    Interrupted.
    """
    total_ms = load.time_ms or 1.0
    candidates_max = scripts_max if log is None else scripts_max * CANDIDATES_PER_SCRIPT
    drawn, left_out = _all_drawn(connection, load, candidates_max, log, check)
    units = [_Unit((one,), one.recorded.calls) for one in drawn]
    if log is not None:
        units = _grouped(drawn, log, scripts_max // 2)
    made: list[MadeScript] = []
    scale = min(1.0, WEIGHT_MAX / max((unit.calls for unit in units), default=1.0))
    for unit in sorted(units, key=lambda unit: -unit.time_ms):
        share = unit.time_ms / total_ms
        queryid = unit.parts[0].recorded.queryid if len(unit.parts) == 1 else ""
        try:
            if len(made) >= scripts_max or sum(one.share for one in made) >= share_max:
                raise Unusable(Reason.BEYOND)
            made.append(_made(len(made) + 1, unit, share, scale))
        except Unusable as unusable:
            left_out.append(LeftOut(queryid, unit.calls, share, unusable.reason, unusable.detail, unit.shown))
    if not made:
        first = max(left_out, key=lambda one: one.share)
        raise PgdynoError(
            f"no script can be made of the {counted(len(left_out), 'statement')} of {load.database}; the one "
            f"with the longest time: {Unusable(first.reason, first.detail)}"
        )
    return StatementScripts(load, made, sorted(left_out, key=lambda one: -one.share))


def require_coverage(made: StatementScripts, minimum: float) -> None:
    """Raise PgdynoError if the scripts have less than this share of the execution time."""
    if made.coverage >= minimum:
        return
    largest = [
        f"{percent_text(one.share, 1)} {one.reason}{f' ({one.detail})' if one.detail else ''}: "
        f"{one.shown or one.queryid}"
        for one in made.left_out[:NAMED_MAX]
    ]
    raise PgdynoError(
        f"the scripts cover {percent_text(made.coverage, 1)} of the recorded time, less than "
        f"{given_percent(minimum)}: a comparison would not include the other statements. Left out: "
        f"{'; '.join(largest)}. Record the load again after pg_stat_statements_reset(), or accept the "
        f"scripts with --min-coverage {_accepted(made.coverage)}"
    )


def _accepted(coverage: float) -> str:
    return f"{max(1, math.floor(coverage * 100))}%" if coverage >= 0.01 else "0.1%"


def _all_drawn(
    connection: Connection,
    load: RecordedLoad,
    drawn_max: int,
    log: TransactionLog | None,
    check: Callable[[], None],
) -> tuple[list[_Drawn], list[LeftOut]]:
    """Return the first statements that can be parts of scripts, and the others with their reasons."""
    total_ms = load.time_ms or 1.0
    parsed, problems = _parsed(load.statements)
    problems |= _one_off(load.statements, parsed)
    tables = read_tables(connection, {name for one in parsed.values() for name in one.tables})
    drawn: list[_Drawn] = []
    sums = ((load.hidden, Reason.HIDDEN), (load.beyond, Reason.BEYOND))
    left_out = [
        LeftOut("", 0, time_ms / total_ms, reason, statements=count)
        for (count, time_ms), reason in sums
        if count
    ]
    for one in load.statements:
        check()
        try:
            if problem := problems.get(one.queryid):
                raise problem
            if len(drawn) >= drawn_max:
                raise Unusable(Reason.BEYOND)
            drawn.append(_drawn(connection, parsed[one.queryid], tables, one, log))
        except Unusable as unusable:
            shown = _shown(parsed[one.queryid]) if one.queryid in parsed else ""
            share = one.time_ms / total_ms
            left_out.append(LeftOut(one.queryid, one.calls, share, unusable.reason, unusable.detail, shown))
    return drawn, left_out


def _one_off(
    statements: Iterable[RecordedStatement], parsed: Mapping[str, ParsedStatement]
) -> dict[str, Unusable]:
    """Return why statements are not a part of a repeated load, by queryid.

    The calls of statements that differ only in constants, parameters or lengths of lists are added.
    """
    keys = {queryid: fingerprint(one.text) for queryid, one in parsed.items()}
    calls: dict[str, float] = defaultdict(float)
    recorded = [one for one in statements if one.queryid in keys]
    for one in recorded:
        calls[keys[one.queryid]] += one.calls
    found = {}
    for one in recorded:
        rows_per_call = one.rows / max(one.calls, 1)
        if calls[keys[one.queryid]] < 2:
            found[one.queryid] = Unusable(Reason.ONE_OFF, "one call")
        elif parsed[one.queryid].kind == "insert" and rows_per_call >= BULK_ROWS_MIN:
            found[one.queryid] = Unusable(Reason.ONE_OFF, f"bulk load, {rows_per_call:,.0f} rows per call")
    return found


def _shown(parsed: ParsedStatement) -> str:
    return " ".join(parsed.text.split())[:SHOWN_CHARS]


REMAINING_SHARE_MIN = 0.01
"""Smallest share of a statement's calls outside of transactions for which it has a script of its own."""


def _grouped(drawn: Sequence[_Drawn], log: TransactionLog, transactions_max: int) -> list[_Unit]:
    """Return the most expensive transactions of the log, and the statements with their remaining calls.

    pg_stat_statements has the number of calls, and the log may be of a shorter time. So executions in the
    log are multiplied by the ratio of all calls to all executions of the same statements.
    """
    same: dict[str, list[_Drawn]] = defaultdict(list)
    for one in drawn:
        same[fingerprint(one.parsed.text)].append(one)
    merged = {key: _merged(several) for key, several in same.items()}
    logged = [key for key in merged if log.statements[key]]
    ratio = sum(merged[key].recorded.calls for key in logged) / max(
        sum(log.statements[key] for key in logged), 1
    )
    transactions = {
        one: _Unit(tuple(merged[key] for key in one.statements), count * ratio)
        for one, count in log.transactions.items()
        if all(key in merged for key in one.statements)
    }
    chosen = sorted(transactions, key=lambda one: -transactions[one].time_ms)[:transactions_max]
    within: dict[str, float] = defaultdict(float)
    for transaction in chosen:
        for key in transaction.statements:
            within[key] += transactions[transaction].calls
    for key, calls in within.items():
        of = merged[key].recorded
        if calls > of.calls:  # the log has a larger share of it
            # The time and the rows per call stay the same.
            rows = of.rows * calls / max(of.calls, 1)
            merged[key] = replace(merged[key], recorded=replace(of, calls=calls, rows=rows))
    alone = [
        _Unit((one,), one.recorded.calls * remaining)
        for key, several in same.items()
        if (remaining := 1 - within[key] / max(merged[key].recorded.calls, 1)) >= REMAINING_SHARE_MIN
        for one in several
    ]
    together = []
    for transaction in chosen:
        parts = tuple(merged[key] for key in transaction.statements)
        equal = log.equal_places([part.parsed for part in parts])
        together.append(_Unit(parts, transactions[transaction].calls, equal, transaction.begin))
    return [*together, *alone]


def _merged(several: Sequence[_Drawn]) -> _Drawn:
    """Return the one with most calls, with the sums of all: pg_stat_statements distinguishes parameters of
    the protocol from constants, and the lengths of lists.
    """
    first = max(several, key=lambda one: one.recorded.calls)
    sums = {
        name: sum(getattr(one.recorded, name) for one in several) for name in ("calls", "rows", "time_ms")
    }
    queryids = tuple(one.recorded.queryid for one in several)
    return replace(first, queryids=queryids, recorded=replace(first.recorded, **sums))


def _parsed(
    statements: Iterable[RecordedStatement],
) -> tuple[dict[str, ParsedStatement], dict[str, Unusable]]:
    """Return the parsed statements, and why others are not, by queryid."""
    parsed, problems = {}, {}
    for one in statements:
        try:
            if one.text is None:
                raise Unusable(Reason.NO_TEXT)
            parsed[one.queryid] = parse_statement(one.text)
        except Unusable as unusable:
            problems[one.queryid] = unusable
    return parsed, problems


def _drawn(
    connection: Connection,
    parsed: ParsedStatement,
    tables: Tables,
    recorded: RecordedStatement,
    log: TransactionLog | None,
) -> _Drawn:
    """Return the statement with draws, both accepted by the server. Raises Unusable."""
    own = {name: tables[name] for name in parsed.tables if name in tables}
    if system := next((table.name for table in own.values() if table.is_system), None):
        raise Unusable(Reason.SYSTEM, system)
    target = own.get(table_of(parsed.body.get("relation", {})))
    if parsed.kind == "delete" and target is not None and target.is_referenced:
        raise Unusable(Reason.REFERENCED, target.name)
    uses, copied = parameter_uses(parsed, own)
    fixed = {use.number: use.fixed for use in uses if use.role is Role.FIXED}
    numbers = sorted({use.number for use in uses} - fixed.keys())
    positions = fixed | {number: f"${place}" for place, number in enumerate(numbers, 1)}
    types = parameter_types(connection, with_values(parsed.text, uses, positions))
    rows_per_call = recorded.rows / recorded.calls if recorded.calls else 0.0
    ranges = log.ranges.get(parsed.shape, ()) if log is not None else ()
    statement = Statement(
        uses,
        dict(zip(numbers, types, strict=False)),
        own,
        rows_per_call,
        copied,
        ranges=dict(zip(parsed.numbers, ranges, strict=False)),
    )
    drawn = _Drawn((recorded.queryid,), recorded, parsed, statement)
    draws = drawn.draws()
    variables: list[str] = []

    def position(found: re.Match[str]) -> str:
        variables.append(found[1])
        return f"${len(variables)}"

    sql = {number: _VARIABLE.sub(position, draw.sql) for number, draw in draws.items()}
    parameter_types(connection, with_values(parsed.text, uses, sql))
    return drawn


def _made(number: int, unit: _Unit, share: float, scale: float) -> MadeScript:
    """Return the script of a unit. Raises Unusable."""
    several = len(unit.parts) > 1
    lines, commands, body = [], [], []
    draws: list[Draw] = []
    if several:
        lines.append(f"-- transaction: {unit.calls:,.0f} calls, {share:.1%} of the execution time")
    for part, own in zip(unit.parts, _draws(unit), strict=True):
        recorded = part.recorded
        calls = "" if several else f"{unit.calls:,.0f} calls, {share:.1%} of the execution time, "
        rows = recorded.rows / max(recorded.calls, 1)
        lines.append(f"-- queryid {recorded.queryid}: {calls}{rows:.1f} rows per call")
        lines += [
            f"-- ${draw.number} {draw.type}".rstrip() + f": {draw.about}"
            for draw in own.values()
            if not draw.is_stub  # its mark says more
        ]
        commands += [command for draw in own.values() for command in draw.commands]
        body.append(f"{part.sql(own)};")
        draws += own.values()
    if not all(line.isprintable() for line in (*lines, *commands)):
        raise Unusable(Reason.NAME)  # a line break could begin a command of pgbench, which runs programs
    if several:
        body = [f"{unit.begin};", *body, "END;"]
    script = Script(
        name=f"{number:03}_{_words(unit)}",
        weight=max(1, round(unit.calls * scale)),
        text="\n".join([*lines, *commands, *body, ""]),
        share=min(1.0, share),
    )
    queryids = dict.fromkeys(queryid for part in unit.parts for queryid in part.queryids)
    return MadeScript(script, tuple(queryids), unit.calls, share, draws, unit.shown)


def _draws(unit: _Unit) -> list[dict[int, Draw]]:
    """Return the draws of each statement; values that are equal in the log are drawn once."""
    if len(unit.parts) == 1:
        return [unit.parts[0].draws()]
    prefixes = [f"s{place}p" for place in range(1, len(unit.parts) + 1)]
    alone = [part.draws(prefix) for part, prefix in zip(unit.parts, prefixes, strict=True)]
    repeated = repeated_draws(alone, unit.equal)
    return [
        part.draws(prefix, {number: draw for (of, number), draw in repeated.items() if of == place})
        for place, (part, prefix) in enumerate(zip(unit.parts, prefixes, strict=True))
    ]


def _words(unit: _Unit) -> str:
    """Return kind and table, for the name of a script."""
    first = unit.parts[0]
    kind = first.parsed.kind if len(unit.parts) == 1 else "transaction"
    table = next((name[1] for name in first.parsed.tables if name in first.statement.tables), "")
    return re.sub(r"[^a-z0-9]+", "_", f"{kind} {table}".lower()).strip("_")[:_NAME_CHARS_MAX]
