"""Findings of one case, from which every report is made."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Any

from pydantic import model_serializer

from pgdyno.analysis import steady_state, time_breakdown
from pgdyno.analysis.comparison import Comparison, compare_arms, with_tails, without_unconfirmed
from pgdyno.analysis.comparison_caveats import block_caveats, comparison_caveats, skips_arrivals
from pgdyno.analysis.finding_fields import ByArm, Hidden, Key, MetricKey, about, in_json, shown
from pgdyno.analysis.measurement_noise import Noise, noise_caveats, with_noise
from pgdyno.analysis.queries import CaseTelemetry, QueryChanges, find_query_changes, read_case
from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.intervals import Method, method_of, percent_of
from pgdyno.analysis.steady_state import (
    Drift,
    SteadyState,
    drifts_of_arm,
    find_steady_state,
    steady_state_caveats,
)
from pgdyno.analysis.telemetry import metrics, percentiles, trial_telemetry
from pgdyno.analysis.telemetry.metrics import (
    ALL_KINDS,
    PERCENTILES,
    PERCENTILES_COMPARED,
    Metric,
    TrialLatencies,
    latency_key,
    latency_metric,
)
from pgdyno.analysis.telemetry.percentiles import (
    Latencies,
    LatencyMs,
    limited_by_trial,
    merge_latencies,
    missed_limit_caveats,
    missed_limits,
)
from pgdyno.analysis.telemetry.samples import SERVER, ThroughputPoint, throughput_points
from pgdyno.analysis.time_breakdown import TimeBreakdown
from pgdyno.caveats import Caveat
from pgdyno.hooks import Hooks
from pgdyno.results.reader import Evidence
from pgdyno.results.records import (
    Arm,
    Block,
    BlockStatus,
    Counts,
    Executed,
    Measure,
    StudyRecord,
    Trial,
    TrialStatus,
)
from pgdyno.study.plan import Study
from pgdyno.units import Estimate


@dataclass(frozen=True)
class ArmFindings:
    """Values of one arm over its ok trials. ``latency`` is kind → merged latencies.

    ``bounds`` has the lower bound of each level that is not known, by metric.
    """

    arm: Arm
    trials_by_status: Annotated[Mapping[TrialStatus, int], about("Number of trials by status.")]
    levels: Annotated[
        Mapping[str, Estimate | None], about("By metric: ``nopm``, ``server_cpu``, … Null if unknown.")
    ]
    bounds: Hidden[Mapping[str, float]]
    counts: Annotated[Mapping[str, Counts], about("By kind of transaction, of the measured slices.")]
    latency: Hidden[Mapping[str, Latencies]]
    driver_memory_bytes: Annotated[int | None, about("Peak memory of the driver.")]
    restore_s: Annotated[float | None, about("Mean time of the restore of the data.")]
    start_s: Annotated[float | None, about("Mean time of the start of the server.")]
    deviations: Annotated[Sequence[str], about("Names, from TPC-C; empty for other workloads.")] = ()

    @in_json
    def latency_ms(self) -> dict[str, dict[str, float | None]]:
        """By kind: ``n``, ``p50`` … ``max``; null with too few transactions."""
        return {
            kind: {"n": of.n, **{name: ms and ms.value for name, ms in of.quantiles_ms().items()}}
            for kind, of in self.latency.items()
        }

    @in_json
    def lower_bounds(self) -> dict[str, float]:
        """Latencies in ms that are only known to be longer, by metric: arrivals were skipped."""
        return {
            **self.bounds,
            **{
                latency_key(kind, name): ms.value
                for kind, of in self.latency.items()
                for name, ms in of.quantiles_ms().items()
                if ms is not None and ms.is_bound
            },
        }

    def quantiles_ms(self, kind: str) -> dict[str, LatencyMs | None]:
        """Return the quantiles of one kind, or of ALL_KINDS."""
        return self.latency.get(kind, Latencies()).quantiles_ms()


@dataclass(frozen=True)
class Findings:
    """Results of a case before presentation. ``series`` is trial ID → throughput over time."""

    study: StudyRecord
    metrics: Hidden[Sequence[Metric]]
    kinds: Annotated[Sequence[str], about("Kinds of transactions.")]
    arms: Annotated[Sequence[ArmFindings], about("The baseline first.")]
    comparisons: Annotated[Sequence[Comparison], about("One per arm after the first.")]
    blocks: Hidden[Sequence[Block]]
    trials: Hidden[Sequence[Trial]]
    executed: Hidden[Mapping[int, Executed]]  # trial ID → the intervals of the driver
    series: Hidden[Mapping[int, Sequence[ThroughputPoint]]]
    latencies: Hidden[Sequence[Metric]]  # all percentiles of all kinds, by name
    limited_ms: Hidden[Mapping[int, float | None]]  # trial ID → the limited quantile; may be infinite
    caveats: Sequence[Caveat]
    block_s: Annotated[float | None, about("Duration of the last block: the first one copies all data.")]
    telemetry: CaseTelemetry
    drifts: Annotated[ByArm[Sequence[Drift]], about("By the index of the arm; empty for short windows.")]
    noise: Noise
    time_breakdowns: ByArm[TimeBreakdown]
    queries: Annotated[
        Sequence[QueryChanges], about("By arm, of scripts and of statements, if there are several.")
    ]
    steady_states: Annotated[Sequence[SteadyState], about("One per arm.")]
    cases: Hidden[int] = 1  # of the study
    feature_findings: Hidden[Mapping[str, Any]] = field(default_factory=dict)
    """Results of features by name."""

    @model_serializer(mode="wrap")
    def _as_json(self, own):  # type: ignore[no-untyped-def]  # the JSON Schema would be that of a return type
        return with_case_results(own(self), lambda key: shown(key.kind, self.feature_findings.get(key.name)))

    @in_json
    def primary(self) -> MetricKey:
        """The metric of the verdict."""
        return self.metrics[0]

    @in_json
    def coverage(self) -> float | None:
        """Share of the recorded time of a database that the scripts cover. Null for other loads."""
        return self.study.plan.workload.coverage

    @in_json
    def blocks_max(self) -> int:
        """Largest number of blocks of a comparison."""
        return max((len(comparison.blocks) for comparison in self.comparisons), default=0)

    @property
    def noise_floor(self) -> float | None:
        """Noise floor of ``blocks_max`` blocks as a log ratio, at the largest confidence of a comparison."""
        confidences = [of.primary.summary.confidence for of in self.comparisons if of.primary]
        return self.noise.floor(self.blocks_max, max(confidences, default=None))

    @in_json
    def noise_floor_percent(self) -> float | None:
        """Noise floor of ``blocks_max`` blocks. Null with too few A/A blocks."""
        return None if self.noise_floor is None else percent_of(self.noise_floor)

    @in_json
    def noise_detectable_percent(self) -> float | None:
        """Smallest effect that so many blocks detect with 80% power. Null with too few A/A blocks."""
        detectable = self.noise.detectable(self.blocks_max)
        return None if detectable is None else percent_of(detectable)

    @property
    def every_metric(self) -> list[Metric]:
        """All metrics with values of single trials: of the driver, telemetry, latencies."""
        return [*self.metrics, *self.telemetry.metrics.values(), *self.latencies]

    @property
    def has_own_rates(self) -> bool:
        """True if each arm ran at its own rate, found by a search."""
        return self.primary.key == metrics.CAPACITY.key

    @property
    def at_own_rates(self) -> str:
        """Suffix for titles of comparisons by transaction."""
        return ", each arm at its own rate" if self.has_own_rates else ""


@dataclass(frozen=True)
class CaseResult(Key):
    """A result of a feature about a case. ``after``: the key of ``Findings`` that it follows in JSON."""

    after: str
    find: Callable[[Findings], Any]


CASE_RESULTS = Hooks[CaseResult]("case_results")


def with_case_results(fields: Mapping[str, Any], value: Callable[[CaseResult], Any]) -> dict[str, Any]:
    """Return the fields of ``Findings`` with those of features."""
    keys, found = sorted(CASE_RESULTS, key=attrgetter("name")), dict[str, Any]()
    for name, own in fields.items():
        found |= {name: own, **{key.name: value(key) for key in keys if key.after == name}}
    return found


def find_case(evidence: Evidence, case: int, noise: Noise) -> Findings:
    """Read one case and compute its findings. Verdicts account for the noise. The caller holds a snapshot."""
    study, arms, cases = evidence.study(case), evidence.arms(case), len(evidence.cases())
    blocks, trials = evidence.blocks(case), evidence.trials(case)
    latencies = {
        trial.trial: percentiles.read_latencies(evidence, trial.trial)
        for trial in trials
        if trial.status is TrialStatus.OK
    }
    executed = {trial.trial: evidence.executed(trial.trial) for trial in trials}
    series = {trial: throughput_points(of) for trial, of in executed.items()}
    stored = evidence.caveats(case)
    kinds = _kinds(trials, study.plan)
    of_kinds = {trial: {**of, ALL_KINDS: merge_latencies(of.values())} for trial, of in latencies.items()}
    latency_ms = percentiles.trial_latencies(of_kinds)
    chosen = metrics.of_plan(study.plan, latency_ms)
    compared = _latencies(kinds, PERCENTILES_COMPARED, latency_ms)
    limited_ms = limited_by_trial(study.plan, trials, latencies)
    missed = missed_limits(study.plan, arms, trials, limited_ms)
    comparisons = compare_arms(arms, trials, study.plan, [*chosen, *compared], cases)
    comparisons = with_tails(comparisons, trials, of_kinds, study.plan)
    comparisons = without_unconfirmed(comparisons, missed)
    noise = noise.of_today(comparisons)
    of_arms = [_of_arm(arm, trials, latencies, chosen, study.plan) for arm in arms]
    medians = {of.arm.arm: of.quantiles_ms(ALL_KINDS)["p50"] for of in of_arms}
    p50_ms = {arm: None if ms is None else ms.value for arm, ms in medians.items()}
    telemetry = read_case(evidence, study, arms, trials)
    drifts_by_arm = {arm.arm: _drifts(arm, trials, series, telemetry, study.plan) for arm in arms}
    computed = [
        *comparison_caveats(study, arms, trials, comparisons, p50_ms),
        *noise_caveats(comparisons, noise),
    ]
    steady = find_steady_state(study.plan, arms, trials, series, telemetry.series, telemetry.by_trial, cases)
    computed += steady_state_caveats(study.plan, steady, cases)
    computed += trial_telemetry.telemetry_caveats(arms, trials, telemetry.by_trial)
    computed += block_caveats(comparisons, cases)
    computed += missed_limit_caveats(study.plan, missed)
    for arm in arms:
        window_s = _window_s([trial for trial in trials if trial.arm == arm.arm])
        computed += steady_state.drift_caveats(
            arm, drifts_by_arm[arm.arm], window_s, study.plan.margin, cases * len(arms)
        )
    durations = [
        block.ended_unix_s - block.started_unix_s
        for block in blocks
        if block.status is BlockStatus.DONE and block.ended_unix_s is not None
    ]
    found = Findings(
        study=study,
        metrics=chosen,
        kinds=kinds,
        arms=of_arms,
        comparisons=[with_noise(comparison, noise) for comparison in comparisons],
        blocks=blocks,
        trials=trials,
        executed=executed,
        series=series,
        latencies=_latencies(sorted(kinds), PERCENTILES, latency_ms),
        limited_ms=limited_ms,
        caveats=_without_duplicates(computed, stored),
        block_s=durations[-1] if durations else None,
        telemetry=telemetry,
        drifts=drifts_by_arm,
        noise=noise,
        time_breakdowns=_time_breakdowns(evidence, comparisons, trials, telemetry, study.plan),
        queries=find_query_changes(evidence, study.plan, trials, comparisons, telemetry.by_trial),
        steady_states=steady,
        cases=cases,
    )
    return replace(found, feature_findings={key.name: key.find(found) for key in CASE_RESULTS})


def _latencies(kinds: Sequence[str], names: Iterable[str], latency_ms: TrialLatencies) -> list[Metric]:
    return [
        replace(latency_metric(kind, name), by_trial=latency_ms.values, bounds=latency_ms.bounds)
        for kind in [*kinds, ALL_KINDS]
        for name in names
    ]


def _drifts(
    arm: Arm,
    trials: Sequence[Trial],
    points: Mapping[int, Sequence[ThroughputPoint]],
    telemetry: CaseTelemetry,
    plan: Study,
) -> list[Drift]:
    series = {trial: {SERVER: of} for trial, of in telemetry.series.items()}
    return drifts_of_arm(arm, trials, points, series, telemetry.by_trial, plan.confidence)


def _time_breakdowns(
    evidence: Evidence,
    comparisons: Sequence[Comparison],
    trials: Sequence[Trial],
    telemetry: CaseTelemetry,
    plan: Study,
) -> dict[int, TimeBreakdown]:
    if plan.searches_capacity or plan.workload.HAS_RATES:
        # Each arm has another rate in each block, or clients pause: times would show the load, not servers.
        return {}
    arms = [*(of.baseline for of in comparisons[:1]), *(of.arm for of in comparisons)]
    confidences = {
        of.arm.arm: of.primary.summary.confidence if of.primary else plan.confidence for of in comparisons
    }
    times = {trial: of.time for trial, of in telemetry.by_trial.items()}
    # With many skipped arrivals the mean latency is not known, and that of the others is too low.
    overloaded = any(skips_arrivals([t for t in trials if t.arm == arm.arm]) for arm in arms)
    measured = () if overloaded else times
    mean_us = _mean_latencies_us(evidence, measured) if plan.load_is_fixed else None
    return time_breakdown.break_down_time(arms, trials, times, mean_us, confidences, method_of(plan, trials))


def _mean_latencies_us(evidence: Evidence, trials: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return the mean latency and lag of each trial, of its answered transactions."""
    found = {}
    for trial in trials:
        of = [
            percentiles.mean_us(percentiles.merge(h.pairs for h in evidence.histograms(trial, measure)))
            for measure in (Measure.LATENCY, Measure.LAG)
        ]
        if of[0] is not None and of[1] is not None:
            found[trial] = (of[0], of[1])
    return found


def _window_s(trials: Sequence[Trial]) -> float:
    """Return the mean time from the first measured slice to the last."""
    spans = [trial.measured[-1].drained_s - trial.measured[0].opened_s for trial in trials if trial.measured]
    return sum(spans) / len(spans) if spans else 0.0


def _of_arm(
    arm: Arm,
    trials: Sequence[Trial],
    latencies: Mapping[int, Mapping[str, Latencies]],
    chosen: Sequence[Metric],
    plan: Study,
) -> ArmFindings:
    mine = [trial for trial in trials if trial.arm == arm.arm]
    ok = [trial for trial in mine if trial.status is TrialStatus.OK]
    by_kind = {
        kind: merge_latencies(latencies[trial.trial].get(kind, Latencies()) for trial in ok)
        for kind in _kinds(ok, plan)
    }
    memory = [trial.driver_memory_bytes for trial in ok if trial.driver_memory_bytes is not None]
    return ArmFindings(
        arm=arm,
        trials_by_status={
            status: n for status in TrialStatus if (n := sum(trial.status is status for trial in mine))
        },
        levels={
            metric.key: _level(metric, ok, plan.confidence, method_of(plan, trials)) for metric in chosen
        },
        bounds={metric.key: bound for metric in chosen if (bound := _bound(metric, ok)) is not None},
        counts=_counts(ok),
        latency={**by_kind, ALL_KINDS: merge_latencies(by_kind.values())},
        driver_memory_bytes=max(memory, default=None),
        restore_s=_mean([trial.restore_s for trial in ok]),
        start_s=_mean([trial.start_s for trial in ok]),
        deviations=[of.name for of in plan.driving(arm.arm).workload.deviations],
    )


def _level(metric: Metric, trials: Sequence[Trial], confidence: float, method: Method) -> Estimate | None:
    if any(metric.bound(trial) is not None for trial in trials):
        return None
    values = {trial.block: metric.value(trial, trial.measured) for trial in trials}
    known = {block: value for block, value in values.items() if value}
    return intervals.own_level(known, metric.unit, metric.better, confidence, method)


def _bound(metric: Metric, trials: Sequence[Trial]) -> float | None:
    """Return the lower bound of a level that is not known: the geometric mean with the bounds of trials."""
    if all(metric.bound(trial) is None for trial in trials):
        return None
    values = [metric.bound(trial) or metric.value(trial, trial.measured) for trial in trials]
    return statistics.geometric_mean([value for value in values if value])


def _counts(trials: Sequence[Trial]) -> dict[str, Counts]:
    found: dict[str, list[Counts]] = {}
    for trial in trials:
        for piece in trial.measured:
            for kind, counts in piece.kinds.items():
                found.setdefault(kind, []).append(counts)
    return {kind: Counts.total(of) for kind, of in found.items()}


def _kinds(trials: Sequence[Trial], plan: Study) -> list[str]:
    """Return the kinds in the order of the workload, or by name."""
    found = {kind for trial in trials for piece in trial.slices for kind in piece.kinds}
    order = {kind: i for i, kind in enumerate(plan.workload.kinds())}
    return sorted(found, key=lambda kind: (order.get(kind, len(order)), kind))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _without_duplicates(computed: Sequence[Caveat], stored: Sequence[Caveat]) -> list[Caveat]:
    """Combine caveats without duplicates. A stored caveat replaces computed ones of the same kind.

    The exception is an unavailable probe: a lost series does not imply the missing readings.
    """
    known = {caveat.kind for caveat in stored} - {"probe-unavailable"}
    every = [*(caveat for caveat in computed if caveat.kind not in known), *stored]
    return list({(caveat.trial, caveat.code, caveat.text): caveat for caveat in every}.values())
