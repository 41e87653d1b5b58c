"""Samples of servers and machine during a run.

- Sampling of one server: a connection that is reopened after a loss, and its series.
- Sampler of servers and machine, once per second during a run: one thread, one connection per server.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from pgdyno.analysis.telemetry.samples import HOST, OF_STATEMENT, SAMPLES, SERVER, WAITS, WORKER, WORKER_TIMES
from pgdyno.errors import PgdynoError, in_one_line
from pgdyno.measure.host_counters import lifetime, process_cpu_s, server_cpu
from pgdyno.measure.server_probes import fetch_prepared, prepare_probe_session
from pgdyno.server.processes import Connection

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


def sample(connection: Connection) -> Mapping[str, float]:
    """Return one sample of ``sample.sql``, without columns that this version lacks or hides.

    Prepares the connection for probes. Raises psycopg.Error.
    """
    (row,) = fetch_prepared(connection, "sample")
    return row


def sample_waits(connection: Connection, workers: WorkerTimes | None = None) -> Mapping[str, float]:
    """Return the number of active backends of this database by wait event (``TYPE/EVENT``), or RUNNING.

    See ``sample_waits.sql``. ``workers``: for a local server, times of its parallel workers. Backends of
    other users need pg_read_all_stats. Raises psycopg.Error.
    """
    rows = fetch_prepared(connection, "sample_waits")
    found = backends_by_wait(rows)
    if workers is None:
        return found
    return {**found, **workers.growth(int(row["pid"]) for row in rows if "pid" in row)}


def backends_by_wait(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return the sums of these rows of ``sample_waits.sql`` by wait event.

    A backend that waits for its parallel workers is counted in their states (``worker …``), in equal parts.
    Others are counted by statement, too.
    """
    found, workers, waiting = defaultdict[str, float](float), Counter[Any](), Counter[Any]()
    for row in rows:
        if "background" in row:
            found[row["background"]] += row["backends"]
        if "leader" in row:
            (workers if "pid" in row else waiting)[row["leader"]] += row["backends"]
    for row in rows:
        leader = row.get("leader")
        if "pid" in row and waiting[leader]:
            found[WORKER + row["wait"]] += waiting[leader] / workers[leader]
        elif "wait" in row and "pid" not in row and not workers[leader]:
            found[row["wait"]] += row["backends"]
            if "query_id" in row:
                found[f"{OF_STATEMENT}{row['query_id']} {row['wait']}"] += row["backends"]
    return found


@dataclass
class WorkerTimes:
    """Times of parallel workers. Those of a worker after its last sample are missing."""

    _last: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def growth(self, pids: Iterable[int]) -> Mapping[str, float]:
        """Return the times since the last call, or the start of each process, by column. Empty if unknown."""
        last, self._last = self._last, {pid: of for pid in pids if (of := lifetime(pid)) is not None}
        grown = dict.fromkeys(WORKER_TIMES, 0.0) if self._last else {}
        for pid, times in self._last.items():
            before = last.get(pid, (0.0,) * len(times))
            if before[-1] > times[-1]:
                before = (0.0,) * len(times)  # another process with this number
            for column, now_s, before_s in zip(WORKER_TIMES, times, before, strict=True):
                grown[column] += now_s - before_s
        return grown


OF_STATEMENTS_MAX = 100
"""Maximum number of columns of statements: one for each with each wait."""

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
        self._prepared_cpu_s = 0.0  # of the present backend before the measured part
        self._server_cpu_s = 0.0  # of all processes of the server
        self._counters = Gathering(target.number, SERVER)
        self._waits = Gathering(target.number, WAITS, absent=0.0)
        self._host = Gathering(target.number, HOST)
        self._wait_samples: Counter[str] = Counter()
        self._of_statements: set[str] = set()  # columns
        asked = [(self._counters, target.sample), (self._waits, target.sample_waits)]
        self._asked = [gathering for gathering, sample in asked if sample is not None]

    def prepare(self) -> Iterator[Chunk]:
        """Connect and take the first samples, which cost many times as much, without keeping them."""
        if self._asked:
            yield from self._connect()
        for sample in (self.target.sample, self.target.sample_waits):
            if sample is not None and self._connection is not None:
                yield from self._ask(sample)[1]
        if self._connection is not None:
            self._prepared_cpu_s = process_cpu_s(self._connection.info.backend_pid)

    def tick(self, due_s: float, machine: Mapping[str, float], *, looks: bool) -> Iterator[Chunk]:
        """Take the samples due at that time, after a reconnection if necessary. Yields series that end.

        ``looks``: whether a wait-event sample is due.
        """
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
        if looks:
            yield from self.look(due_s)
        self._note_cpu()
        self._store_wait_samples(due_s)

    def look(self, due_s: float) -> Iterator[Chunk]:
        """Take a wait-event sample. Yields series that end."""
        if self.target.sample_waits is not None and self._connection is not None:
            found, ended = self._ask(self.target.sample_waits, self._waits)
            if found is not None:
                self._wait_samples.update({SAMPLES: 1, **dict(filter(self._has_column, found.items()))})
                if self.target.each_look:
                    self._store_wait_samples(due_s)
            yield from ended
        self._note_cpu()

    def _has_column(self, of: tuple[str, float]) -> bool:
        """Return whether a column is stored: the first ones of statements, and all others."""
        name, _ = of
        if name.startswith(OF_STATEMENT) and len(self._of_statements) < OF_STATEMENTS_MAX:
            self._of_statements.add(name)
        return not name.startswith(OF_STATEMENT) or name in self._of_statements

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
            self._ended_cpu_s, self._prepared_cpu_s = self.cpu_s or 0.0, 0.0
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
        used_s = self._ended_cpu_s + process_cpu_s(self._connection.info.backend_pid) - self._prepared_cpu_s
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
#     sampler.start()
#     …                                       # the run
#     for chunk in sampler.drain():           # now and then, and once more after sampler.stop()
#         …
#
# The schedule is absolute: a tick is due at whole steps since ``zero_s``, without drift. A late tick is taken
# at once, with the delay in ``late_s``; ticks that were due in between are skipped. Wait events of the server
# that is driven are sampled ``WAITS_PER_TICK`` times per step at first (``waits_per_tick``).
# ----------------------------------------------------------------------

STEP_S = 1.0
POINTS_MAX = 21_600
"""Maximum samples of a series: six hours of seconds. Two hundred columns have 35 MB per trial before
compression, and no chart shows more."""

WAITS_PER_TICK, WAITS_PER_TICK_MIN, WAITS_PER_TICK_MAX = 5, 2, 10
"""Wait-event samples per tick: of all servers at first, at least, even if they cost more than CPU_SHARE_MAX,
and at most. A sample costs about 0.5 ms of CPU (``python -m bench readings``)."""

CPU_SHARE_MAX = 0.0045
"""CPU time that all samples may cost, as a share of a core: a tenth below 0.5%, because it varies."""

CHUNK_S = 600.0
"""Duration of a chunk: ten minutes. A power loss loses one, of a trial that is repeated anyway. Chunks of a
minute would need 1.6 times the space, for column names and partly filled pages.
"""

CHUNKS_MAX = 1000
"""Maximum number of chunks that wait to be drained: a day of two servers, 500 MB. Then the sampler ends."""

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


def waits_per_tick(cost_s: float, step_s: float) -> int:
    """Return the number of wait-event samples per tick that CPU_SHARE_MAX pays for, at this cost of each."""
    return min(max(int(CPU_SHARE_MAX * step_s / cost_s), WAITS_PER_TICK_MIN), WAITS_PER_TICK_MAX)


def monotonic_of(unix_s: float) -> float:
    """Convert a Unix time to the monotonic clock."""
    return time.monotonic() - (time.time() - unix_s)


class Sampler:
    """See above. ``driven`` returns the number of the only target whose clients run; None: of all.

    Only tests replace ``clock`` and ``wait`` (which returns whether to stop).
    """

    def __init__(
        self,
        targets: Sequence[Target],
        host: Host,
        zero_s: float,
        *,
        step_s: float = STEP_S,
        driven: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait | None = None,
    ) -> None:
        self._stopping = threading.Event()
        self._host = host
        self._zero_s = zero_s
        self._step_s = step_s
        self._driven = driven
        self._per_tick = math.ceil(WAITS_PER_TICK / max(1, len(targets) if driven() is None else 1))
        self._looks = 0
        self._clock = clock
        self._wait = wait or self._stopping.wait
        self._servers = [SampledServer(target, self._now_s) for target in targets]
        self._chunks: list[Chunk] = []
        self._lock = threading.Lock()
        self._thread_s = 0.0
        self._marked = Cost(0.0, {server.target.number: 0.0 for server in self._servers})
        self._thread = threading.Thread(target=self.run, name="pgdyno-sampler", daemon=True)

    def prepare(self) -> None:
        """Connect before the measured part. Its CPU time is not counted."""
        for server in self._servers:
            self._hand_over(server.prepare())

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

    def _now_s(self) -> float:
        return self._clock() - self._zero_s

    def _go_on(self) -> None:
        slot_s = self._step_s / self._per_tick
        slot = math.ceil(self._now_s() / slot_s)
        chunk_from_s = slot * slot_s
        while not self._wait(max(slot * slot_s - self._now_s(), 0.0)):
            latest = max(slot, math.floor(self._now_s() / slot_s))
            tick = math.ceil(slot / self._per_tick)  # the first tick that is due
            self._looks += 1
            if tick * self._per_tick <= latest:
                self._tick(tick * self._step_s)
                cpu_s = [self._thread_s, *(server.cpu_s for server in self._servers)]
                before = self._per_tick
                if None not in cpu_s and any(cpu_s):  # the cost on a remote server is unknown
                    self._per_tick = waits_per_tick(sum(filter(None, cpu_s)) / self._looks, self._step_s)
                slot_s = self._step_s / self._per_tick
                latest = latest * self._per_tick // before
            else:
                for server in filter(self._is_driven, self._servers):
                    self._hand_over(server.look(slot * slot_s))
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
            self._hand_over(server.tick(due_s, machine, looks=self._is_driven(server)))

    def _is_driven(self, server: SampledServer) -> bool:
        return self._driven() in (None, server.target.number)

    def _hand_over(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            with self._lock:
                self._chunks.append(chunk)
