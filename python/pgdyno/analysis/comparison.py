"""Comparison of an arm with the baseline: counted blocks, verdicts, and what is needed for one.

- Verdicts from intervals and a margin, and the blocks that an undecided one needs.
- Probability of a verdict after further blocks, the change that makes one likely, and what can be resolved.
- Comparison of an arm with the baseline: counted blocks, effects on all metrics, verdict on the first.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Annotated

import numpy as np

from pgdyno.analysis.finding_fields import ArmName, Hidden, about, in_json
from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.intervals import (
    CONFIDENCE,
    LogRatioSummary,
    Method,
    Proportion,
    bootstrap_interval,
    critical_value,
    method_of,
    percent_of,
    proportion,
)
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN, QuantileChange, quantile_change
from pgdyno.analysis.steady_state import (
    ALARM_OF_EFFECTS,
    ALARM_OF_RISES,
    ALARM_TO_EXTEND,
    SUSPICION,
    WarmUpBias,
    effect_trends,
    trending,
    warm_up_biases,
)
from pgdyno.analysis.telemetry.metrics import PERCENTILES, Metric, is_tail, paced, split_latency
from pgdyno.analysis.telemetry.percentiles import Latencies, MissedLimit, block_counts
from pgdyno.results.records import Arm, Slice, Trial, TrialStatus
from pgdyno.study.defaults import Schedule, is_duet_sound
from pgdyno.study.plan import SAME_BLOCKS_MIN, VERDICT_BLOCKS_MIN, Study
from pgdyno.units import Better, Estimate, ci_text, counted, share_text

# ----------------------------------------------------------------------
# Verdicts from intervals and a margin, and the blocks that an undecided one needs.
#
# See docs/explanation/method.md.
#
# The margin δ is a share of the baseline. On the log scale, where the arms are interchangeable, it is ±ln(1 +
# δ). With δ = 2% the arms are the same if the ratio is within 1 / 1.02 … 1.02.
#
# *Same*: two one-sided tests reject an effect of −δ or less and one of +δ or more. Each has the level of the
# interval, so the probability that an arm with a larger effect is called the same is at most that level.
# Otherwise *faster* and *slower*: the interval excludes 0. All arms share its level (Holm). Both can be true.
# ----------------------------------------------------------------------

POWER = 0.80
"""1 − β: the probability that the number of blocks still needed suffices."""

BLOCKS_NEEDED_MAX = 10_000
"""Limit of the search. A study that needs more blocks requires a quieter machine."""


class Verdict(StrEnum):
    """Verdict on an arm against the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"

    @property
    def word(self) -> str:
        """The verdict in sentences."""
        return "equivalent" if self is Verdict.SAME else str(self)


@dataclass(frozen=True)
class Decision:
    """A verdict with its basis. Percentages are of the baseline."""

    verdict: Verdict
    difference: Annotated[
        Verdict | None, about("Faster or slower if the interval excludes 0, also if the verdict is same.")
    ]
    margin: float
    detectable_percent: Annotated[
        float | None, about("Effect that the blocks so far detect with 80% power. Null below 2 blocks.")
    ]
    blocks_needed: Annotated[
        int | None, about("Number of further blocks until a verdict is likely. Null if decided.")
    ]

    def without_difference(self, blocks_needed: int | None = None) -> Decision:
        """Return the decision if the difference is below the noise floor: *same* stays."""
        if self.difference is None:
            return self
        if self.verdict is Verdict.SAME:
            return replace(self, difference=None)
        return replace(self, verdict=Verdict.UNDECIDED, difference=None, blocks_needed=blocks_needed)


def decide(summary: LogRatioSummary, better: Better, margin: float) -> Decision:
    """Return the decision on a metric. A change in the better direction is ``faster``."""
    verdict = judge(summary, margin, better)
    return Decision(
        verdict=verdict,
        difference=None if verdict is Verdict.UNDECIDED else difference(summary, better),
        margin=margin,
        detectable_percent=detectable_percent(summary),
        blocks_needed=blocks_needed(summary, margin) if verdict is Verdict.UNDECIDED else None,
    )


def judge(
    summary: LogRatioSummary, margin: float, better: Better = Better.MORE, blocks: int | None = None
) -> Verdict:
    """Return the verdict of an interval. Surely within the margin: same, even if the interval excludes 0.

    ``blocks`` is the number of blocks if ``summary.n`` is that of hosts.
    """
    n = summary.n if blocks is None else blocks
    if n < VERDICT_BLOCKS_MIN or summary.low is None or summary.high is None:
        return Verdict.UNDECIDED
    if is_within(summary, margin):
        return Verdict.SAME if may_be_same(n, summary.method) else Verdict.UNDECIDED
    return difference(summary, better) or Verdict.UNDECIDED


def difference(summary: LogRatioSummary, better: Better) -> Verdict | None:
    """Return faster or slower if the interval excludes 0, whatever the margin is; else None."""
    if summary.low is None or summary.high is None or summary.low <= 0 <= summary.high:
        return None
    return Verdict.FASTER if (summary.low > 0) == (better is not Better.LESS) else Verdict.SLOWER


def is_within(summary: LogRatioSummary, margin: float) -> bool:
    """Return whether two one-sided tests at the level of the interval reject an effect beyond the margin.

    An interval with twice the level has about half of it at each end.
    """
    low, high = intervals.ends(summary, 2 * summary.confidence - 1)
    return max(-low, high) <= math.log1p(margin)


def may_be_same(n: int, method: Method) -> bool:
    """Return whether so many blocks are enough for *same*."""
    return method is Method.STUDENT or n >= SAME_BLOCKS_MIN


def detectable_percent(summary: LogRatioSummary) -> float | None:
    """Return the minimum detectable effect in percent: (t_{α/2} + t_β) · s · √(1/n), with power POWER.

    The critical value of the interval's method replaces t_{α/2}. None if so few blocks have no interval.
    """
    if summary.sd is None:
        return None
    reach = detectable_log_ratio(summary.sd, summary.n, summary.confidence, summary.method)
    return None if math.isinf(reach) else percent_of(reach)


def blocks_needed(summary: LogRatioSummary, margin: float) -> int:
    """Return the number of further blocks for a decision, if effect and SD are as estimated.

    The interval either excludes 0, or fits into the margin. If it fits already, only the minimum is missing.
    """
    awaits_same = is_within(summary, margin) and summary.method is Method.ANYTIME
    least = max(1, (SAME_BLOCKS_MIN if awaits_same else VERDICT_BLOCKS_MIN) - summary.n)
    if summary.sd is None:
        return least
    sd, confidence, method = summary.sd, summary.confidence, summary.method

    def suffices(n: int) -> bool:
        return (
            detectable_log_ratio(sd, n, confidence, method) <= abs(summary.mean)
            or _same_probability(summary.mean, sd, n, margin, confidence, method) >= POWER
        )

    # Both improve with every block, so a binary search finds the first sufficient number.
    return least + bisect_left(range(summary.n + least, BLOCKS_NEEDED_MAX), True, key=suffices)


def detectable_log_ratio(sd: float, n: int, confidence: float, method: Method) -> float:
    """Return the log ratio that ``n`` blocks with this SD detect with probability POWER.

    Infinite if so few blocks have no interval.
    """
    if n < 2:
        return math.inf
    t_alpha = critical_value(n, confidence, method)
    t_beta = intervals.t_quantile(POWER, n - 1)
    return (t_alpha + t_beta) * sd * math.sqrt(1 / n)


def _same_probability(
    mean: float, sd: float, n: int, margin: float, confidence: float, method: Method
) -> float:
    """Return the probability that ``n`` ≥ 2 blocks reject both one-sided hypotheses."""
    t_alpha = critical_value(n, 2 * confidence - 1, method) if may_be_same(n, method) else math.inf
    if sd == 0 or math.isinf(t_alpha):
        return float(abs(mean) < math.log1p(margin) and not math.isinf(t_alpha))
    distances = ((math.log1p(margin) + sign * mean) / sd * math.sqrt(n) for sign in (-1, 1))
    return 1 - sum(intervals.t_beyond(distance - t_alpha, n - 1) for distance in distances)


# ----------------------------------------------------------------------
# Probability of a verdict after further blocks, the change that makes one likely, and what can be resolved.
#
# The mean and the SD of the block ratios are drawn from their posterior under the reference prior 1 / σ.
# Given n blocks with mean d and SD s, (n − 1) s² / σ² has the chi-squared distribution with n − 1 degrees of
# freedom, and μ is N(d, σ² / n). Each draw gives further blocks and the verdict after them. Interim analyses
# on the way are ignored, so the true probability is a little higher.
# ----------------------------------------------------------------------

DRAWS = 2000
SEED = 20261123
"""Fixed, so that repeated forecasts are equal."""

DUET_TIME_SHARE = 0.55
"""Time that a duet needs, as a share of that of slices (``python -m bench pairs``)."""

BUDGET_FACTOR_MAX = 4.0
"""Maximum factor of the budget that is suggested. Beyond it, the noise must become less.

A larger margin is never suggested: it is what counts as equal, and no study may choose it by its result."""

CLIENTS_PER_CORE_MAX = 2
"""Clients per core above which fewer clients are suggested: they wait for each other and for a core."""


class Remedy(StrEnum):
    """A change that makes a verdict likely."""

    DUET = "duet"
    MINUTES = "minutes"


class LessNoise(StrEnum):
    """A change that can reduce the noise of the blocks."""

    DUET = "duet"
    SLICES = "slices"
    FEWER_CLIENTS = "fewer clients"
    QUIETER_MACHINE = "quieter machine"


@dataclass(frozen=True)
class VerdictForecast:
    """Forecast for an undecided comparison.

    ``probability`` is that of a verdict within the budget. ``remedy`` is None if a verdict is likely, or if
    no acceptable budget is enough. ``minutes`` is a budget that makes one likely.
    """

    probability: float
    remedy: Remedy | None = None
    minutes: int | None = None


@dataclass(frozen=True)
class RemainingBudget:
    """Number of blocks that still fit, duration of a block of every case, time spent and whole budget in s.

    ``less_noise``: what can reduce the noise (``less_noise_of``).
    """

    blocks: int
    block_s: float
    spent_s: float
    budget_s: float
    less_noise: tuple[LessNoise, ...]


def forecast_verdict(
    summary: LogRatioSummary, decision: Decision, study: Study, remaining: RemainingBudget
) -> VerdictForecast | None:
    """Return the forecast.

    None if the comparison is decided or has too few blocks for an SD, and if its intervals decide it and only
    the noise floor does not.
    """
    further = remaining.blocks
    if decision.blocks_needed is None or summary.sd is None or summary.n < VERDICT_BLOCKS_MIN:
        return None
    if verdict_probability(summary, study.margin, 0):
        return None
    probability = verdict_probability(summary, study.margin, further)
    if probability >= POWER:
        return VerdictForecast(probability)
    needed = summary.n + decision.blocks_needed
    detectable = detectable_log_ratio(summary.sd, needed, summary.confidence, summary.method)
    least = VERDICT_BLOCKS_MIN if detectable <= abs(summary.mean) else SAME_BLOCKS_MIN
    if LessNoise.DUET in remaining.less_noise and max(least, needed * DUET_TIME_SHARE) <= summary.n + further:
        return VerdictForecast(probability, Remedy.DUET)
    needed_s = remaining.spent_s + decision.blocks_needed * remaining.block_s
    if needed_s <= BUDGET_FACTOR_MAX * remaining.budget_s:
        return VerdictForecast(probability, Remedy.MINUTES, math.ceil(needed_s / 60))
    return VerdictForecast(probability)


def less_noise_of(study: Study, clients: int, cores: int) -> tuple[LessNoise, ...]:
    """Return what can reduce the noise of a study, by its conditions. ``clients``: largest of an arm."""
    alternates = study.schedule is Schedule.SLICES
    can_be_duet = alternates and not study.searches_capacity and is_duet_sound(study.arms) and cores > 1
    must_take_turns = study.searches_capacity or study.transactions or study.checkpoints
    takes_turns = study.schedule in {Schedule.BLOCKS, Schedule.SEQUENTIAL} and not must_take_turns
    wanted = {
        LessNoise.DUET: can_be_duet,
        LessNoise.SLICES: takes_turns,
        LessNoise.FEWER_CLIENTS: clients > CLIENTS_PER_CORE_MAX * cores and not study.searches_clients,
        LessNoise.QUIETER_MACHINE: True,
    }
    return tuple(one for one, is_possible in wanted.items() if is_possible)


def verdict_probability(summary: LogRatioSummary, margin: float, further: int) -> float:
    """Return the probability of a verdict after ``further`` blocks. The summary must have an SD."""
    assert summary.sd is not None
    n, total = summary.n, summary.n + further
    rng = np.random.default_rng(SEED)
    sigma = summary.sd * np.sqrt((n - 1) / rng.chisquare(n - 1, DRAWS))
    mu = rng.normal(summary.mean, sigma / math.sqrt(n))
    mean, squares = np.full(DRAWS, summary.mean), np.full(DRAWS, (n - 1) * summary.sd**2)
    if further:
        later = rng.normal(mu, sigma / math.sqrt(further))
        squares += sigma**2 * rng.chisquare(further - 1, DRAWS) if further > 1 else 0.0
        squares += n * further / total * (later - mean) ** 2
        mean = (n * mean + further * later) / total
    error = np.sqrt(squares / (total - 1) / total)
    two_sided, one_sided = (
        critical_value(total, level, summary.method)
        for level in (summary.confidence, 2 * summary.confidence - 1)
    )
    is_same = np.abs(mean) + one_sided * error <= math.log1p(margin)
    differs = (np.abs(mean) > two_sided * error) & ~is_same
    return float(np.mean(differs | is_same if may_be_same(total, summary.method) else differs))


# ----------------------------------------------------------------------
# Comparison of an arm with the baseline: counted blocks, effects on all metrics, verdict on the first.
# ----------------------------------------------------------------------

BlockTrials = Mapping[int, Mapping[int, Trial]]
"""block → arm → its ok trial."""

Values = Mapping[int, tuple[float, float]]
"""block → (value of the baseline, value of the arm)."""


@dataclass(frozen=True)
class Effect:
    """Effect of an arm on one metric. ``log_ratios`` is block → ln(x_arm / x_baseline).

    Only the primary metric has ``bootstrap``, an interval of the mean log ratio. It checks the verdict by
    Student's interval, because both are intervals for a single analysis, and is never shown.
    """

    key: Hidden[str]
    name: str
    log_ratios: Annotated[Mapping[int, float], about("Natural logarithm of the ratio by block (from 0).")]
    summary: LogRatioSummary
    percent: Annotated[Estimate, about("In percent of the baseline.")]
    bootstrap: Hidden[tuple[float, float] | None]

    @in_json
    def no_interval_below(self) -> int | None:
        """Number of blocks below which the percentile has no interval. Null from there on, and for others."""
        has_too_few = is_tail(self.key) and self.summary.n < BLOCKS_MIN
        return BLOCKS_MIN if has_too_few else None

    def is_disputed(self, margin: float) -> bool:
        """Return whether the verdicts by Student's and the bootstrap interval differ."""
        if self.bootstrap is None:
            return False
        student = intervals.student(list(self.log_ratios.values()), self.summary.confidence)
        low, high = self.bootstrap
        reach = critical_value(student.n, student.confidence, Method.STUDENT) / math.sqrt(student.n)
        resampled = intervals.with_error(
            (low + high) / 2, (high - low) / 2 / reach, student.n, student.confidence, Method.STUDENT
        )
        return judge(student, margin) is not judge(resampled, margin)


@dataclass(frozen=True)
class MissedRate:
    """An arm that did not keep the rate that its workload requires. ``below``: number of such blocks."""

    arm: ArmName
    kind: str
    rate: float
    target: float
    unit: str
    below: int
    blocks: int


@dataclass(frozen=True)
class Comparison:
    """``blocks`` count. ``dropped`` do not: a trial of either arm was excluded, failed or interrupted.

    In ``stalled`` blocks an arm completed nothing, so the ratio is undefined. In ``censored`` blocks only a
    lower bound of its value is known. In ``failed`` blocks the server of an arm failed, or a check of its
    work: ``failures`` has the share of such blocks by name of the arm. Omitting an arm's worst blocks would
    bias the effect in its favor, so a comparison with blocks ``lost_by_an_arm`` has no decision, and a metric
    with censored values has no effect. ``is_trending``: the effect changes within the windows. ``bias`` is
    set if the arms have not reached their final rates and the verdict may be another at those. With either,
    the effect depends on the length of the warm-up: no decision. ``extends_warm_up``: so surely that a longer
    one is worth the blocks so far. ``may_trend``: it may change, at a level that is too weak for this, but
    another block will tell. ``unconfirmed`` names the arms that missed the latency limit at their capacity:
    no decision, either. Nor with ``missed_rates``.
    """

    baseline: ArmName
    arm: ArmName
    blocks: Sequence[int]
    dropped: Sequence[int]
    stalled: Sequence[int]
    censored: Sequence[int]
    failed: Sequence[int]
    failures: Hidden[Mapping[str, Proportion]]
    effects: Annotated[Mapping[str, Effect], about("By metric, or ``latency.KIND.QUANTILE``.")]
    primary: Hidden[Effect | None]
    decision: Decision | None
    margin: float
    is_trending: bool = False
    may_trend: bool = False
    extends_warm_up: Hidden[bool] = False
    bias: Hidden[WarmUpBias | None] = None
    unconfirmed: Sequence[str] = ()
    missed_rates: Hidden[Sequence[MissedRate]] = ()

    @property
    def lost_by_an_arm(self) -> list[int]:
        """Blocks without a ratio because of one of the two arms."""
        return sorted({*self.stalled, *self.censored, *self.failed})

    @property
    def failures_text(self) -> str:
        """Return ``18 failed in 1 of 8 blocks (failure rate 0.32% to 53%, 95% CI)``, or an empty text."""
        return " and ".join(
            f"{arm} failed in {of.count} of {counted(of.n, 'block')} "
            f"(failure rate {share_text(of.low)} to {share_text(of.high)}, {ci_text(CONFIDENCE)})"
            for arm, of in self.failures.items()
        )

    @property
    def is_held_back(self) -> bool:
        """True if the estimate is biased, whatever its interval is."""
        return self.is_unsteady or any((self.lost_by_an_arm, self.unconfirmed, self.missed_rates))

    @property
    def is_unsteady(self) -> bool:
        """True if the effect depends on the length of the warm-up."""
        return self.is_trending or (self.bias is not None and len(self.blocks) >= VERDICT_BLOCKS_MIN)

    @in_json
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
    arms: Sequence[Arm], trials: Sequence[Trial], plan: Study, metrics: Sequence[Metric], cases: int = 1
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
        len(arms) - 1, values, metrics, plan.confidence, method_of(plan, trials), primary=metrics[0].key
    )
    trends = effect_trends(plan, arms, trials)
    alarms = ALARM_OF_EFFECTS, SUSPICION, ALARM_TO_EXTEND
    is_trending, may_trend, extends_warm_up = (trending(trends, plan.margin, cases, one) for one in alarms)
    biases = warm_up_biases(plan, arms, trials)
    found = []
    for i, arm in enumerate(arms[1:]):
        main, lost = effects[i].get(metrics[0].key), censored[metrics[0].key][i]
        both_ok = {block for block, of in by_block.items() if {0, arm.arm} <= of.keys()}
        comparison = Comparison(
            baseline=arms[0],
            arm=arm,
            blocks=sorted(main.log_ratios) if main else [],
            dropped=_dropped(trials, arm.arm),
            # With a censored block no ratio is computed, so whether another block has one is not known.
            stalled=[] if lost else sorted(both_ok - (main.log_ratios.keys() if main else set())),
            censored=lost,
            failed=sorted({t.block for t in trials if t.arm in {0, arm.arm} and t.failed_by_itself}),
            failures=_failures((arms[0], arm), trials),
            effects=effects[i],
            primary=main,
            decision=None,
            margin=plan.margin,
            is_trending=is_trending[1 + i],
            may_trend=may_trend[1 + i],
            extends_warm_up=extends_warm_up[1 + i],
            missed_rates=[of for one in (arms[0], arm) if (of := _missed_rate(one, trials, plan))],
        )
        found.append(_decided(comparison, biases[1 + i], metrics[0].better, plan))
    return found


def with_tails(
    comparisons: Sequence[Comparison],
    trials: Sequence[Trial],
    latencies: Mapping[int, Mapping[str, Latencies]],
    plan: Study,
) -> list[Comparison]:
    """Return the comparisons, with the changes of percentiles above the median over all blocks.

    ``latencies``: trial ID → kind → latencies. A percentile above the median depends on events that only some
    blocks have. Its value is the ratio of the percentiles over all blocks that have a ratio.
    """
    by_block, method = ok_by_block(trials), method_of(plan, trials)
    tails: list[dict[str, QuantileChange]] = []
    for comparison in comparisons:
        arms = comparison.baseline.arm, comparison.arm.arm
        of_arm = {}
        for key in filter(is_tail, comparison.effects):
            kind, percentile = split_latency(key)
            blocks = [by_block[block] for block in comparison.effects[key].log_ratios]
            share = PERCENTILES[percentile]
            a, b = (block_counts([latencies[of[arm].trial][kind] for of in blocks], share) for arm in arms)
            of_arm[key] = quantile_change(a, b, share)
        tails.append(of_arm)
    found = [dict(comparison.effects) for comparison in comparisons]
    for key in dict.fromkeys(key for of_arm in tails for key in of_arm):
        estimators = [partial(_tail_summary, of_arm.get(key), method) for of_arm in tails]
        for effects, summary in zip(found, intervals.simultaneous(estimators, plan.confidence), strict=True):
            if summary is not None:
                effects[key] = replace(
                    effects[key], summary=summary, percent=summary.percent(effects[key].percent.better)
                )
    return [replace(of, effects=effects) for of, effects in zip(comparisons, found, strict=True)]


def _tail_summary(change: QuantileChange | None, method: Method, confidence: float) -> LogRatioSummary | None:
    return None if change is None else change.summary(confidence, method)


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


def _decided(comparison: Comparison, bias: WarmUpBias | None, better: Better, plan: Study) -> Comparison:
    """Return the comparison with its decision, unless it is held back."""
    main = comparison.primary
    if main is None or comparison.stalled or comparison.failed or comparison.missed_rates:
        return comparison
    decision = decide(main.summary, better, plan.margin)
    if bias is not None:
        final = _at_final_rates(decision, main.summary, bias, better, plan)
        if final is not None:
            decision = final
        else:
            comparison = replace(comparison, may_trend=True)
            if bias.exceeds(plan.margin):
                comparison = replace(comparison, extends_warm_up=True)
            if bias.p_value <= ALARM_OF_RISES:
                comparison = replace(comparison, bias=bias)
    return replace(comparison, decision=None if comparison.is_unsteady else decision)


def _at_final_rates(
    decision: Decision, summary: LogRatioSummary, bias: WarmUpBias, better: Better, plan: Study
) -> Decision | None:
    """Return the decision, if the effect without its bias by the warm-up has the same verdict; else None.

    A difference within the margin is dropped unless the effect without its bias has it, too. A large bias
    permits no *same*. A difference with a large or unknown one must exceed what the bias can explain. Else
    the bias is subtracted with its error; for *same*, if that is small, what exceeds it is enough.
    """
    n, verdict, is_large = summary.n, decision.verdict, bias.exceeds(plan.margin)
    if summary.sd is None or summary.low is None or summary.high is None or verdict is Verdict.UNDECIDED:
        return None if is_large else decision
    if is_large or (verdict is not Verdict.SAME and not bias.is_known):
        nearest = min(abs(summary.low), abs(summary.high))
        is_beyond = nearest > bias.limit(math.copysign(1.0, summary.mean))
        return decision if is_beyond and verdict is not Verdict.SAME else None
    shifts = [(bias.log_ratio, bias.error)]
    if verdict is Verdict.SAME and bias.is_precise(plan.margin):
        beyond = max(0.0, abs(bias.log_ratio) - bias.error)
        shifts.append((math.copysign(beyond, bias.log_ratio), 0.0))
    found = (
        intervals.with_error(
            summary.mean - shift,
            math.hypot(summary.sd, error * math.sqrt(n)),
            n,
            summary.confidence,
            summary.method,
        )
        for shift, error in shifts
    )
    decisions = [decide(one, better, plan.margin) for one in found]
    differences = {of.difference for of in decisions if of.verdict is verdict}
    if not differences:
        return None
    return decision if decision.difference in differences else decision.without_difference()


def _censored(by_block: BlockTrials, arm: int, metric: Metric) -> list[int]:
    """Return the blocks in which only a bound of the value of the arm or the baseline is known."""
    return [
        block
        for block, of_arm in sorted(by_block.items())
        if {0, arm} <= of_arm.keys() and any(metric.bound(of_arm[one]) is not None for one in (0, arm))
    ]


def _failures(arms: Iterable[Arm], trials: Sequence[Trial]) -> dict[str, Proportion]:
    """Return the share of failed blocks by name of the arms that failed. Interrupted trials do not count."""
    found = {}
    for arm in arms:
        own = [trial for trial in trials if trial.arm == arm.arm]
        failed = {trial.block for trial in own if trial.failed_by_itself}
        done = {trial.block for trial in own if trial.status is TrialStatus.OK}
        if failed:
            found[arm.name] = proportion(len(failed), len(failed | done))
    return found


def _missed_rate(arm: Arm, trials: Sequence[Trial], plan: Study) -> MissedRate | None:
    """Return the mean rate of an arm, if it is too low."""
    required = plan.driving(arm.arm).workload.required_rate
    ok = [trial for trial in trials if trial.arm == arm.arm and trial.status is TrialStatus.OK]
    if required is None or not ok:
        return None
    pace, target = required.pace, required.target
    rates = [paced(pace, trial.measured) or 0.0 for trial in ok]
    rate, least = math.fsum(rates) / len(rates), required.share * target
    below = sum(one < least for one in rates)
    missed = MissedRate(arm, pace.kind or "", rate, target, pace.unit, below, len(rates))
    return missed if rate < least else None


def _dropped(trials: Sequence[Trial], arm: int) -> list[int]:
    counting = {TrialStatus.OK, TrialStatus.SUPERSEDED, TrialStatus.RUNNING}
    return sorted({t.block for t in trials if t.arm in {0, arm} and t.status not in counting})


def _effects(
    metric: Metric, values: Sequence[Values], confidence: float, method: Method, *, checked: bool
) -> list[Effect | None]:
    ratios = [{block: float(np.log(b / a)) for block, (a, b) in of_arm.items()} for of_arm in values]
    summaries = intervals.simultaneous([partial(_summary, d, method) for d in ratios], confidence)
    return [
        None if summary is None else _effect(metric, d, summary, checked=checked)
        for d, summary in zip(ratios, summaries, strict=True)
    ]


def _summary(ratios: Mapping[int, float], method: Method, confidence: float) -> LogRatioSummary | None:
    return intervals.summarize(list(ratios.values()), confidence, method) if ratios else None


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
        return intervals.paired(a, b)
    return a.measured, b.measured
