"""Telemetry of a case by arm, and verdicts on single queries.

- Telemetry of a case: values by trial, levels of the arms, effects, and the cost of probing.
- Verdicts on single queries: scripts by the service time of the driver, statements by pg_stat_statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from sys import intern
from typing import Annotated, Any, Literal

import numpy as np

from pgdyno.analysis.comparison import (
    Comparison,
    Effect,
    Verdict,
    effects_by_arm,
    judge,
    metric_values,
    ok_by_block,
)
from pgdyno.analysis.finding_fields import ArmName, ByArm, Hidden, about, in_json
from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.averages import Combined, combine
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, method_of
from pgdyno.analysis.telemetry import trial_telemetry
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, OF_STATEMENTS, Metric, keyed, split_key
from pgdyno.analysis.telemetry.percentiles import mean_us
from pgdyno.analysis.telemetry.samples import HOST, SERVER
from pgdyno.analysis.telemetry.trial_telemetry import (
    ClientTime,
    TrialTelemetry,
    compared_metrics,
    telemetry_of_trial,
)
from pgdyno.hooks import Hooks
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, Measure, SampleSeries, StudyRecord, Trial, TrialStatus
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Study
from pgdyno.units import US_PER_S, Better, Estimate

# ----------------------------------------------------------------------
# Telemetry of a case: values by trial, levels of the arms, effects, and the cost of probing.
#
# Telemetry is separate from the metrics of the driver: effects here change no interval or verdict there.
# Series are read and reduced one trial at a time. Only the server's columns for charts and slopes are kept.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class ProbeCost:
    """Cost of probing during measurement.

    ``share`` is the share of the CPU time of all cores, for all arms together; None if the number of cores is
    unknown. ``us_per_tx`` is CPU time in µs per executed transaction, by arm.
    """

    share: Annotated[float | None, about("Share of the machine's CPU time, all arms together.")]
    us_per_tx: ByArm[float]


def probe_cost(cores: int | None, trials: Sequence[Trial]) -> ProbeCost | None:
    """Return the cost of probing in these trials; None without probes or without their CPU time."""
    spent = [
        (trial, trial.probe_cpu_s) for trial in trials if trial.probe_cpu_s is not None and trial.measured
    ]
    if not spent:
        return None
    measured_s = _measured_s([trial for trial, _ in spent])
    given_s = cores * measured_s if cores is not None else 0.0
    us_per_tx = {}
    for arm in dict.fromkeys(trial.arm for trial, _ in spent):
        mine = [(cpu_s, trial.transactions or 0) for trial, cpu_s in spent if trial.arm == arm]
        transactions = sum(n for _, n in mine)
        if transactions:
            us_per_tx[arm] = US_PER_S * sum(cpu_s for cpu_s, _ in mine) / transactions
    return ProbeCost(sum(cpu_s for _, cpu_s in spent) / given_s if given_s > 0 else None, us_per_tx)


def _measured_s(trials: Sequence[Trial]) -> float:
    """Return the measured time. Trials of a block that alternate share it."""
    spans = sorted(
        (epoch_s + trial.measured[0].opened_s, epoch_s + trial.measured[-1].drained_s)
        for trial in trials
        for epoch_s in [trial.epoch_unix_s if trial.epoch_unix_s is not None else trial.started_unix_s]
    )
    total_s, until_s = 0.0, float("-inf")
    for from_s, to_s in spans:
        total_s += max(0.0, to_s - max(from_s, until_s))
        until_s = max(until_s, to_s)
    return total_s


SERVER_COLUMNS = ("at_s", "late_s", "lsn_bytes", "num_timed", "num_requested", "frozen_xid_age")
"""Columns of the server's series that have a chart or a slope."""

BRACKETS = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"})
"""Transaction statements of less than a microsecond: their ratios measure the clock, not the server."""

CALLS_MIN = 30
"""Minimum number of calls of a statement in every trial for a change: single calls dominate smaller means."""

PER_CALL = {of.key for of in OF_STATEMENTS} - {
    "statement.calls",
    "statement.total_ms",
    "statement.share_of_time",
}


@dataclass(frozen=True)
class SeriesResult:
    """A result of a feature about the series of each trial.

    ``find`` takes the series by probe, the settings of the server, the number of clients, and the machine's
    series of trials measured at the same time on servers that pgdyno started.
    """

    name: str
    find: Callable[[Mapping[str, SampleSeries], Mapping[str, str], int, Sequence[SampleSeries]], Any]


SERIES_RESULTS = Hooks[SeriesResult]("series_results")


@dataclass(frozen=True)
class CaseTelemetry:
    """Telemetry of a case.

    ``by_trial`` and ``series`` (of the server, columns SERVER_COLUMNS) are by trial, for those that count.
    ``of_series`` is by name of a ``SeriesResult`` and trial ID, for all trials. ``metrics`` are the compared
    metrics by key. ``levels`` (arm → key) has every metric with a value in any block, also zero and less.
    ``effects`` has those with a ratio in every block that has values of both arms. ``average`` is the
    geometric mean of an arm's effects on the mean times of the statements.
    """

    by_trial: Hidden[Mapping[int, TrialTelemetry]]
    series: Hidden[Mapping[int, SampleSeries]]
    of_series: Hidden[Mapping[str, Mapping[int, Any]]]
    metrics: Hidden[Mapping[str, Metric]]
    levels: Annotated[
        ByArm[Mapping[str, Estimate]],
        about("By the index of the arm and the key in docs/reference/metrics.md."),
    ]
    effects: Annotated[
        ByArm[Mapping[str, Effect]], about("By the index of the arm after the first and the key.")
    ]
    average: Hidden[Mapping[int, Combined]]
    cost: ProbeCost | None
    missing: Annotated[
        ByArm[Mapping[str, str]],
        about("Reason by the index of the arm and probe, if the version of the server lacks it."),
    ]

    @in_json
    def statements_average(self) -> ByArm[Estimate]:
        """Geometric mean over the statements' mean times, by the index of the arm after the first."""
        return {arm: of.percent(Better.LESS) for arm, of in self.average.items()}

    def parts(self, key: str) -> list[str]:
        """Return the statements, relations or waits that have this key, in their order."""
        pairs = (split_key(own) for own in self.metrics)
        return [part for of, part in pairs if of == key]


def read_case(
    evidence: Evidence, study: StudyRecord, arms: Sequence[Arm], trials: Sequence[Trial]
) -> CaseTelemetry:
    """Read the telemetry of a case. The caller holds a snapshot."""
    by_trial, series = {}, {}
    of_series: dict[str, dict[int, Any]] = {result.name: {} for result in SERIES_RESULTS}
    clients = {arm.arm: arm.clients for arm in arms}
    is_duet = study.plan.schedule is Schedule.DUET
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    for together in _at_a_time(trials):
        sampled = {trial.trial: evidence.series(trial.trial) for trial in together}
        for trial in together:
            own = sampled[trial.trial]
            beside = [of[HOST] for other, of in sampled.items() if other != trial.trial and HOST in of]
            for result in SERIES_RESULTS:
                kept = result.find(own, trial.settings, clients[trial.arm], beside)
                of_series[result.name][trial.trial] = kept
            if trial.status is not TrialStatus.OK:
                continue
            found = telemetry_of_trial(trial, evidence.readings(trial.trial), own, is_duet=is_duet)
            by_trial[trial.trial] = _shared(found)
            if SERVER in own:
                series[trial.trial] = _kept(own[SERVER])
    by_trial = {
        trial: replace(by_trial[trial], values=values)
        for trial, values in trial_telemetry.filled(by_trial).items()
    }
    confidence = study.plan.confidence
    metrics = {metric.key: metric for metric in compared_metrics(by_trial)}
    compared = [metric for key, metric in metrics.items() if not _is_rare(key, by_trial)]
    method = method_of(study.plan, trials)
    effects = effects_on(arms, ok, compared, study.plan.schedule, confidence, method)
    return CaseTelemetry(
        by_trial=by_trial,
        series=series,
        of_series=of_series,
        metrics=metrics,
        levels={
            arm.arm: trial_telemetry.telemetry_levels(
                [t for t in ok if t.arm == arm.arm], by_trial, confidence, method, metrics
            )
            for arm in arms
        },
        effects=effects,
        average={
            arm: average for arm, of in effects.items() if (average := _average(of, confidence, method))
        },
        cost=probe_cost(study.host_facts.cores, ok),
        missing=trial_telemetry.not_in_version(arms, ok, by_trial),
    )


def _at_a_time(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Group the trials by run of the driver."""
    found: dict[object, list[Trial]] = {}
    for trial in trials:
        run = trial.trial if trial.epoch_unix_s is None else (trial.block, trial.epoch_unix_s)
        found.setdefault(run, []).append(trial)
    return list(found.values())


def effects_on(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    metrics: Sequence[Metric],
    schedule: Schedule,
    confidence: float,
    method: Method,
) -> dict[int, dict[str, Effect]]:
    """Return each arm's effects by key, with Holm's correction over the arms for each metric.

    An effect with a value of zero or less in any block is omitted: without these blocks it would be biased.
    So is one between versions that count differently.
    """
    blocks = ok_by_block(trials)
    values = {
        metric.key: [
            metric_values(blocks, arm.arm, metric, schedule) if counted_alike(metric, arms[0], arm) else {}
            for arm in arms[1:]
        ]
        for metric in metrics
    }
    positive = {
        key: [of if all(a > 0 and b > 0 for a, b in of.values()) else {} for of in of_arms]
        for key, of_arms in values.items()
    }
    found = effects_by_arm(len(arms) - 1, positive, metrics, confidence, method)
    return {arm.arm: found[i] for i, arm in enumerate(arms[1:])}


def counted_alike(metric: Metric, *arms: Arm) -> bool:
    """Return whether the versions of the arms, as far as known, count the metric in the same way."""
    majors = [re.match(r"\d+", arm.server_facts.version or "") for arm in arms]
    return len({int(major[0]) >= metric.recounted for major in majors if major}) < 2


def _is_rare(key: str, telemetry: Mapping[int, TrialTelemetry]) -> bool:
    """Return True for values per call of a statement that has no change: too few calls, or BRACKETS."""
    name, text = split_key(key)
    if name not in PER_CALL:
        return False
    calls = [
        of.values[own] for of in telemetry.values() if (own := keyed("statement.calls", text)) in of.values
    ]
    return text.split()[0].upper() in BRACKETS or min(calls, default=0) < CALLS_MIN


def _average(effects: Mapping[str, Effect], confidence: float, method: Method) -> Combined | None:
    """Return the average over the statements with a change of the mean time."""
    of = keyed(MEAN_TIME, "")
    ratios = {key.removeprefix(of): effects[key].log_ratios for key in effects if key.startswith(of)}
    return combine(ratios, confidence, method) if len(ratios) > 1 else None


def _shared(of: TrialTelemetry) -> TrialTelemetry:
    """Return the telemetry with interned keys, which contain the texts of statements."""
    return replace(
        of,
        values={intern(key): value for key, value in of.values.items()},
        statements=[intern(text) for text in of.statements],
        relations=[intern(name) for name in of.relations],
        time=_interned(of.time),
    )


def _interned(of: ClientTime) -> ClientTime:
    if of.statements is None:
        return of
    return replace(of, statements={intern(text): us for text, us in of.statements.items()})


def _kept(series: SampleSeries) -> SampleSeries:
    columns = [name for name in SERVER_COLUMNS if name in series.columns]
    places = [series.columns.index(name) for name in columns]
    return SampleSeries(series.probe, columns, series.points[:, places])


# ----------------------------------------------------------------------
# Verdicts on single queries: scripts by the service time of the driver, statements by pg_stat_statements.
#
# The estimate is that of the arms: one log ratio of mean times per block (``effect``). Holm's correction is
# over all queries of all arms, separately for scripts and statements, which are two views of the same time. A
# study that stops on its verdict has the anytime-valid interval, because the block at which it stops depends
# on the same times. The queries share a server: a query that uses more of it slows the others, too.
# ----------------------------------------------------------------------

CALLS_OF_CHANGE_MIN = 10
"""Minimum number of calls in every block of both arms. With fewer, a single call dominates the mean, and a
block may have none: omitting it would bias the change."""

FAILED_SHARE_MAX = 0.01
"""Maximum share of failed transactions of a script with a verdict: only those that ended have a time."""

QueryKind = Literal["script", "statement"]


@dataclass(frozen=True)
class QueryTime:
    """Calls of a query in one trial, their mean time in ms, and the share of the time of all queries."""

    calls: float
    mean_ms: float
    share: float


Times = Mapping[int, Mapping[str, QueryTime]]
"""Trial ID → name of a query → its time. Trials without a measurement are absent."""


@dataclass(frozen=True)
class QueryChange:
    """Change of a query's mean time. ``share`` is that of the baseline's time, from 0 to 1.

    ``baseline_ms`` and ``arm_ms`` are geometric means over the blocks.
    """

    name: Annotated[str, about("Name of the script, or text of the statement.")]
    share: float
    baseline_ms: float
    arm_ms: float
    log_ratios: Annotated[Mapping[int, float], about("Natural logarithm of the ratio by block (from 0).")]
    summary: LogRatioSummary
    verdict: Verdict

    @in_json
    def percent(self) -> Estimate:
        """The change in percent; less time is better."""
        return self.summary.percent(Better.LESS)

    @in_json
    def contribution(self) -> float:
        """Change of the time of all queries due to this one, as a share of it, at the baseline's calls."""
        return self.share * float(np.expm1(self.summary.mean))


@dataclass(frozen=True)
class QueryChanges:
    """Changes of an arm's queries, ranked: differences by contribution, then the others by their share.

    ``uncompared`` are the names of queries with too few calls in a block of an arm, the one with the most
    time first. ``family`` is the number of changes that are corrected together.
    """

    baseline: ArmName
    arm: ArmName
    kind: QueryKind
    changes: Annotated[Sequence[QueryChange], about("Differences first, with the largest contribution.")]
    uncompared: Annotated[Sequence[str], about("Queries with too few calls in a block, most time first.")]
    family: Annotated[int, about("Number of comparisons in the family of Holm's correction.")]

    def with_verdict(self, verdict: Verdict) -> list[QueryChange]:
        """Return the changes with a verdict."""
        return [change for change in self.changes if change.verdict is verdict]


def find_query_changes(
    evidence: Evidence,
    plan: Study,
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    telemetry: Mapping[int, TrialTelemetry],
) -> list[QueryChanges]:
    """Return the changes by script and by statement, of each arm with at least two of them.

    Empty if each arm ran at a rate of its own: times at different loads are not comparable.
    """
    if plan.searches_capacity:
        return []
    method = method_of(plan, trials)
    failing = {kind for trial in trials for kind in _failing(trial)}
    scripts = _script_times(evidence, trials) if plan.workload.kind == "pgbench" else {}
    return [
        *query_changes("script", comparisons, trials, scripts, plan, method, failing),
        *query_changes("statement", comparisons, trials, _statement_times(telemetry), plan, method),
    ]


def _script_times(evidence: Evidence, trials: Sequence[Trial]) -> dict[int, dict[str, QueryTime]]:
    found = {}
    for trial in trials:
        if trial.status is not TrialStatus.OK:
            continue
        histograms = {of.kind: of.pairs for of in evidence.histograms(trial.trial, Measure.SERVICE)}
        known = {
            kind: (float(pairs[:, 1].sum()), us / 1e3)
            for kind, pairs in histograms.items()
            if (us := mean_us(pairs)) is not None
        }
        total_ms = sum(calls * mean_ms for calls, mean_ms in known.values())
        found[trial.trial] = {
            kind: QueryTime(calls, mean_ms, calls * mean_ms / total_ms)
            for kind, (calls, mean_ms) in known.items()
            if mean_ms > 0
        }
    return found


def _statement_times(telemetry: Mapping[int, TrialTelemetry]) -> dict[int, dict[str, QueryTime]]:
    found = {}
    for trial, of in telemetry.items():
        times = {
            text: QueryTime(
                of.values[keyed("statement.calls", text)],
                mean_ms,
                of.values.get(keyed("statement.share_of_time", text), 0.0) / 100,
            )
            for text in of.statements
            if (mean_ms := of.values[keyed(MEAN_TIME, text)]) > 0 and text.split()[0].upper() not in BRACKETS
        }
        if times:
            found[trial] = times
    return found


def _failing(trial: Trial) -> list[str]:
    """Return the kinds of a trial with too many failures."""
    kinds = {kind for piece in trial.measured for kind in piece.kinds}
    found = []
    for kind in kinds:
        counts = [piece.kinds[kind] for piece in trial.measured if kind in piece.kinds]
        failed, ended = sum(of.failed for of in counts), sum(of.executed for of in counts)
        if failed > FAILED_SHARE_MAX * (failed + ended):
            found.append(kind)
    return found


def query_changes(
    kind: QueryKind,
    comparisons: Sequence[Comparison],
    trials: Sequence[Trial],
    times: Times,
    plan: Study,
    method: Method,
    failing: Collection[str] = (),
) -> list[QueryChanges]:
    """Return the changes of each arm. ``failing`` queries have no verdict, whatever their interval is."""
    by_block = ok_by_block(trials)
    total_ms: dict[str, float] = {}
    for of_trial in times.values():
        for name, of in of_trial.items():
            total_ms[name] = total_ms.get(name, 0.0) + of.calls * of.mean_ms
    names = sorted(total_ms, key=lambda name: -total_ms[name])
    if len(names) < 2:
        return []
    compared: dict[tuple[int, str], dict[int, tuple[QueryTime, QueryTime]]] = {}
    for i, comparison in enumerate(comparisons):
        pairs = {
            block: (times[trials_of[0].trial], times[trials_of[comparison.arm.arm].trial])
            for block, trials_of in by_block.items()
            if {0, comparison.arm.arm} <= trials_of.keys()
            and {trials_of[0].trial, trials_of[comparison.arm.arm].trial} <= times.keys()
        }
        for name in names:
            known = {block: (a[name], b[name]) for block, (a, b) in pairs.items() if name in a and name in b}
            enough = all(min(a.calls, b.calls) >= CALLS_OF_CHANGE_MIN for a, b in known.values())
            if known and enough and len(known) == len(pairs):
                compared[i, name] = known
    ratios = {
        key: {block: float(np.log(b.mean_ms / a.mean_ms)) for block, (a, b) in known.items()}
        for key, known in compared.items()
    }
    summaries = intervals.simultaneous(
        [partial(_summary, list(d.values()), method) for d in ratios.values()], plan.confidence
    )
    changes: list[list[QueryChange]] = [[] for _ in comparisons]
    for (i, name), summary in zip(compared, summaries, strict=True):
        held_back = comparisons[i].is_held_back or name in failing
        verdict = judge(summary, plan.margin, Better.LESS)
        every = list(compared[i, name].values())
        changes[i].append(
            QueryChange(
                name,
                float(np.mean([a.share for a, _ in every])),
                float(np.exp(np.mean([np.log(a.mean_ms) for a, _ in every]))),
                float(np.exp(np.mean([np.log(b.mean_ms) for _, b in every]))),
                ratios[i, name],
                summary,
                Verdict.UNDECIDED if held_back else verdict,
            )
        )
    return [
        QueryChanges(
            comparison.baseline,
            comparison.arm,
            kind,
            sorted(of_arm, key=_rank),
            [name for name in names if (i, name) not in compared],
            len(compared),
        )
        for i, (comparison, of_arm) in enumerate(zip(comparisons, changes, strict=True))
    ]


def _summary(d: Sequence[float], method: Method, confidence: float) -> LogRatioSummary:
    return intervals.summarize(d, confidence, method)


def _rank(change: QueryChange) -> tuple[bool, float]:
    differs = change.verdict in {Verdict.SLOWER, Verdict.FASTER}
    return not differs, -abs(change.contribution) if differs else -change.share
