"""Probes of a server: their sessions, their readings, and statements that a database has recorded.

- Session, statements and reading of a probe: read-only, short, one SQL file for all versions.
- Sampling of one server: a connection that is reopened after a loss, and its series.
- Sampler of servers and machine, once per second during a run: one thread, one connection per server.
- SQL probes of a server: each reads counters or a current state over one connection.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from types import TracebackType
from typing import Any, Literal, LiteralString, Self

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from pgdyno.errors import PgdynoError, in_one_line
from pgdyno.measure.host_counters import process_cpu_s, server_cpu
from pgdyno.server.builds import OLDEST_MAJOR
from pgdyno.server.connections import set_limit
from pgdyno.server.processes import Connection
from pgdyno.study.sizing import Absence

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


# ----------------------------------------------------------------------
# Sampling of one server: a connection that is reopened after a loss, and its series.
#
# The series are ``server`` (counters), ``waits`` (wait-event samples) and ``host`` (this machine, and the
# server processes on it). Only the sampler's thread uses it; other threads can use ``cpu_s`` and ``cut``.
# ----------------------------------------------------------------------

AT, LATE = "at_s", "late_s"


class SeriesEnd(StrEnum):
    """Reason for the end of a series."""

    SERVER_LOST = "server-lost"
    """The connection ended: shutdown, crash, administrator or network. The message of a shutdown is lost if
    the socket is closed before it is read.
    """
    NOT_CONNECTED = "not-connected"
    QUERY_FAILED = "query-failed"
    PROBE_FAILED = "probe-failed"
    SAMPLER_FAILED = "sampler-failed"


@dataclass(frozen=True)
class Chunk:
    """Consecutive samples: ``points`` has shape (n, len(columns)), ascending in ``at_s``; NaN: missing.

    The first two columns are ``at_s``, the time of the sample, and ``late_s``, its delay; samples due in
    between were skipped. ``ending``: why the series ends here, with the error in ``reason``; n may be 0 then.
    ``target``: number given by the caller.
    """

    target: int
    probe: str
    columns: tuple[str, ...]
    points: npt.NDArray[np.float64]
    ending: SeriesEnd | None = None
    reason: str = ""


@dataclass
class Gathering:
    """Buffer of samples of one probe and target, until they are taken as a chunk.

    ``absent``: value of a column that this sample does not have, but another one has.
    """

    target: int
    probe: str
    absent: float = math.nan
    _rows: list[tuple[float, float, Mapping[str, float]]] = field(default_factory=list)
    _last_failure: tuple[SeriesEnd, str] | None = None

    def add(self, at_s: float, late_s: float, values: Mapping[str, float]) -> None:
        """Add a sample."""
        self._rows.append((at_s, late_s, values))
        self._last_failure = None

    def take(self) -> Chunk | None:
        """Return the samples since the last call, if any."""
        return self._chunk() if self._rows else None

    def fail(self, ending: SeriesEnd, reason: str) -> Chunk | None:
        """Return the samples, with the reason why the series ends; None if the reason is unchanged."""
        if (ending, reason) == self._last_failure:
            return None
        self._last_failure = ending, reason
        return self._chunk(ending, reason)

    def _chunk(self, ending: SeriesEnd | None = None, reason: str = "") -> Chunk:
        names = tuple(dict.fromkeys(name for _, _, values in self._rows for name in values))
        points = np.empty((len(self._rows), 2 + len(names)), dtype=np.float64)
        for row, (at_s, late_s, values) in zip(points, self._rows, strict=True):
            row[:] = [at_s, late_s, *(values.get(name, self.absent) for name in names)]
        self._rows = []
        return Chunk(self.target, self.probe, (AT, LATE, *names), points, ending, reason)


COUNTERS = frozenset(
    {
        *("xact_commit", "xact_rollback", "blks_read", "blks_hit", "temp_files", "temp_bytes", "deadlocks"),
        *("num_timed", "num_requested", "num_done", "buffers_written", "buffers_clean", "buffers_backend"),
        *("wal_fpi", "lsn_bytes"),
    }
)
"""Columns that only grow (until a reset): use differences."""

GAUGES = frozenset(
    {"active_backends", "waiting_backends", "autovacuum_workers", "oldest_xmin_age", "frozen_xid_age"}
)
"""Columns with a current state."""

SERIES = tuple(sorted(COUNTERS | GAUGES))

RUNNING = "running"
"""Name for no wait event: on CPU, runnable, or in code without a wait event."""


def sample(connection: Connection) -> Mapping[str, float]:
    """Return one sample of SERIES, without columns that this version lacks or hides.

    Prepares the connection for probes. Raises psycopg.Error.
    """
    prepare_probe_session(connection)
    (row,) = fetch(connection, sql.SQL(statement("sample", connection.info.server_version // 10000)))
    return {name: float(value) for name, value in row.items() if value is not None}


def sample_waits(connection: Connection) -> Mapping[str, float]:
    """Return the number of active backends of this database by wait event (``TYPE/EVENT``), or RUNNING.

    Backends of other users need pg_read_all_stats. Raises psycopg.Error.
    """
    prepare_probe_session(connection)
    rows = fetch(connection, sql.SQL(statement("sample_waits", connection.info.server_version // 10000)))
    return {str(row["wait"]): float(row["backends"] or 0) for row in rows}


SERVER, WAITS, HOST = "server", "waits", "host"

SAMPLES = "samples"
"""Column of the waits: number of wait-event samples in this step. Other columns are sums over these."""

Sample = Callable[[Connection], Mapping[str, float]]
Now = Callable[[], float]


@dataclass(frozen=True)
class Target:
    """Access of the sampler to an arm. ``number``: given by the caller, for its chunks.

    ``sample`` and ``sample_waits``: None if not requested. ``postmaster_pid`` returns None for a remote
    server. ``each_look``: store every wait-event sample separately, so that it can be attributed to a slice;
    else a row has their sum since the last one.
    """

    number: int
    connect: Callable[[], Connection]
    sample: Sample | None = None
    sample_waits: Sample | None = None
    postmaster_pid: Callable[[], int | None] = lambda: None
    each_look: bool = False


class SampledServer:
    """See above. ``now_s`` returns the time of the series."""

    def __init__(self, target: Target, now_s: Now) -> None:
        self.target = target
        self.cpu_s: float | None = None  # of the sampler's backends on this server so far; None: unknown
        self._now_s = now_s
        self._connection: Connection | None = None
        self._ended_cpu_s = 0.0  # of ended backends
        self._server_cpu_s = 0.0  # of all processes of the server
        self._counters = Gathering(target.number, SERVER)
        self._waits = Gathering(target.number, WAITS, absent=0.0)
        self._host = Gathering(target.number, HOST)
        self._wait_samples: Counter[str] = Counter()
        asked = [(self._counters, target.sample), (self._waits, target.sample_waits)]
        self._asked = [gathering for gathering, sample in asked if sample is not None]

    def tick(self, due_s: float, machine: Mapping[str, float]) -> Iterator[Chunk]:
        """Take the samples due at that time, after a reconnection if necessary. Yields series that end."""
        self._host.add(*self._moment(due_s), {**machine, **self._processes()})
        if not self._asked:
            return
        if self._connection is None:
            yield from self._connect()
        if self.target.sample is not None and self._connection is not None:
            moment = self._moment(due_s)
            found, ended = self._ask(self.target.sample)
            if found is not None:
                self._counters.add(*moment, found)
            yield from ended
        yield from self.look(due_s)
        self._store_wait_samples(due_s)

    def look(self, due_s: float) -> Iterator[Chunk]:
        """Take a wait-event sample. Yields series that end."""
        if self.target.sample_waits is not None and self._connection is not None:
            found, ended = self._ask(self.target.sample_waits, self._waits)
            if found is not None:
                self._wait_samples.update({SAMPLES: 1, **found})
                if self.target.each_look:
                    self._store_wait_samples(due_s)
            yield from ended
        self._note_cpu()

    def take(self) -> Iterator[Chunk]:
        """Yield the samples since the last call."""
        for gathering in (*self._asked, self._host):
            if chunk := gathering.take():
                yield chunk

    def end(self, failure: str = "") -> Iterator[Chunk]:
        """Yield the remaining samples, with the failure of the sampler if any, and close the connection."""
        self._store_wait_samples(self._now_s())
        for gathering in (*self._asked, self._host):
            if chunk := gathering.fail(SeriesEnd.SAMPLER_FAILED, failure) if failure else gathering.take():
                yield chunk
        self._disconnect()

    def cut(self) -> None:
        """End a wait on the connection, from another thread."""
        connection = self._connection
        if connection is None:
            return
        # The thread may close it at any time: a duplicate of its socket stays valid.
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(connection.fileno())) as ours,
        ):
            ours.shutdown(socket.SHUT_RDWR)

    def _moment(self, due_s: float) -> tuple[float, float]:
        at_s = self._now_s()
        return at_s, max(at_s - due_s, 0.0)

    def _ask(
        self, sample: Sample, of: Gathering | None = None
    ) -> tuple[Mapping[str, float] | None, list[Chunk]]:
        """Return the sample; or None with the series that end: all of them after a loss of the server."""
        assert self._connection is not None
        try:
            return sample(self._connection), []
        except Exception as error:  # noqa: BLE001
            # A fault in one sample must not end the other series, but is reported.
            if self._connection.closed or _is_fatal(error):
                self._disconnect()
                return None, self._fail(SeriesEnd.SERVER_LOST, error)
            ending = SeriesEnd.QUERY_FAILED if isinstance(error, psycopg.Error) else SeriesEnd.PROBE_FAILED
            chunk = (of or self._counters).fail(ending, _error_text(error))
            return None, [chunk] if chunk else []

    def _connect(self) -> Iterator[Chunk]:
        try:
            self._connection = self.target.connect()
            # Timeouts protect the other servers: a query that waits for a lock must not stop their series.
            prepare_probe_session(self._connection)
        except (PgdynoError, psycopg.Error, OSError) as error:
            self._disconnect()
            yield from self._fail(SeriesEnd.NOT_CONNECTED, error)

    def _fail(self, ending: SeriesEnd, error: Exception) -> list[Chunk]:
        self._store_wait_samples(self._now_s())
        return [chunk for one in self._asked if (chunk := one.fail(ending, _error_text(error)))]

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._note_cpu()
            self._ended_cpu_s = self.cpu_s or 0.0
            self._connection.close()
            self._connection = None

    def _store_wait_samples(self, due_s: float) -> None:
        if self._wait_samples:
            self._waits.add(*self._moment(due_s), self._wait_samples)
            self._wait_samples = Counter()

    def _note_cpu(self) -> None:
        if self._connection is None or self.target.postmaster_pid() is None:
            return
        # A backend that has ended reads as 0: the last value remains.
        used_s = self._ended_cpu_s + process_cpu_s(self._connection.info.backend_pid)
        self.cpu_s = max(self.cpu_s or 0.0, used_s)

    def _processes(self) -> Mapping[str, float]:
        pid = self.target.postmaster_pid()
        if pid is None:
            return {}
        try:
            # The time of a process that has ended is rounded down, but a counter must not decrease.
            self._server_cpu_s = max(self._server_cpu_s, server_cpu(pid).total_s)
        except ProcessLookupError:
            return {}
        return {"server_cpu_s": self._server_cpu_s}


def _is_fatal(error: Exception) -> bool:
    """Return whether the error ends the session. libpq may not have detected the closed socket yet."""
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _error_text(error: Exception) -> str:
    words = in_one_line(error)
    return words if isinstance(error, (psycopg.Error, PgdynoError)) else f"{type(error).__name__}: {words}"


# ----------------------------------------------------------------------
# Sampler of servers and machine, once per second during a run: one thread, one connection per server.
#
#     targets = [Target(trial, arm.connect, sample, sample_waits, arm.postmaster_pid)]
#     sampler = Sampler(targets, HostCounters([data_dir]).read, monotonic_of(epoch_unix_s))
#     with sampler:
#         …                                   # the run
#         for chunk in sampler.drain():       # now and then, and once more after its end
#             …
#
# The schedule is absolute: a tick is due at whole steps since ``zero_s``, without drift. A late tick is taken
# at once, with the delay in ``late_s``; ticks that were due in between are skipped. Wait events are sampled
# ``WAITS_PER_TICK`` times per step.
# ----------------------------------------------------------------------

STEP_S = 1.0
POINTS_MAX = 21_600
"""Maximum samples of a series: six hours of seconds. A hundred columns have 17 MB per trial before
compression, and no chart shows more."""

WAITS_PER_TICK = 5
"""Wait-event samples per tick. Each costs 0.5 ms of CPU, mostly for the wake-up."""

CHUNK_S = 600.0
"""Duration of a chunk: ten minutes. A power loss loses one, of a trial that is repeated anyway. Chunks of a
minute would need 1.6 times the space, for column names and partly filled pages.
"""

CHUNKS_MAX = 1000
"""Maximum number of chunks that wait to be drained: a day of two servers, 200 MB. Then the sampler ends."""

GRACE_S = 2.0
"""Time for a running sample after ``stop``, before its connection is closed."""

CUT_S = 5.0
"""Time for the thread to end after that. It takes longer only while it connects to a server that does not
answer, and is then abandoned."""
CUT_STEP_S = 0.1

Host = Callable[[], Mapping[str, float]]
Wait = Callable[[float], bool]


def step_for(window_s: float) -> float:
    """Return the seconds between samples for a run of this length: 1 up to six hours, then the smallest
    integer that keeps ``POINTS_MAX``.
    """
    return max(STEP_S, float(math.ceil(window_s / (POINTS_MAX * STEP_S))))


@dataclass(frozen=True)
class Cost:
    """CPU time of the sampler: of its thread, and of its backends by target, None for remote servers."""

    thread_s: float
    backends_s: Mapping[int, float | None]

    def of(self, target: int) -> float:
        """Return the CPU time of one target: its backend and its share of the thread."""
        return (self.backends_s[target] or 0.0) + self.thread_s / len(self.backends_s)


def monotonic_of(unix_s: float) -> float:
    """Convert a Unix time to the monotonic clock."""
    return time.monotonic() - (time.time() - unix_s)


class Sampler:
    """See above. Only tests replace ``clock`` and ``wait`` (which returns whether to stop)."""

    def __init__(
        self,
        targets: Sequence[Target],
        host: Host,
        zero_s: float,
        *,
        step_s: float = STEP_S,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait | None = None,
    ) -> None:
        self._stopping = threading.Event()
        self._host = host
        self._zero_s = zero_s
        self._step_s = step_s
        self._slot_s = step_s / WAITS_PER_TICK
        self._clock = clock
        self._wait = wait or self._stopping.wait
        self._servers = [SampledServer(target, self._now_s) for target in targets]
        self._chunks: list[Chunk] = []
        self._lock = threading.Lock()
        self._thread_s = 0.0
        self._marked = Cost(0.0, {server.target.number: 0.0 for server in self._servers})
        self._thread = threading.Thread(target=self.run, name="pgdyno-sampler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread promptly. Never raises. Its samples can still be drained."""
        self._stopping.set()
        if self._thread.ident is None:
            return
        self._thread.join(GRACE_S)
        # Repeated, because the thread may continue with the next server.
        for _ in range(round(CUT_S / CUT_STEP_S)):
            if not self._thread.is_alive():
                return
            for server in self._servers:
                server.cut()
            self._thread.join(CUT_STEP_S)

    def drain(self) -> list[Chunk]:
        """Return the finished chunks, each once. Runs on the caller's thread."""
        with self._lock:
            chunks, self._chunks = self._chunks, []
        return chunks

    def mark(self) -> Cost:
        """Return the cost of the sampler since the last call or the start, up to its last wait-event sample,
        at most 1 / WAITS_PER_TICK of a step ago.
        """
        now = Cost(self._thread_s, {server.target.number: server.cpu_s for server in self._servers})
        before, self._marked = self._marked, now
        return Cost(
            now.thread_s - before.thread_s,
            {
                number: None if cpu_s is None else cpu_s - (before.backends_s[number] or 0.0)
                for number, cpu_s in now.backends_s.items()
            },
        )

    def run(self) -> None:
        """Run the loop of the thread until it is stopped."""
        try:
            self._go_on()
            reason = ""
        except Exception as error:  # noqa: BLE001
            # A fault of a probe must not fail the trial, but is reported.
            reason = f"the sampler failed: {type(error).__name__}: {error}"
        for server in self._servers:
            self._hand_over(server.end(reason))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _now_s(self) -> float:
        return self._clock() - self._zero_s

    def _go_on(self) -> None:
        slot = math.ceil(self._now_s() / self._slot_s)
        chunk_from_s = slot * self._slot_s
        while not self._wait(max(slot * self._slot_s - self._now_s(), 0.0)):
            latest = max(slot, math.floor(self._now_s() / self._slot_s))
            tick = math.ceil(slot / WAITS_PER_TICK)  # the first tick that is due
            if tick * WAITS_PER_TICK <= latest:
                self._tick(tick * self._step_s)
            else:
                for server in self._servers:
                    self._hand_over(server.look(slot * self._slot_s))
            if self._now_s() - chunk_from_s >= CHUNK_S:
                chunk_from_s += CHUNK_S * math.floor((self._now_s() - chunk_from_s) / CHUNK_S)
                for server in self._servers:
                    self._hand_over(server.take())
            if len(self._chunks) > CHUNKS_MAX:
                raise RuntimeError(f"{CHUNKS_MAX} chunks were not drained")
            self._thread_s = time.thread_time()
            slot = latest + 1

    def _tick(self, due_s: float) -> None:
        machine = self._host()
        for server in self._servers:
            self._hand_over(server.tick(due_s, machine))

    def _hand_over(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            with self._lock:
                self._chunks.append(chunk)


# ----------------------------------------------------------------------
# SQL probes of a server: each reads counters or a current state over one connection.
#
# clients = find_clients(connection)      # once the driver has connected before = scheduled(clients) … after
# = scheduled(clients)
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
    row = connection.execute(
        "select coalesce(sum(autovacuum_count + autoanalyze_count), 0) from pg_stat_user_tables"
    ).fetchone()
    assert row is not None
    return int(row[0])


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
    Probe(
        "wal",
        "WAL position and pg_stat_wal",
        "counters",
        in_series=True,
        of_server=True,
    ),
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

_STATEMENTS_MAJORS = (("1.12", 18), ("1.11", 17), ("1.10", 15), ("1.9", 14), ("1.8", 13))
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
