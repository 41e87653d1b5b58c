"""Telemetry of one trial: readings, series and CPU profile as values by key, and times per transaction.

- Values of each statement over the measured part: calls, mean and SD of its time, rows, blocks, WAL.
- Attribution of wait events to resources. ``wait_event_resources.toml`` has the table.
- Times per transaction of a trial, from its probes: by statement, on CPU, runnable, and in waits.
- Telemetry of one trial: readings, series and CPU profile as values by key.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from pgdyno.analysis.statistics.intervals import Method, level_of
from pgdyno.analysis.telemetry.counters import (
    COUNTERS,
    OTHERS,
    Gauges,
    Growth,
    Missing,
    Row,
    Window,
    identity,
    is_nested,
    numeric,
    window,
)
from pgdyno.analysis.telemetry.metrics import (
    MEAN_TIME,
    METRICS,
    OF_RELATIONS,
    OF_SAMPLES,
    OF_STATEMENTS,
    OF_TRIALS,
    Metric,
    keyed,
    newest_name,
    split_key,
)
from pgdyno.analysis.telemetry.samples import (
    GAUGES,
    OF_STATEMENT,
    RUNNING,
    SAMPLES,
    STEPS_RESOLVED,
    WAITS,
    WORKER,
    WORKER_TIMES,
    client_waits,
    of_samples,
    overlap,
)
from pgdyno.caveats import Caveat
from pgdyno.hooks import Hooks
from pgdyno.results.records import Arm, SampleSeries, Slice, StoredReading, Trial
from pgdyno.study.defaults import Absence
from pgdyno.units import S_PER_MS, US_PER_MS, US_PER_S, Estimate

# ----------------------------------------------------------------------
# Values of each statement over the measured part: calls, mean and SD of its time, rows, blocks, WAL.
#
# Statements are identified by their text, because their IDs differ between versions. Times are execution
# times in ms, as in pg_stat_statements. Its standard deviation is that of all calls (divided by n, not n −
# 1).
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Mean of n values, and the sum of the squared deviations from it."""

    n: float
    mean: float
    squares: float

    @classmethod
    def of(cls, n: float, mean: float, stddev: float) -> Moments:
        """Return the moments for the standard deviation of all n values."""
        return cls(n, mean, stddev**2 * n)

    @property
    def stddev(self) -> float:
        """Standard deviation of all n values, at least 0 in spite of rounding."""
        return math.sqrt(max(0.0, self.squares) / self.n) if self.n else 0.0

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets together.

        Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
        1979.
        """
        n = self.n + other.n
        if not n:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Moments(n, mean, self.squares + other.squares + apart**2 * self.n * other.n / n)

    def __sub__(self, first: Moments) -> Moments:
        """Return the moments of the values after the first ones: the inverse of the same formula."""
        n = self.n - first.n
        if n <= 0:
            return Moments(0, 0.0, 0.0)
        mean = (self.n * self.mean - first.n * first.mean) / n
        between = (mean - first.mean) ** 2 * first.n * n / self.n
        return Moments(n, mean, max(0.0, self.squares - first.squares - between))


STDDEV_CALLS_MIN = 10
"""With n calls, the relative standard error of their standard deviation is about 1/√(2(n − 1)): 24%."""


@dataclass(frozen=True)
class Statement:
    """One text, over all its users and IDs. ``sums`` are the counters' differences by column.

    ``top_ms`` is the time of the calls that clients sent. Nested calls, which ``pg_stat_statements.track =
    all`` counts, are included in the times of the calling statements.
    """

    text: str
    time_ms: Moments
    sums: Mapping[str, float]
    top_ms: float

    @property
    def calls(self) -> float:
        """The number of calls."""
        return self.time_ms.n

    @property
    def total_ms(self) -> float:
        """Total time of all calls."""
        return self.calls * self.time_ms.mean

    def values(self, of_all_ms: float) -> dict[str, float]:
        """Return values by key. ``of_all_ms``: time of all client statements."""
        found = {
            "statement.calls": self.calls,
            MEAN_TIME: self.time_ms.mean,
            **({"statement.stddev_ms": self.time_ms.stddev} if self.calls >= STDDEV_CALLS_MIN else {}),
            "statement.total_ms": self.total_ms,
            "statement.rows_per_call": self.sums.get("rows", 0.0) / self.calls,
        }
        if of_all_ms > 0:
            found["statement.share_of_time"] = 100 * self.total_ms / of_all_ms
        for metric in OF_STATEMENTS:
            if metric.formula is not None:
                (column,) = metric.formula.columns
                # A time of 0 means that timing is disabled (track_io_timing) or nothing was timed.
                is_timed = metric.formula.kind != "time_per_call" or self.sums.get(column)
                if column in self.sums and is_timed:
                    found[metric.key] = self.sums[column] / self.calls * metric.formula.scale
        if self.sums.get("plans"):
            found["statement.plan_mean_ms"] = self.sums["total_plan_time"] / self.sums["plans"]
        return found


def statements(rows: Iterable[Growth]) -> list[Statement]:
    """Return the statements executed between the readings, the one with the most time first."""
    found: dict[str, Statement] = {}
    for row in rows:
        text = row.end.get("query")
        if not isinstance(text, str):
            continue
        moments = _moments(row.end) - _moments(row.begin)
        if moments.n <= 0:
            continue
        sums = {column: of for column, of in row.deltas.items() if column in COUNTERS["statements"]}
        top_ms = 0.0 if is_nested(row) else moments.n * moments.mean
        if text in found:
            moments += found[text].time_ms
            sums = {column: sums.get(column, 0.0) + found[text].sums.get(column, 0.0) for column in sums}
            top_ms += found[text].top_ms
        found[text] = Statement(text, moments, sums, top_ms)
    return sorted(found.values(), key=lambda statement: -statement.total_ms)


def _moments(row: Mapping[str, float | int | str | None]) -> Moments:
    """Return the moments from calls, mean and standard deviation of a reading; empty for a missing row."""
    calls = numeric(row, "calls") or 0.0
    return Moments.of(calls, numeric(row, "mean_exec_time") or 0.0, numeric(row, "stddev_exec_time") or 0.0)


# ----------------------------------------------------------------------
# Attribution of wait events to resources. ``wait_event_resources.toml`` has the table.
# ----------------------------------------------------------------------

RESOURCES: Mapping[str, Sequence[str]] = tomllib.loads(
    Path(__file__).with_name("wait_event_resources.toml").read_text("utf-8")
)
"""Resource → patterns of its wait events."""

CLIENT, OTHER = "client", "other"

WORKER_CPU, WORKER_RUNNABLE = "worker cpu", "worker runnable"
"""States of a backend that waits for its parallel workers, by the kernel's times of these."""


@cache
def resource_of(event: str) -> str:
    """Return the resource of a wait event ``TYPE/NAME``, or RUNNING."""
    if event == RUNNING:
        return RUNNING
    of_type, _, name = event.partition("/")
    matching = [
        (len(pattern), resource)
        for resource, patterns in RESOURCES.items()
        for pattern in patterns
        if fnmatchcase(f"{of_type}/{name}".lower(), pattern.lower())
    ]
    return max(matching)[1] if matching else OTHER


# ----------------------------------------------------------------------
# Times per transaction of a trial, from its probes: by statement, on CPU, runnable, and in waits.
#
# Unit: µs per transaction, or a mean number of backends. ``time_breakdown.py`` combines them. Sources:
#
# - statements: Δ total_exec_time of pg_stat_statements, for statements that clients send. Statements inside a
#   function are included in the calling statement and not added to it (``toplevel``, from PostgreSQL 14 on).
# - CPU: the kernel's accounting of the clients' server processes (schedstat: on CPU, or runnable without
#   CPU).
# - waits: wait-event samples of the server's backends in the counted parts of slices. If backends were seen
#   in a state n times in N samples, their mean number is n / N. By Little's law, this number × time /
#   transactions is the time that a transaction spends in it.
# - I/O of client backends: the elapsed time in their calls by the clock of the server (track_io_timing,
#   track_wal_io_timing). Samples then supply only the other waits.
# ----------------------------------------------------------------------

STATEMENTS_KEPT = 40
"""Number of statements of a trial, those with the most time; the others are summed."""

ON_CPU, RUNNABLE, SWITCHES = "clients_on_cpu_s", "clients_ready_s", "clients_switches"
"""Columns of the readings of ``host``: seconds of all clients' server processes since their start."""


@dataclass(frozen=True)
class WaitSamples:
    """Wait-event samples. ``backends``: mean number by resource, RUNNING, WORKER_CPU and WORKER_RUNNABLE.

    ``n``: number of samples. ``events``: by wait event in lower case, and by BACKGROUND and a resource.
    ``statements``: by ID of the statement and wait event or RUNNING; None: others, or without an ID.
    """

    backends: Mapping[str, float]
    n: float
    events: Mapping[str, float] = field(default_factory=dict)
    statements: Mapping[tuple[str | None, str], float] = field(default_factory=dict)

    @property
    def active(self) -> float:
        """Mean number of backends that were active."""
        return sum(self.backends.values())


@dataclass(frozen=True)
class Clocked:
    """Elapsed time in I/O calls of client backends. ``us``: per transaction, by the clock of the server.

    ``sampled``: mean number of backends in these calls by samples, which ``us`` replaces. The time includes
    that on CPU and runnable within a call, as that of samples does.
    """

    us: float
    sampled: float


@dataclass(frozen=True)
class ClientTime:
    """Times of one trial. None means unknown.

    ``statements`` are those with the most time, by text; ``others_us`` is the sum of the others.
    ``cpu_is_of_all``: the CPU time is that of all processes of the server, including those without a client.
    """

    statements: Mapping[str, float] | None = None
    others_us: float = 0.0
    planning_us: float | None = None
    on_cpu_us: float | None = None
    runnable_us: float | None = None
    cpu_is_of_all: bool = False
    driver_us: float | None = None
    wait_samples: WaitSamples | None = None
    clocked: Mapping[str, Clocked] = field(default_factory=dict)  # by resource


IO_CLOCKS = Hooks[Callable[[Trial, Window, WaitSamples], Mapping[str, Clocked]]]("io_clocks")
"""I/O times of client backends by resource, where the server measured them."""


def client_time_of_trial(
    trial: Trial, w: Window, found: Sequence[Statement], waits: SampleSeries | None
) -> ClientTime:
    """Return the times of a trial. ``found`` are the statements of this window.

    Unknown with a program beside the clients, whose waits and statements would count as theirs.
    """
    n = trial.transactions
    if not n or "beside" in w.first:
        return ClientTime()
    by_text, others_us, planning_us = _statements(w, found, n)
    on_cpu, runnable = (_grown_us(w, column, n) for column in (ON_CPU, RUNNABLE))
    of_all = on_cpu is None and trial.server_cpu_s is not None
    if of_all and trial.server_cpu_s is not None:
        on_cpu = US_PER_S * trial.server_cpu_s / n
    samples = None if waits is None else wait_samples(waits, trial.measured)
    return ClientTime(
        statements=by_text,
        others_us=others_us,
        planning_us=planning_us,
        on_cpu_us=on_cpu,
        runnable_us=runnable,
        cpu_is_of_all=of_all,
        driver_us=US_PER_S * trial.driver_cpu_s / n,
        wait_samples=samples,
        clocked={kind: of for clock in IO_CLOCKS if samples for kind, of in clock(trial, w, samples).items()},
    )


def _statements(
    w: Window, found: Sequence[Statement], n: int
) -> tuple[Mapping[str, float] | None, float, float | None]:
    every_ms = w.delta("statements", "total_exec_time")
    if every_ms is None:
        return None, 0.0, None
    own = sorted(((of.top_ms, of.text) for of in found if of.top_ms > 0), reverse=True)
    listed = {text: US_PER_MS * ms / n for ms, text in own[:STATEMENTS_KEPT]}
    others_us = US_PER_MS * every_ms / n - sum(listed.values())
    plans_ms = w.delta("statements", "total_plan_time")
    return listed, max(0.0, others_us), US_PER_MS * plans_ms / n if plans_ms else None


def _grown_us(w: Window, column: str, n: int) -> float | None:
    first, last = (
        next((row[column] for row in of.get("host", ()) if column in row), None) for of in (w.first, w.last)
    )
    if not isinstance(first, int | float) or not isinstance(last, int | float) or last < first:
        return None
    return US_PER_S * (last - first) / n


def wait_samples(series: SampleSeries, slices: Sequence[Slice]) -> WaitSamples | None:
    """Return the wait-event samples within the counted parts of these slices.

    None without samples, or if a sample sums over more time than a slice.
    """
    spans = [(piece.counted_from_s, piece.closed_s) for piece in slices if piece.counted_s > 0]
    if not spans or len(series.points) < 2:
        return None
    samples = series.column(SAMPLES)
    if np.nanmax(samples) <= 1:
        weight = within(series.points[:, 0], spans)
    elif len(spans) == 1 or min(to_s - from_s for from_s, to_s in spans) >= STEPS_RESOLVED * series.step_s:
        weight = overlap(series, spans)
    else:
        return None
    n = float(np.nansum(weight * samples))
    if not n:
        return None
    known = [name for name in series.columns[2:] if name != SAMPLES]
    events = {name: float(np.nansum(weight * series.column(name))) / n for name in known}
    by_statement: dict[tuple[str | None, str], float] = {}
    for name in known:
        if name.startswith(OF_STATEMENT):
            statement, _, state = name.removeprefix(OF_STATEMENT).partition(" ")
            by_statement[statement, newest_name(state)] = events.pop(name)
    for name in client_waits(series) if by_statement else ():
        if not name.startswith(WORKER):
            event = newest_name(name)
            others = events[name] - sum(n for (_, state), n in by_statement.items() if state == event)
            by_statement[None, event] = max(0.0, others)
    seen: dict[str, float] = {}
    for name in client_waits(series):
        if not name.startswith(WORKER):
            seen[resource_of(name)] = seen.get(resource_of(name), 0.0) + events[name]
    for of, number in _of_workers(events).items():
        seen[of] = seen.get(of, 0.0) + number
    of_resources = {resource: backends for resource, backends in seen.items() if backends > 0}
    by_event = {name.lower(): backends for name, backends in events.items()}
    return WaitSamples(of_resources, n, by_event, by_statement)


def _of_workers(events: Mapping[str, float]) -> dict[str, float]:
    """Return the number of backends that wait for parallel workers, by state of these.

    The kernel's times of the workers divide it, and samples only the time in which they are blocked.
    """
    on_cpu_s, ready_s, alive_s = (events.get(column, 0.0) for column in WORKER_TIMES)
    alive_s = max(alive_s, on_cpu_s + ready_s)  # which are read later
    states: dict[str, float] = {}
    for name, number in events.items():
        if name.startswith(WORKER) and name not in WORKER_TIMES:
            of = resource_of(name.removeprefix(WORKER))
            states[of] = states.get(of, 0.0) + number
    every, running = sum(states.values()), states.get(RUNNING, 0.0)
    if not alive_s or not every:
        return states
    by_kernel = {WORKER_CPU: every * on_cpu_s / alive_s, WORKER_RUNNABLE: every * ready_s / alive_s}
    blocked, waiting = every - sum(by_kernel.values()), every - running
    factor = min(1.0, blocked / waiting) if waiting else 0.0
    found = {of: factor * number for of, number in states.items() if of != RUNNING}
    return {**found, **by_kernel, RUNNING: blocked - factor * waiting}


def within(at: np.ndarray, spans: Iterable[tuple[float, float]]) -> np.ndarray:
    """Return 1 for times in one of the spans, else 0."""
    inside = np.zeros(len(at))
    for from_s, to_s in spans:
        inside[np.searchsorted(at, from_s) : np.searchsorted(at, to_s)] = 1.0
    return inside


# ----------------------------------------------------------------------
# Telemetry of one trial: readings, series and CPU profile as values by key.
#
# ``metrics.toml`` defines the metrics.
# ----------------------------------------------------------------------

PROFILE = "profile"
"""Name of the probe."""


Stack = tuple[str, ...]
"""Functions from the outermost to the innermost."""


@dataclass(frozen=True)
class CpuProfile:
    """CPU profile. ``us_per_tx``: the server's CPU time in µs per transaction, by stack."""

    us_per_tx: Mapping[Stack, float]
    samples: int
    hz: int

    @property
    def sampled_s(self) -> float:
        """CPU time that the samples represent."""
        return self.samples / self.hz

    @property
    def own(self) -> dict[str, float]:
        """CPU time by function, without called functions."""
        found: dict[str, float] = {}
        for stack, us in self.us_per_tx.items():
            found[stack[-1]] = found.get(stack[-1], 0.0) + us
        return found


def profile_of(
    rows: Sequence[Mapping[str, float | int | str | None]], transactions: float | None
) -> CpuProfile | None:
    """Return the profile from the rows of its probe; None without rows or transactions."""
    if not rows or not transactions:
        return None
    hz = int(rows[0].get("hz") or 0)
    if not hz:
        return None
    us = US_PER_S / hz / transactions
    stacks = {tuple(str(row["stack"]).split(";")): us * float(row.get("n") or 0) for row in rows[1:]}
    return CpuProfile(stacks, int(rows[0].get("samples") or 0), hz)


STATEMENTS_MAX = 20
"""Maximum number of compared statements, those with the most time: rare ones do not matter."""

RELATIONS_MAX = 40
"""Maximum number of compared tables and indexes, the largest."""

WAITS_MAX = 20
"""Maximum number of compared wait events, those with the largest share."""


OF_FEATURES = ("beside", "plans", "wal_records")
"""Probes whose rows a feature interprets."""


@dataclass(frozen=True)
class TrialTelemetry:
    """Telemetry of one trial. ``values`` are by key; objects have their name after a colon.

    ``statements``, ``relations`` and ``waits`` are names, the one with the most time or bytes first.
    ``missing`` has the reasons by probe. ``elapsed_s`` is from the first reading to the last. ``machine`` has
    the differences of the machine's counters in that time. ``time`` is the breakdown of a transaction's time.
    ``after`` has the last rows of the probes in OF_FEATURES. ``statement_waits``: mean number of backends by
    text of the statement and wait event; None: of others, and without a known text.
    """

    values: Mapping[str, float]
    statements: Sequence[str]
    relations: Sequence[str]
    missing: Mapping[str, Missing]
    waits: Sequence[str] = ()
    elapsed_s: float | None = None
    machine: Mapping[str, float] = field(default_factory=dict)
    profile: CpuProfile | None = None
    time: ClientTime = field(default_factory=ClientTime)
    after: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    statement_waits: Mapping[tuple[str | None, str], float] = field(default_factory=dict)

    @property
    def reset(self) -> list[str]:
        """Probes whose counters were reset during the measurement."""
        return [probe for probe, why in self.missing.items() if why.absence is Absence.RESET]


def telemetry_of_trial(
    trial: Trial,
    readings: Sequence[StoredReading],
    series: Mapping[str, SampleSeries] | None = None,
    *,
    is_duet: bool = False,
) -> TrialTelemetry:
    """Return the telemetry of a trial. ``series`` is by probe."""
    driven_s = sum(piece.drained_s - piece.opened_s for piece in trial.measured)
    w = window(readings, trial.transactions, driven_s)
    values = _values(OF_TRIALS, w)
    found = statements(w.growths.get("statements", ()))
    of_all_ms = max(w.delta("statements", "total_exec_time") or 0.0, sum(one.top_ms for one in found))
    for statement in found:
        for key, value in statement.values(of_all_ms).items():
            values[keyed(key, statement.text)] = value
    relations = _relations(w)
    for name, of in relations.items():
        values |= {keyed(key, name): value for key, value in _values(OF_RELATIONS, of).items()}
    sampled, waits = of_samples(trial, series or {}, is_duet=is_duet)
    own = {"start_s": trial.start_s, "restart_s": trial.restart_s, "recovery_s": trial.recovery_s}
    own["checkpoint_s"] = trial.driver.last_checkpoint_s
    values |= sampled | {f"trial.{key}": value for key, value in own.items() if value is not None}
    phases = {f"load.{key.removesuffix('_ms')}_s": n * S_PER_MS for key, n in trial.counters.items()}
    values |= {key: value for key, value in phases.items() if key in METRICS}
    if trial.probe_cpu_s is not None and trial.transactions:
        values["probes.us_per_tx"] = US_PER_S * trial.probe_cpu_s / trial.transactions
    time = client_time_of_trial(trial, w, found, (series or {}).get(WAITS))
    return TrialTelemetry(
        values,
        [statement.text for statement in found],
        list(relations),
        w.missing,
        waits,
        w.elapsed_s,
        _machine(w),
        profile_of(w.last.get(PROFILE, ()), trial.transactions),
        time,
        {name: w.last[name] for name in OF_FEATURES if name in w.last},
        _statement_waits(time.wait_samples, w),
    )


def _statement_waits(samples: WaitSamples | None, w: Window) -> dict[tuple[str | None, str], float]:
    rows = (row.end for row in w.growths.get("statements", ()))
    texts = {row.get("queryid"): str(row["query"]) for row in rows if row.get("query")}
    found: dict[tuple[str | None, str], float] = {}
    for (statement, event), backends in (samples.statements if samples else {}).items():
        key = texts.get(statement), event
        found[key] = found.get(key, 0.0) + backends
    return found


def _machine(w: Window) -> dict[str, float]:
    """Return the differences of the machine's counters. One that decreased was reset and is omitted."""
    rows = [row for gauges in (w.first, w.last) for row in gauges.get("host", ())[:1]]
    if len(rows) < 2:
        return {}
    found = {name: (numeric(rows[0], name), numeric(rows[1], name)) for name in rows[1]}
    return {
        name: b - a
        for name, (a, b) in found.items()
        if name not in GAUGES and a is not None and b is not None and b >= a
    }


def _values(metrics: Iterable[Metric], w: Window) -> dict[str, float]:
    found = {metric.key: metric.formula.of_window(w) for metric in metrics if metric.formula is not None}
    return {key: value for key, value in found.items() if value is not None}


def _relations(w: Window) -> dict[str, Window]:
    """Return a window for each table and index, with only its own rows; the largest first.

    The schema is added to the name only if two schemas have the same name.
    """
    listed = [row for row in w.last.get("relations", ()) if row.get("kind") != OTHERS]
    times = Counter(str(row.get("name")) for row in listed)
    growths = _grouped((identity("relations", of.end), of) for of in w.growths.get("relations", ()))
    first, last, final = (_by_relation(gauges) for gauges in (w.first, w.last, w.final))
    found = {}
    for row in listed:
        name, own = str(row.get("name")), identity("relations", row)
        found[name if times[name] == 1 else f"{row.get('schema')}.{name}"] = replace(
            w,
            growths={"relations": growths.get(own, [])},
            first={probe: of.get(own, []) for probe, of in first.items()},
            last={probe: of.get(own, []) for probe, of in last.items()},
            final={probe: of.get(own, []) for probe, of in final.items()},
        )
    return found


T = TypeVar("T")
Relation = tuple[object, ...]
"""Identity of a table or an index."""


def _by_relation(gauges: Gauges) -> dict[str, dict[Relation, list[Row]]]:
    """Return the rows of the probes by relation."""
    return {
        probe: _grouped((identity(probe, row), row) for row in gauges.get(probe, ()))
        for probe in ("relations", "pgstattuple")
    }


def _grouped(rows: Iterable[tuple[Relation, T]]) -> dict[Relation, list[T]]:
    found: dict[Relation, list[T]] = {}
    for relation, row in rows:
        found.setdefault(relation, []).append(row)
    return found


def compared_metrics(telemetry: Mapping[int, TrialTelemetry]) -> list[Metric]:
    """Return metrics with a value in any trial, in the order of definition, for the first objects."""
    known = {key for of in filled(telemetry).values() for key in of}
    found = [metric for metric in (*OF_TRIALS, *OF_SAMPLES) if metric.key in known]
    parts = [
        (OF_STATEMENTS, _first(telemetry, lambda of: of.statements, STATEMENTS_MAX)),
        (OF_RELATIONS, _first(telemetry, lambda of: of.relations, RELATIONS_MAX)),
        (OF_SAMPLES, _first(telemetry, lambda of: of.waits, WAITS_MAX)),
    ]
    for metrics, names in parts:
        for part in names:
            found += [metric.of_part(part) for metric in metrics if keyed(metric.key, part) in known]
    by_trial = {trial: of.values for trial, of in telemetry.items()}
    return [replace(metric, by_trial=by_trial) for metric in found]


def telemetry_levels(
    trials: Iterable[Trial],
    telemetry: Mapping[int, TrialTelemetry],
    confidence: float,
    method: Method,
    keys: Collection[str] | None = None,
) -> dict[str, Estimate]:
    """Return an arm's levels by key, over its trials with telemetry, also of metrics that cannot be compared.

    With ``keys``, only of these.
    """
    by_block: dict[str, dict[int, float]] = {}
    values = filled(telemetry)
    for trial in trials:
        for key, value in values.get(trial.trial, {}).items():
            if keys is None or key in keys:
                by_block.setdefault(key, {})[trial.block] = value
    found = {key: level(key, of, confidence, method) for key, of in by_block.items()}
    return {key: estimate for key, estimate in found.items() if estimate is not None}


def filled(telemetry: Mapping[int, TrialTelemetry]) -> dict[int, Mapping[str, float]]:
    """Return the values by trial. Waits of other trials that a trial does not have get a share of 0."""
    seen = {keyed("wait.share", name): 0.0 for of in telemetry.values() for name in of.waits}
    return {trial: {**(seen if of.waits else {}), **of.values} for trial, of in telemetry.items()}


def _first(
    telemetry: Mapping[int, TrialTelemetry], of: Callable[[TrialTelemetry], Sequence[str]], n: int
) -> list[str]:
    """Return the names with the best position in any trial."""
    places: dict[str, int] = {}
    for trial in telemetry.values():
        for place, name in enumerate(of(trial)):
            places[name] = min(place, places.get(name, place))
    return sorted(places, key=lambda name: places[name])[:n]


def level(key: str, by_block: Mapping[int, float], confidence: float, method: Method) -> Estimate | None:
    """Return an arm's level of a key over its blocks."""
    of = METRICS[split_key(key)[0]]
    return level_of(by_block, of.unit, of.better, confidence, method)


def not_in_version(
    arms: Sequence[Arm], trials: Sequence[Trial], telemetry: Mapping[int, TrialTelemetry]
) -> dict[int, dict[str, str]]:
    """Return arm → probe → reason, for probes that the arm's version lacks: a fact, not a caveat."""
    found: dict[int, dict[str, str]] = {arm.arm: {} for arm in arms}
    for trial in trials:
        if trial.trial in telemetry:
            missing = telemetry[trial.trial].missing
            found[trial.arm] |= {
                p: why.reason for p, why in missing.items() if why.absence is Absence.VERSION
            }
    return {arm: probes for arm, probes in found.items() if probes}


def telemetry_caveats(
    arms: Sequence[Arm], trials: Sequence[Trial], telemetry: Mapping[int, TrialTelemetry]
) -> list[Caveat]:
    """Return caveats for missing values, each reason once per arm, and for reset statistics.

    Reasons of ``not_in_version``, and of the caveat of a shared server, are excluded.
    """
    found = []
    for arm in arms:
        mine = [
            telemetry[trial.trial] for trial in trials if trial.arm == arm.arm and trial.trial in telemetry
        ]
        for probe in sorted({probe for of in mine for probe in of.reset}):
            n = sum(probe in of.reset for of in mine)
            found.append(Caveat.of("statistics-reset", probe=probe, arm=arm.name, trials=n))
        by_reason: dict[str, dict[str, None]] = {}
        for of in mine:
            for probe, why in of.missing.items():
                if why.absence is Absence.OTHER:
                    by_reason.setdefault(why.reason, {})[probe] = None
        for reason, probes in by_reason.items():
            known = ", ".join(probes)
            found.append(Caveat.of("probe-unavailable", probes=known, arm=arm.name, reason=reason))
    return found
