"""Comparison of an arm with the baseline: counted blocks, effects on all metrics, verdict on the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pgdyno.analysis.comparison.verdict import Decision, Verdict, decide, judge
from pgdyno.analysis.statistics import effect
from pgdyno.analysis.statistics.bootstrap import bootstrap_interval
from pgdyno.analysis.statistics.effect import LogRatioSummary, Method, method_of
from pgdyno.analysis.steady_state.stationarity import (
    SUSPICION,
    WarmUpChange,
    effect_trends,
    trending,
    warm_up_changes,
)
from pgdyno.analysis.telemetry.metrics import Metric, is_tail
from pgdyno.analysis.telemetry.percentiles import MissedLimit
from pgdyno.estimate import Estimate
from pgdyno.results.records import Arm, Slice, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule

BlockTrials = Mapping[int, Mapping[int, Trial]]
"""block → arm → its ok trial."""

Values = Mapping[int, tuple[float, float]]
"""block → (value of the baseline, value of the arm)."""

TAIL_SD_MAX = 0.25
"""Maximum SD of the block ratios of a tail percentile that has an interval.

Rare stalls give a larger SD, and then no interval covers with few blocks (docs/explanation/tails.md).
"""


@dataclass(frozen=True)
class Effect:
    """Effect of an arm on one metric. ``log_ratios`` is block → ln(x_arm / x_baseline).

    Only the primary metric has ``bootstrap``, an interval of the mean log ratio. It checks the verdict by
    Student's interval, because both are intervals for a single analysis, and is never shown.
    """

    key: str
    name: str
    log_ratios: Mapping[int, float]
    summary: LogRatioSummary
    percent: Estimate
    bootstrap: tuple[float, float] | None

    def bootstrap_verdict(self, margin: float) -> Verdict | None:
        """Return the verdict by the bootstrap interval alone."""
        if self.bootstrap is None:
            return None
        low, high = self.bootstrap
        return self._judged(replace(self.summary, low=low, high=high), margin)

    @property
    def is_dispersed(self) -> bool:
        """True if the block ratios of a tail percentile are too dispersed for an interval."""
        return _is_dispersed(self.key, list(self.log_ratios.values()))

    def is_disputed(self, margin: float) -> bool:
        """Return whether the verdicts by Student's and the bootstrap interval differ."""
        student = effect.student(list(self.log_ratios.values()), self.summary.confidence)
        return self.bootstrap_verdict(margin) not in {None, self._judged(student, margin)}

    def _judged(self, summary: LogRatioSummary, margin: float) -> Verdict:
        """Judge by one interval for difference and equivalence, so that two intervals can be compared."""
        return judge(summary, summary, margin, self.percent.better)


@dataclass(frozen=True)
class Comparison:
    """``blocks`` count. ``dropped`` do not: a trial of either arm was excluded, failed or interrupted.

    In ``stalled`` blocks an arm completed nothing, so the ratio is undefined. In ``censored`` blocks only a
    lower bound of its value is known. In ``failed`` blocks the server of an arm failed, or a check of its
    work. Omitting an arm's worst blocks would bias the effect in its favor, so a comparison with blocks
    ``lost_by_an_arm`` has no decision, and a metric with censored values has no effect. ``is_trending``: the
    effect changes within the windows, or with the warm-up, so its mean depends on the length of the warm-up:
    no decision, either. ``may_trend``: it may change, at a level that is too weak for this, but another block
    will tell.
    ``unconfirmed`` names the arms that missed the latency limit at their capacity: no decision, either.
    """

    baseline: Arm
    arm: Arm
    blocks: Sequence[int]
    dropped: Sequence[int]
    stalled: Sequence[int]
    censored: Sequence[int]
    failed: Sequence[int]
    effects: Mapping[str, Effect]
    primary: Effect | None
    decision: Decision | None
    margin: float
    is_trending: bool = False
    may_trend: bool = False
    unconfirmed: Sequence[str] = ()

    @property
    def lost_by_an_arm(self) -> list[int]:
        """Blocks without a ratio because of one of the two arms."""
        return sorted({*self.stalled, *self.censored, *self.failed})

    @property
    def is_held_back(self) -> bool:
        """True if the estimate is biased, whatever its interval is."""
        return self.is_trending or bool(self.lost_by_an_arm or self.unconfirmed)

    @property
    def verdict(self) -> Verdict:
        """The verdict; undecided also if no block counts or it is held back."""
        return self.decision.verdict if self.decision else Verdict.UNDECIDED


def ok_by_block(trials: Sequence[Trial]) -> dict[int, dict[int, Trial]]:
    """Return the trials that count, by block and arm."""
    found: dict[int, dict[int, Trial]] = {}
    for trial in trials:
        if trial.status is TrialStatus.OK:
            found.setdefault(trial.block, {})[trial.arm] = trial
    return found


def compare_arms(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    plan: Study,
    metrics: Sequence[Metric],
    cases: int = 1,
) -> list[Comparison]:
    """Compare every arm with the first, in all metrics; the first one is of the verdict.

    ``cases``: number of cases of the study, which share the level of the test for trends.

    A block in which an arm has no value above zero is omitted. An effect without its censored blocks would be
    biased, so a metric with any has none.
    """
    by_block = ok_by_block(trials)
    censored = {metric.key: [_censored(by_block, arm.arm, metric) for arm in arms[1:]] for metric in metrics}
    values = {
        metric.key: [
            {} if blocks else metric_values(by_block, arm.arm, metric, plan.schedule)
            for arm, blocks in zip(arms[1:], censored[metric.key], strict=True)
        ]
        for metric in metrics
    }
    values = {
        key: [{block: of for block, of in of_arm.items() if of[0] and of[1]} for of_arm in of_arms]
        for key, of_arms in values.items()
    }
    effects = effects_by_arm(
        len(arms) - 1,
        values,
        metrics,
        plan.confidence,
        method_of(plan, trials),
        primary=metrics[0].key,
    )
    trends = effect_trends(plan, arms, trials)
    are_trending = trending(trends, plan.margin, cases)
    may_trend = trending(trends, plan.margin, cases, SUSPICION)
    by_warm_up = warm_up_changes(arms, trials)
    return [
        _comparison(
            arms[0],
            arm,
            is_trending=are_trending[1 + i],
            may_trend=may_trend[1 + i],
            by_warm_up=by_warm_up[1 + i],
            dropped=_dropped(trials, arm.arm),
            failed=sorted({t.block for t in trials if t.arm in {0, arm.arm} and t.failed_by_itself}),
            censored=censored[metrics[0].key][i],
            both_ok={block for block, of_arm in by_block.items() if {0, arm.arm} <= of_arm.keys()},
            effects=effects[i],
            primary=metrics[0],
            plan=plan,
        )
        for i, arm in enumerate(arms[1:])
    ]


def without_unconfirmed(comparisons: Sequence[Comparison], missed: Sequence[MissedLimit]) -> list[Comparison]:
    """Return the comparisons, without a decision on capacities at which an arm missed the limit."""
    found = []
    for comparison in comparisons:
        pair = {comparison.baseline.arm, comparison.arm.arm}
        names = [of.arm.name for of in missed if of.arm.arm in pair]
        found.append(replace(comparison, unconfirmed=names, decision=None) if names else comparison)
    return found


def effects_by_arm(
    arms: int,
    values: Mapping[str, Sequence[Values]],
    metrics: Iterable[Metric],
    confidence: float,
    method: Method,
    primary: str = "",
) -> list[dict[str, Effect]]:
    """Return each arm's effects by key, for metrics with values in a block. ``values``: key → one per arm.

    Holm's correction is over the arms for each key separately, so more keys widen no interval. ``primary`` is
    the key of the verdict, which the bootstrap checks.
    """
    found: list[dict[str, Effect]] = [{} for _ in range(arms)]
    for metric in metrics:
        key = metric.key
        of_key = _effects(metric, values[key], confidence, method, checked=key == primary)
        for of_arm, one in zip(found, of_key, strict=True):
            if one is not None:
                of_arm[key] = one
    return found


def _comparison(
    baseline: Arm,
    arm: Arm,
    *,
    is_trending: bool,
    may_trend: bool,
    by_warm_up: WarmUpChange | None,
    dropped: Sequence[int],
    failed: Sequence[int],
    censored: Sequence[int],
    both_ok: set[int],
    effects: Mapping[str, Effect],
    primary: Metric,
    plan: Study,
) -> Comparison:
    main = effects.get(primary.key)
    is_trending = is_trending or (by_warm_up is not None and by_warm_up.exceeds(plan.margin))
    # With a censored block no ratio is computed, so whether another block has one is not known.
    stalled = [] if censored else sorted(both_ok - (main.log_ratios.keys() if main else set()))
    return Comparison(
        baseline=baseline,
        arm=arm,
        blocks=sorted(main.log_ratios) if main else [],
        dropped=dropped,
        stalled=stalled,
        censored=censored,
        failed=failed,
        effects=effects,
        primary=main,
        decision=decide(main.summary, primary.better, plan.margin, plan.confidence)
        if main and not stalled and not failed and not is_trending
        else None,
        margin=plan.margin,
        is_trending=is_trending,
        may_trend=may_trend,
    )


def _censored(by_block: BlockTrials, arm: int, metric: Metric) -> list[int]:
    """Return the blocks in which only a bound of the value of the arm or the baseline is known."""
    return [
        block
        for block, of_arm in sorted(by_block.items())
        if {0, arm} <= of_arm.keys() and any(metric.bound(of_arm[one]) is not None for one in (0, arm))
    ]


def _dropped(trials: Sequence[Trial], arm: int) -> list[int]:
    counting = {TrialStatus.OK, TrialStatus.SUPERSEDED, TrialStatus.RUNNING}
    return sorted({t.block for t in trials if t.arm in {0, arm} and t.status not in counting})


def _effects(
    metric: Metric,
    values: Sequence[Values],
    confidence: float,
    method: Method,
    *,
    checked: bool,
) -> list[Effect | None]:
    ratios = [{block: float(np.log(b / a)) for block, (a, b) in of_arm.items()} for of_arm in values]
    summaries = effect.simultaneous([partial(_summary, metric.key, d, method) for d in ratios], confidence)
    return [
        None if summary is None else _effect(metric, d, summary, checked=checked)
        for d, summary in zip(ratios, summaries, strict=True)
    ]


def _summary(
    key: str, ratios: Mapping[int, float], method: Method, confidence: float
) -> LogRatioSummary | None:
    return summarize_ratios(key, ratios, confidence, method) if ratios else None


def summarize_ratios(
    key: str, ratios: Mapping[int, float], confidence: float, method: Method
) -> LogRatioSummary:
    """Return the mean log ratio of a metric, without an interval if it is a dispersed tail percentile.

    ``ratios`` must not be empty.
    """
    d = list(ratios.values())
    if _is_dispersed(key, d):
        return effect.with_error(float(np.mean(d)), None, len(d), confidence, method)
    return effect.summarize(d, confidence, method)


def _is_dispersed(key: str, d: Sequence[float]) -> bool:
    return is_tail(key) and len(d) > 1 and float(np.std(d, ddof=1)) > TAIL_SD_MAX


def _effect(
    metric: Metric, ratios: Mapping[int, float], summary: LogRatioSummary, *, checked: bool
) -> Effect:
    bootstrap = bootstrap_interval(list(ratios.values()), summary.confidence) if checked else None
    return Effect(metric.key, metric.name, ratios, summary, summary.percent(metric.better), bootstrap)


def metric_values(by_block: BlockTrials, arm: int, metric: Metric, schedule: Schedule) -> Values:
    """Return the values of an arm and the baseline in the blocks that have both."""
    found = {}
    for block, of_arm in sorted(by_block.items()):
        if 0 not in of_arm or arm not in of_arm:
            continue
        a, b = of_arm[0], of_arm[arm]
        slices = _slices(a, b, schedule)
        x_a, x_b = metric.value(a, slices[0]), metric.value(b, slices[1])
        if x_a is not None and x_b is not None:
            found[block] = (x_a, x_b)
    return found


def _slices(a: Trial, b: Trial, schedule: Schedule) -> tuple[Sequence[Slice], Sequence[Slice]]:
    if schedule.is_together:
        return effect.paired(a, b)
    return a.measured, b.measured
