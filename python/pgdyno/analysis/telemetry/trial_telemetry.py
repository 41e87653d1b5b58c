"""Telemetry of one trial: readings, series and CPU profile as values by key.

    telemetry = {
        trial.trial: of_trial(trial, evidence.readings(trial.trial), evidence.series(trial.trial))
        for trial in trials if trial.status is TrialStatus.OK
    }
    effects_on(arms, trials, compared_metrics(telemetry), plan.schedule, plan.confidence)
    telemetry_levels(trials_of_an_arm, telemetry, plan.confidence)

``metrics.toml`` defines the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pgdyno.analysis.statistics.effect import Method, level_of, method_of
from pgdyno.analysis.telemetry import client_time
from pgdyno.analysis.telemetry.client_time import ClientTime
from pgdyno.analysis.telemetry.counters import (
    OTHERS,
    Gauges,
    Missing,
    Row,
    Window,
    identity,
    numeric,
    window,
)
from pgdyno.analysis.telemetry.metrics import (
    METRICS,
    OF_DRIVER,
    OF_RELATIONS,
    OF_SAMPLES,
    OF_STATEMENTS,
    OF_TRIALS,
    Metric,
    keyed,
    split_key,
)
from pgdyno.analysis.telemetry.samples import GAUGES, WAITS, of_samples
from pgdyno.analysis.telemetry.statements import statements
from pgdyno.caveats import Caveat, Code
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import (
    Arm,
    SampleSeries,
    StoredReading,
    StudyRecord,
    Trial,
    TrialStatus,
)
from pgdyno.study.probe_names import Absence
from pgdyno.units import US_PER_S

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
    """Return the profile from the rows of ``probe.perf_profiler``; None without rows or transactions."""
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


@dataclass(frozen=True)
class TrialTelemetry:
    """Telemetry of one trial. ``values`` are by key; objects have their name after a colon.

    ``statements``, ``relations`` and ``waits`` are names, the one with the most time or bytes first.
    ``missing`` has the reasons by probe. ``elapsed_s`` is from the first reading to the last. ``machine`` has
    the differences of the machine's counters in that time. ``time`` is the breakdown of a transaction's time.
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
    values |= sampled | {f"trial.{key}": value for key, value in own.items() if value is not None}
    if trial.probe_cpu_s is not None and trial.transactions:
        values["probes.us_per_tx"] = US_PER_S * trial.probe_cpu_s / trial.transactions
    time = client_time.client_time_of_trial(trial, w, found, (series or {}).get(WAITS))
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
    )


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
    found = {key: level(key, of, confidence) for key, of in by_block.items()}
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


def level(key: str, by_block: Mapping[int, float], confidence: float) -> Estimate | None:
    """Return an arm's level of a key over its blocks."""
    of = METRICS[split_key(key)[0]]
    return level_of(by_block, of.unit, of.better, confidence)


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
            found.append(Caveat(Code.STATISTICS_RESET, {"probe": probe, "arm": arm.name, "trials": n}))
        by_reason: dict[str, dict[str, None]] = {}
        for of in mine:
            for probe, why in of.missing.items():
                if why.absence is Absence.OTHER:
                    by_reason.setdefault(why.reason, {})[probe] = None
        for reason, probes in by_reason.items():
            names = {"probes": ", ".join(probes), "arm": arm.name, "reason": reason}
            found.append(Caveat(Code.PROBE_UNAVAILABLE, names))
    return found


Levels = Mapping[str, str]
"""factor → name of its level."""


@dataclass(frozen=True)
class MetricValues:
    """Values of one metric in one case: ``by_block`` is arm → block → value."""

    unit: str
    better: Better
    by_block: Mapping[int, Mapping[int, float]]


@dataclass(frozen=True)
class CaseValues:
    """Values of one case. ``arms`` are the levels of each arm; ``values`` are by key of the metric."""

    name: str
    levels: Levels
    arms: Sequence[Levels]
    values: Mapping[str, MetricValues]
    confidence: float
    method: Method


def case_values(
    study: StudyRecord,
    trials: Sequence[Trial],
    metrics: Sequence[Metric] = (),
    telemetry: Mapping[int, TrialTelemetry] | None = None,
) -> CaseValues:
    """Return the values of a case's ok trials. ``telemetry`` is by trial ID; ``metrics`` are additional."""
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    found: dict[str, dict[int, dict[int, float]]] = {}
    units: dict[str, tuple[str, Better]] = {}
    for metric in {metric.key: metric for metric in (*OF_DRIVER, *metrics)}.values():
        units[metric.key] = (metric.unit, metric.better)
        for trial in ok:
            if (value := metric.value(trial, trial.measured)) is not None:
                found.setdefault(metric.key, {}).setdefault(trial.arm, {})[trial.block] = value
    for trial in ok:
        of = (telemetry or {}).get(trial.trial)
        for key, value in of.values.items() if of else ():
            metric = METRICS[split_key(key)[0]]
            units[key] = (metric.unit, metric.better)
            found.setdefault(key, {}).setdefault(trial.arm, {})[trial.block] = value
    return CaseValues(
        name=study.case,
        levels={factor: str(level) for factor, level in study.levels.items()},
        arms=[dict(levels) for levels in study.arm_levels],
        values={key: MetricValues(*units[key], by_block) for key, by_block in found.items()},
        confidence=study.plan.confidence,
        method=method_of(study.plan, trials),
    )
