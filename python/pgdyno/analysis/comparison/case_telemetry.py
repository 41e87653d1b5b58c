"""Telemetry of a case: values by trial, levels of the arms, effects, and the cost of probing.

Telemetry is separate from the metrics of the driver: effects here change no interval or verdict there.
Series are read and reduced one trial at a time. Only the server's columns for charts and slopes are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from sys import intern

from pgdyno.analysis.comparison.paired_comparison import Effect, effects_by_arm, metric_values, ok_by_block
from pgdyno.analysis.statistics.effect import Method, method_of
from pgdyno.analysis.statistics.pooling import Combined, combine
from pgdyno.analysis.telemetry import trial_telemetry
from pgdyno.analysis.telemetry.client_time import ClientTime
from pgdyno.analysis.telemetry.events import SERVER_CPU, Events, events_of
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, OF_STATEMENTS, Metric, keyed, split_key
from pgdyno.analysis.telemetry.samples import HOST, SERVER
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry, compared_metrics, telemetry_of_trial
from pgdyno.estimate import Estimate
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, SampleSeries, StudyRecord, Trial, TrialStatus
from pgdyno.study.schedule import Schedule
from pgdyno.units import US_PER_S


@dataclass(frozen=True)
class ProbeCost:
    """Cost of probing during measurement.

    ``share`` is the share of the CPU time of all cores, for all arms together; None if the number of cores is
    unknown. ``us_per_tx`` is CPU time in µs per executed transaction, by arm.
    """

    share: float | None
    us_per_tx: Mapping[int, float]


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
class CaseTelemetry:
    """Telemetry of a case.

    ``by_trial``, ``series`` (of the server, columns SERVER_COLUMNS) and ``events`` are by trial ID.
    Only trials that count are included. ``metrics`` are the compared metrics by key. ``levels`` (arm → key)
    has every metric with a value in any block, also zero and less. ``effects`` has those with a ratio in
    every block that has values of both arms. ``average`` is the geometric mean of an arm's effects on the
    mean times of the statements.
    """

    by_trial: Mapping[int, TrialTelemetry]
    series: Mapping[int, SampleSeries]
    events: Mapping[int, Events]
    metrics: Mapping[str, Metric]
    levels: Mapping[int, Mapping[str, Estimate]]
    effects: Mapping[int, Mapping[str, Effect]]
    average: Mapping[int, Combined]
    cost: ProbeCost | None
    missing: Mapping[int, Mapping[str, str]]  # arm → probe → reason, if its version lacks it

    def parts(self, key: str) -> list[str]:
        """Return the statements, relations or waits that have this key, in their order."""
        pairs = (split_key(own) for own in self.metrics)
        return [part for of, part in pairs if of == key]


def read_case(
    evidence: Evidence, study: StudyRecord, arms: Sequence[Arm], trials: Sequence[Trial]
) -> CaseTelemetry:
    """Read the telemetry of the ok trials. The caller holds a snapshot."""
    by_trial, series, events = {}, {}, {}
    clients = {arm.arm: arm.clients for arm in arms}
    is_duet = study.plan.schedule is Schedule.DUET
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    for together in _at_a_time(trials):
        sampled = {trial.trial: evidence.series(trial.trial) for trial in together}
        servers = {
            trial: _only(of[HOST], ("at_s", SERVER_CPU)) for trial, of in sampled.items() if HOST in of
        }
        for trial in together:
            if trial.status is not TrialStatus.OK:
                continue
            own = sampled[trial.trial]
            found = telemetry_of_trial(trial, evidence.readings(trial.trial), own, is_duet=is_duet)
            by_trial[trial.trial] = _shared(found)
            beside = [of for other, of in servers.items() if other != trial.trial]
            events[trial.trial] = events_of(own, trial.settings, clients[trial.arm], beside)
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
        events=events,
        metrics=metrics,
        levels={
            arm.arm: trial_telemetry.telemetry_levels(
                [t for t in ok if t.arm == arm.arm], by_trial, confidence, metrics
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
    """
    blocks = ok_by_block(trials)
    values = {
        metric.key: [metric_values(blocks, arm.arm, metric, schedule) for arm in arms[1:]]
        for metric in metrics
    }
    positive = {
        key: [of if all(a > 0 and b > 0 for a, b in of.values()) else {} for of in of_arms]
        for key, of_arms in values.items()
    }
    found = effects_by_arm(len(arms) - 1, positive, metrics, confidence, method)
    return {arm.arm: found[i] for i, arm in enumerate(arms[1:])}


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
    return _only(series, SERVER_COLUMNS)


def _only(series: SampleSeries, names: Sequence[str]) -> SampleSeries:
    columns = [name for name in names if name in series.columns]
    return SampleSeries(
        series.probe, columns, series.points[:, [series.columns.index(name) for name in columns]]
    )
