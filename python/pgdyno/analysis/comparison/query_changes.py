"""Verdicts on single queries: scripts by the service time of the driver, statements by pg_stat_statements.

The estimate is that of the arms: one log ratio of mean times per block (``effect``). Holm's correction is
over all queries of all arms, separately for scripts and statements, which are two views of the same time. A
study that stops on its verdict has the anytime-valid interval, because the block at which it stops depends on
the same times. The queries share a server: a query that uses more of it slows the others, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from pgdyno.analysis.comparison.case_telemetry import BRACKETS
from pgdyno.analysis.comparison.paired_comparison import Comparison, ok_by_block
from pgdyno.analysis.comparison.verdict import Verdict, judge
from pgdyno.analysis.statistics import effect
from pgdyno.analysis.statistics.effect import LogRatioSummary, Method, method_of
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, keyed
from pgdyno.analysis.telemetry.percentiles import mean_us
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.estimate import Better, Estimate
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, Measure, Trial, TrialStatus
from pgdyno.study.plan import Study

CALLS_MIN = 10
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

    name: str
    share: float
    baseline_ms: float
    arm_ms: float
    log_ratios: Mapping[int, float]
    summary: LogRatioSummary
    verdict: Verdict

    @property
    def percent(self) -> Estimate:
        """The change in percent; less time is better."""
        return self.summary.percent(Better.LESS)

    @property
    def contribution(self) -> float:
        """Change of the time of all queries due to this one, as a share of it, at the baseline's calls."""
        return self.share * float(np.expm1(self.summary.mean))


@dataclass(frozen=True)
class QueryChanges:
    """Changes of an arm's queries, ranked: differences by contribution, then the others by their share.

    ``uncompared`` are the names of queries with too few calls in a block of an arm, the one with the most
    time first. ``family`` is the number of changes that are corrected together.
    """

    baseline: Arm
    arm: Arm
    kind: QueryKind
    changes: Sequence[QueryChange]
    uncompared: Sequence[str]
    family: int

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
            enough = all(min(a.calls, b.calls) >= CALLS_MIN for a, b in known.values())
            if known and enough and len(known) == len(pairs):
                compared[i, name] = known
    ratios = {
        key: {block: float(np.log(b.mean_ms / a.mean_ms)) for block, (a, b) in known.items()}
        for key, known in compared.items()
    }
    summaries = effect.simultaneous(
        [partial(_summary, list(d.values()), method) for d in ratios.values()], plan.confidence
    )
    changes: list[list[QueryChange]] = [[] for _ in comparisons]
    for (i, name), summary in zip(compared, summaries, strict=True):
        held_back = comparisons[i].is_held_back or name in failing
        verdict = judge(summary, summary.equivalence(plan.confidence), plan.margin, Better.LESS)
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
    return effect.summarize(d, confidence, method)


def _rank(change: QueryChange) -> tuple[bool, float]:
    differs = change.verdict in {Verdict.SLOWER, Verdict.FASTER}
    return not differs, -abs(change.contribution) if differs else -change.share
