"""Metrics: their formulas, their table ``metrics.toml``, and the resources of wait events.

- Newest names of wait events, so that servers of different versions are compared.
- Kinds of formulas of ``metrics.toml``: each has its text and its function, for documents and values.
- All metrics by key. ``metrics.toml`` defines those of latencies, probes and samples.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from pgdyno.analysis.telemetry.counters import ENABLED, RUNNING, Gauges, Window, total, values
from pgdyno.results.records import Slice, Trial
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import Pace
from pgdyno.units import PER_MIB, PERCENT, S_PER_MIN, S_PER_MS, US_PER_MS, US_PER_S, Better

# ----------------------------------------------------------------------
# Newest names of wait events, so that servers of different versions are compared.
#
# ``wait_event_names.toml`` has the table.
# ----------------------------------------------------------------------

RENAMED: Mapping[str, Mapping[str, Sequence[str]]] = tomllib.loads(
    Path(__file__).with_name("wait_event_names.toml").read_text("utf-8")
)
"""Type → newest name → its names in other versions."""

TYPES = {*RENAMED, "BufferPin"}

NEWEST: Mapping[str, str] = {
    old if old.partition("/")[0] in TYPES else f"{of_type}/{old}": f"{of_type}/{name}"
    for of_type, names in RENAMED.items()
    for name, others in names.items()
    for old in others
}


def newest_name(event: str) -> str:
    """Return the name of a wait event ``TYPE/NAME`` in the newest version that has it."""
    if event in NEWEST:
        return NEWEST[event]
    # Before PostgreSQL 13, the names of single LWLocks had this suffix.
    return event.removesuffix("Lock") if event.startswith("LWLock/") else event


# ----------------------------------------------------------------------
# Kinds of formulas of ``metrics.toml``: each has its text and its function, for documents and values.
#
# Δ in the text is the difference over the measured part. ``samples.py`` and ``trial_telemetry.py`` compute
# the kinds SAMPLE_KINDS and CALL_KINDS, from other data than the readings of a probe.
# ----------------------------------------------------------------------

SCALES: Mapping[tuple[str, str], float] = {
    ("B", "MiB"): PER_MIB,
    ("B", "MiB/s"): PER_MIB,
    ("ms", "s"): S_PER_MS,
    ("s", "%"): PERCENT,  # seconds per second
}
"""(unit in which a column counts, unit of the metric) → factor."""


class Readings(NamedTuple):
    """Readings of one probe at both ends of the measured part, by column."""

    window: Window
    probe: str

    def delta(self, column: str) -> float | None:
        """Return the difference of a counter."""
        return self.window.delta(self.probe, column)

    def sum(self, columns: Sequence[str]) -> float | None:
        """Return the sum of differences; None if any is missing."""
        known = [delta for column in columns if (delta := self.delta(column)) is not None]
        return sum(known) if len(known) == len(columns) else None

    def at(self, gauges: Gauges, column: str) -> float | None:
        """Return the sum of a gauge over all rows."""
        return total(gauges, self.probe, column)

    def growth(self, end: Gauges, column: str) -> float | None:
        """Return the difference of a gauge, which may be negative."""
        before, after = self.at(self.window.first, column), self.at(end, column)
        return None if before is None or after is None else after - before

    def per_transaction(self, value: float | None, scale: float = 1.0) -> float | None:
        """Divide by the transactions executed in the same time."""
        return _ratio(value, self.window.transactions, scale)


HOUR_S, MINUTE_S = 3600.0, 60.0


def _ratio(part: float | None, whole: float | None, scale: float = 1.0) -> float | None:
    return scale * part / whole if part is not None and whole else None


def _times(columns: Sequence[str]) -> list[str]:
    return [column for column in columns if column.endswith("_time")]


def _timed(of: Readings, columns: Sequence[str]) -> float | None:
    """Return the sum of times in ms as µs per transaction.

    If another column counts something but all times are 0, the server does not measure them (track_io_timing,
    track_wal_io_timing). Then the value is missing.
    """
    spent = [delta for column in _times(columns) if (delta := of.delta(column)) is not None]
    happened = any(of.delta(column) for column in columns if column not in _times(columns))
    is_known = spent and (any(spent) or not happened)
    return of.per_transaction(sum(spent), US_PER_MS) if is_known else None


def _counted(of: Readings, columns: Sequence[str]) -> float | None:
    """Return the sum of events per transaction; None if one has no counter.

    If the CPU has too few counters, an event is counted for a part of the time only, and its count is scaled.
    """
    scaled = [
        _ratio(of.delta(column), of.delta(f"{column}{RUNNING}"), of.delta(f"{column}{ENABLED}") or 0.0)
        for column in columns
    ]
    known = [count for count in scaled if count is not None]
    return of.per_transaction(sum(known)) if len(known) == len(columns) else None


@dataclass(frozen=True)
class _Kind:
    """``text`` has the columns as ``{0}`` and ``{1}``. ``{sum}`` is that of all differences, or of times."""

    text: str
    value: Callable[[Readings, Sequence[str]], float | None]


_KINDS: Mapping[str, _Kind] = {
    "difference": _Kind("{sum}", lambda of, c: of.sum(c)),
    "per_transaction": _Kind("{sum}", lambda of, c: of.per_transaction(of.sum(c))),
    # missing if the second column is 0, because then the server does not count the first one
    "per_transaction_if": _Kind(
        "Δ{0}, if {1} are counted",
        lambda of, c: of.per_transaction(of.delta(c[0])) if of.delta(c[1]) else None,
    ),
    "time_per_transaction": _Kind("{sum}", _timed),
    "events_per_transaction": _Kind("{sum}", _counted),
    # the time for which the driver drove this server
    "per_second": _Kind("{sum}", lambda of, c: _ratio(of.sum(c), of.window.driven_s)),
    "per_minute": _Kind("{sum}", lambda of, c: _ratio(of.sum(c), of.window.driven_s, MINUTE_S)),
    # all time between the readings: checkpoints also start while other arms are driven
    "per_hour": _Kind("{sum}", lambda of, c: _ratio(of.sum(c), of.window.elapsed_s, HOUR_S)),
    "share": _Kind("Δ{0} / Δ{1}", lambda of, c: _ratio(of.delta(c[0]), of.delta(c[1]), PERCENT)),
    "share_of_sum": _Kind("Δ{0} / {sum}", lambda of, c: _ratio(of.delta(c[0]), of.sum(c), PERCENT)),
    "at_begin": _Kind("first {0}", lambda of, c: of.at(of.window.first, c[0])),
    "at_end": _Kind("last {0}", lambda of, c: of.at(of.window.last, c[0])),
    "at_end_vacuumed": _Kind("final {0}", lambda of, c: of.at(of.window.final, c[0])),
    "growth": _Kind("last − first {0}", lambda of, c: of.growth(of.window.last, c[0])),
    "growth_vacuumed": _Kind("final − first {0}", lambda of, c: of.growth(of.window.final, c[0])),
    "growth_per_transaction": _Kind(
        "final − first {0}", lambda of, c: of.per_transaction(of.growth(of.window.final, c[0]))
    ),
    "largest": _Kind(
        "last {0}, largest", lambda of, c: max(values(of.window.last, of.probe, c[0]), default=None)
    ),
}

PAIRS = ("per_transaction_if", "share")
"""Kinds that need two columns. Kinds with a sum need at least one, and all others one."""

SAMPLE_KINDS: Mapping[str, str] = {
    "sampled_rate": "Δ{0} / s",
    "sampled_minimum": "smallest sample",
    "sampled_mean": "mean of the samples",
    "sampled_maximum": "largest sample",
}
"""Text of the kinds over the samples of this machine."""

CALL_KINDS: Mapping[str, str] = {"per_call": "Δ{0} / Δcalls", "time_per_call": "Δ{0} / Δcalls"}
"""Text of the kinds over the calls of a statement. ``time_per_call`` is missing if the time is 0."""

TEXTS: Mapping[str, str] = {**{kind: of.text for kind, of in _KINDS.items()}, **SAMPLE_KINDS, **CALL_KINDS}
"""Kind → text."""


@dataclass(frozen=True)
class Formula:
    """A formula over columns of a probe. ``scale`` converts their unit to that of the metric."""

    kind: str
    columns: Sequence[str]
    probe: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for a wrong number of columns."""
        needed = 2 if self.kind in PAIRS else 1
        if len(self.columns) != needed and "{sum}" not in TEXTS[self.kind]:
            raise ValueError(f"{self.kind} needs {needed} columns (got {len(self.columns)})")

    @property
    def text(self) -> str:
        """The formula for people."""
        added = _times(self.columns) or self.columns
        deltas = " + ".join(f"Δ{column}" for column in added)
        return TEXTS[self.kind].format(*self.columns, sum=f"({deltas})" if len(added) > 1 else deltas)

    def of_window(self, window: Window) -> float | None:
        """Return the value over the readings of a probe; None if the results file lacks the data."""
        value = _KINDS[self.kind].value(Readings(window, self.probe), self.columns)
        return None if value is None else value * self.scale


# ----------------------------------------------------------------------
# All metrics by key. ``metrics.toml`` defines those of latencies, probes and samples.
#
# A metric of the driver's counts is a function of a trial and its slices. The values of all other metrics are
# computed once per trial, from its histograms and its telemetry, and the metric looks them up by key.
# ----------------------------------------------------------------------

Value = Callable[[Trial, Sequence[Slice]], float | None]

ValuesByTrial = Mapping[int, Mapping[str, float | None]]
"""Trial ID → key → value from its histograms or its telemetry."""


@dataclass(frozen=True)
class TrialLatencies:
    """Percentiles of latency by trial ID and key, in ms; ``bounds`` are lower bounds of those not known."""

    values: ValuesByTrial = field(default_factory=dict)
    bounds: ValuesByTrial = field(default_factory=dict)

    def under(self, key: str, name: str) -> TrialLatencies:
        """Return the values of one key under another name."""
        values, bounds = (
            {trial: {name: of[key]} for trial, of in every.items() if key in of}
            for every in (self.values, self.bounds)
        )
        return TrialLatencies(values, bounds)


NAME_LENGTH_MAX = 60
"""Maximum length of a statement in the name of a metric. Its key has the whole text."""


@dataclass(frozen=True)
class Metric:
    """One metric. ``text`` describes its computation; ``short`` replaces name and unit in ``label``.

    ``of_slices`` computes it from the driver's counts. Without it, the value is that of the key in
    ``by_trial``, which a case supplies. ``bounds`` has the lower bounds of values that are not known.
    ``recounted``: first version that counts it differently, so that it is not compared with earlier ones.
    """

    key: str
    name: str
    unit: str
    better: Better
    text: str = ""
    short: str = ""
    of_slices: Value | None = None
    formula: Formula | None = None
    recounted: int = 0
    by_trial: ValuesByTrial = field(default_factory=dict, repr=False, compare=False)
    bounds: ValuesByTrial = field(default_factory=dict, repr=False, compare=False)

    @property
    def label(self) -> str:
        """A short name with the unit."""
        return self.short or f"{self.name}, {self.unit}"

    def value(self, trial: Trial, slices: Sequence[Slice]) -> float | None:
        """Return the value of a trial, of these measured slices if it depends on them.

        None if the results file lacks it. A count of 0 is also None, because it has no logarithm.
        """
        if self.of_slices is not None:
            return self.of_slices(trial, slices)
        return self.by_trial.get(trial.trial, {}).get(self.key)

    def bound(self, trial: Trial) -> float | None:
        """Return the lower bound of a value that is not known; None if it is known, or no bound is."""
        return self.bounds.get(trial.trial, {}).get(self.key)

    def of_part(self, part: str) -> Metric:
        """Return the metric of one statement, table, index or wait."""
        short = part if len(part) <= NAME_LENGTH_MAX else f"{part[: NAME_LENGTH_MAX - 1]}…"
        return replace(self, key=keyed(self.key, part), name=f"{self.name}, {short}")


@lru_cache(maxsize=10_000)  # a trial has the keys of the others, and their texts of statements are long
def keyed(key: str, part: str) -> str:
    """Return the key of one statement, table, index or wait."""
    return f"{key}:{part}"


def split_key(key: str) -> tuple[str, str]:
    """Split a key of ``keyed``. The second part is empty for a metric of a whole trial."""
    of, _, part = key.partition(":")
    return of, part


def _rate(count: int, slices: Sequence[Slice], per_s: float) -> float | None:
    counted_s = sum(piece.counted_s for piece in slices)
    return per_s * count / counted_s if counted_s > 0 and count > 0 else None


def _new_orders_per_minute(_trial: Trial, slices: Sequence[Slice]) -> float | None:
    # Committed ones only, as counted by Δ Σ d_next_o_id, without intentional rollbacks.
    committed = sum(piece.kinds["new_order"].ok for piece in slices if "new_order" in piece.kinds)
    return _rate(committed, slices, S_PER_MIN)


def _speed(scale: float, _trial: Trial, slices: Sequence[Slice]) -> float | None:
    return _rate(sum([piece.executed for piece in slices]), slices, scale)


def _per_transaction_us(cpu_s: float | None, transactions: int | None) -> float | None:
    return US_PER_S * cpu_s / transactions if cpu_s and transactions else None


def paced(pace: Pace, slices: Sequence[Slice]) -> float | None:
    """Return the customary rate of a workload in these slices; None without time."""
    counted_s, ok = sum(piece.counted_s for piece in slices), Counter[str]()
    for piece in slices:
        ok.update({kind: counts.ok for kind, counts in piece.kinds.items()})
    return pace.of(ok, counted_s) if counted_s > 0 else None


def _server_cpu(trial: Trial, _slices: Sequence[Slice]) -> float | None:
    # CPU time is read before the first and after the last measured slice. It includes discarded starts.
    return _per_transaction_us(trial.server_cpu_s, trial.transactions)


def _driver_cpu(trial: Trial, _slices: Sequence[Slice]) -> float | None:
    return _per_transaction_us(trial.driver_cpu_s, trial.transactions)


def _capacity(trial: Trial, _slices: Sequence[Slice]) -> float | None:
    sought = trial.driver.capacity
    return None if sought is None else sought.capacity_per_s


def _load_time(_trial: Trial, slices: Sequence[Slice]) -> float | None:
    return sum(piece.counted_s for piece in slices) or None


def _loaded(counter: str, scale: float, trial: Trial, slices: Sequence[Slice]) -> float | None:
    return _rate(trial.counters.get(counter, 0), slices, scale)


MORE, LESS = Better.MORE, Better.LESS

TPS = Metric("tps", "transactions per second", "tx/s", MORE, short="tx/s", of_slices=partial(_speed, 1.0))
TPM = Metric("tpm", "transactions per minute", "TPM", MORE, short="TPM", of_slices=partial(_speed, S_PER_MIN))
NOPM = Metric("nopm", "new orders per minute", "NOPM", MORE, short="NOPM", of_slices=_new_orders_per_minute)
INSERTS = Metric("inserts", "rows inserted per second", "inserts/s", MORE, short="inserts/s")
INDEXED = Metric("indexed", "rows indexed per second", "indexed rows/s", MORE, short="indexed rows/s")
QUERIES = Metric("queries", "queries per second", "queries/s", MORE, short="queries/s")
CAPACITY = Metric(
    *("capacity", "capacity within the latency limit", "tx/s", MORE),
    short="capacity, tx/s",
    of_slices=_capacity,
)
"""For a study that searches for the capacity in every block."""
SERVER_CPU = Metric(
    *("server_cpu", "server CPU per transaction", "µs", LESS),
    short="server CPU, µs/tx",
    of_slices=_server_cpu,
)
DRIVER_CPU = Metric(
    *("driver_cpu", "driver CPU per transaction", "µs", LESS),
    short="driver CPU, µs/tx",
    of_slices=_driver_cpu,
)
LOAD_TIME = Metric("load_s", "load time", "s", LESS, of_slices=_load_time)
LOAD_ROWS, LOAD_BYTES = (
    Metric(f"load_{of}", f"{of} loaded per second", unit, MORE, of_slices=partial(_loaded, of, scale))
    for of, unit, scale in (("rows", "rows/s", 1.0), ("bytes", "MiB/s", PER_MIB))
)
OF_DRIVER: Sequence[Metric] = (
    *(TPS, TPM, NOPM, INSERTS, INDEXED, QUERIES, CAPACITY),
    *(LOAD_TIME, LOAD_ROWS, LOAD_BYTES, SERVER_CPU, DRIVER_CPU),
)
"""Metrics of every workload, regardless of the verdict's metric."""

MEDIAN_LATENCY = Metric("median_latency", "median latency", "ms", LESS, "p50 of all transactions")
"""Metric that replaces throughput under a fixed load."""

MEAN_TIME = "statement.mean_ms"
"""Prefix of the mean time of each statement."""

LATENCY = "latency"
ALL_KINDS = "all"
"""Key of all kinds of transactions together, and the default of conditions on latency."""

KEYS = frozenset({"name", "unit", "better", "text", "counted_in", "probe", "recounted"})


def _read_table() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Read ``metrics.toml``: group → name → definition."""
    return tomllib.loads(Path(__file__).with_name("metrics.toml").read_text("utf-8"))


def read_metrics(table: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Metric]:
    """Yield the metrics of probes and samples. Raises ValueError for an invalid definition."""
    for group, lines in table.items():
        for name, of in lines.items() if group != LATENCY else ():
            key = f"{group}.{name}"
            try:
                formula = _formula(group, of)
                text = of.get("text") or (formula.text if formula else "")
                recounted = of.get("recounted", 0)
                names = key, of["name"], of["unit"], Better(of["better"]), text
                yield Metric(*names, formula=formula, recounted=recounted)
            except (KeyError, ValueError) as error:
                raise ValueError(f"metrics.toml: {key}: {error}") from error


def _formula(group: str, of: Mapping[str, Any]) -> Formula | None:
    kinds = of.keys() - KEYS
    if len(kinds) > 1 or not kinds <= TEXTS.keys() or not (kinds or of.get("text")):
        raise ValueError("use one kind of formula, or a text")
    if not kinds:
        return None
    (kind,) = kinds
    probe = of.get("probe", "relations" if group == "relation" else group)
    if "counted_in" in of and (of["counted_in"], of["unit"]) not in SCALES:
        raise ValueError(f"counted_in: no conversion of {of['counted_in']} to {of['unit']}")
    scale = SCALES[of["counted_in"], of["unit"]] if "counted_in" in of else 1.0
    return Formula(kind, tuple(of[kind]), probe, scale)


_TABLE = _read_table()

PERCENTILES: Mapping[str, float] = {name: float(of["quantile"]) for name, of in _TABLE[LATENCY].items()}
"""Percentile of latency → share of the transactions at or below it."""

PERCENTILES_COMPARED: Sequence[str] = [name for name, of in _TABLE[LATENCY].items() if of["compared"]]
"""Compared percentiles: for higher ones a block has too few values for a meaningful ratio."""

_EVERY = tuple(read_metrics(_TABLE))


_GROUPS_OF_SAMPLES = frozenset({"host", "locks", "waits", "wait", "probes", "trial", "load"})


def _of_groups(groups: Collection[str]) -> Sequence[Metric]:
    return tuple(metric for metric in _EVERY if metric.key.partition(".")[0] in groups)


OF_RELATIONS = _of_groups({"relation"})
"""Metrics of each table and index."""
OF_STATEMENTS = _of_groups({"statement"})
"""Metrics of each statement."""
OF_SAMPLES = _of_groups(_GROUPS_OF_SAMPLES)
"""Metrics of the samples and of the trial itself."""
OF_TRIALS = _of_groups(_TABLE.keys() - _GROUPS_OF_SAMPLES - {LATENCY, "relation", "statement"})
"""Metrics of the probes over a whole trial."""

METRICS: Mapping[str, Metric] = {metric.key: metric for metric in (*OF_DRIVER, MEDIAN_LATENCY, *_EVERY)}
"""Every metric by key, except latencies, whose keys have a kind of transaction."""


def latency_key(kind: str, percentile: str) -> str:
    """Return the key of a latency: ``latency.new_order.p99``."""
    return f"{LATENCY}.{kind}.{percentile}"


def split_latency(key: str) -> tuple[str, str]:
    """Return the kind of transactions and the percentile of the key of a latency."""
    kind, _, percentile = key.removeprefix(f"{LATENCY}.").rpartition(".")
    return kind, percentile


def latency_metric(kind: str, percentile: str) -> Metric:
    """Return the metric of a percentile of one kind of transactions."""
    key = latency_key(kind, percentile)
    return Metric(key, key, "ms", Better.LESS, "from merged histograms")


def is_latency(key: str) -> bool:
    """Return whether this is the key of a percentile of latency."""
    return key.startswith(f"{LATENCY}.")


def is_tail(key: str) -> bool:
    """Return whether this is the key of a percentile of latency above the median."""
    return is_latency(key) and not key.endswith(".p50")


def of_plan(plan: Study, latencies: TrialLatencies) -> Sequence[Metric]:
    """Return the metrics of a study, the primary one (of the verdict) first.

    The primary metric is throughput if the server determines it. Under a fixed load it is the median latency.
    If each block searches for the capacity, it is the capacity, and the other metrics are measured at that
    load. ``latencies`` are needed for the median of all kinds.
    """
    if plan.searches_clients:
        return replace(CAPACITY, unit="clients", short="capacity, clients"), TPS, SERVER_CPU, DRIVER_CPU
    if plan.searches_capacity:
        return CAPACITY, SERVER_CPU, DRIVER_CPU
    chosen = _of_workload(plan)
    if not plan.load_is_fixed:
        return chosen
    medians = latencies.under(latency_key(ALL_KINDS, "p50"), MEDIAN_LATENCY.key)
    return (replace(MEDIAN_LATENCY, by_trial=medians.values, bounds=medians.bounds), *chosen)


def _of_workload(plan: Study) -> Sequence[Metric]:
    """Return the throughput metrics that all arms have, such as NOPM with new orders, and the CPU metrics."""
    paces = [plan.driving(arm).workload.pace for arm in range(len(plan.arms))]

    def own_rate(trial: Trial, slices: Sequence[Slice]) -> float | None:
        return paced(paces[trial.arm], slices) or None

    first, *others = (OF_UNIT.get(pace.unit, (TPS,)) for pace in paces)
    common = (one for one in first if all(one in other for other in others))
    chosen = (one if one.of_slices else replace(one, of_slices=own_rate) for one in common)
    return *chosen, SERVER_CPU, DRIVER_CPU


OF_UNIT: Mapping[str, Sequence[Metric]] = {
    **{"NOPM": (NOPM, TPM), "TPM": (TPM,)},
    "loads/h": (LOAD_TIME, LOAD_ROWS, LOAD_BYTES),
    **{"inserts/s": (INSERTS, TPS), "indexed rows/s": (INDEXED, TPS), "queries/s": (QUERIES, TPS)},
}
"""Throughput metrics by the unit of the customary rate of a workload, the one of the verdict first. Workloads
with other units have transactions per second."""
