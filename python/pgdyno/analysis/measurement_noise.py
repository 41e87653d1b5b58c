"""Measurement noise from the hidden A/A blocks, and interim analyses.

- Measurement noise from the hidden A/A blocks, and the noise floor of a case and of an average.
- Interim analysis of the finished blocks of a case, after which a study may stop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pgdyno.analysis.comparison import (
    POWER,
    Comparison,
    Verdict,
    compare_arms,
    detectable_log_ratio,
    judge,
    without_unconfirmed,
)
from pgdyno.analysis.finding_fields import about, in_json
from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.intervals import (
    LogRatioSummary,
    Method,
    binomial_interval,
    chi2_quantile,
    f_below,
    method_of,
    percent_of,
    summarize,
)
from pgdyno.analysis.telemetry import metrics, percentiles
from pgdyno.caveats import Caveat
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyRecord
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import bracketed, share_text, signed, significant

# ----------------------------------------------------------------------
# Measurement noise from the hidden A/A blocks, and the noise floor of a case and of an average.
#
# Every A/A block gives one number like any other block, d = ln(duplicate / arm), and its true value is 0. So
# the standard deviation is taken about 0 and not about the mean: s² = Σd² / m, and m·s²/σ² has the
# chi-squared distribution with m degrees of freedom. The mean of n other such numbers, over s / √n, has
# Student's t distribution with m degrees of freedom ("The probable error of a mean", Biometrika 1908),
# because it does not depend on s. The noise floor of n blocks is therefore t · s / √n: identical arms show a
# mean effect beyond it with probability 1 − confidence.
#
# The average is the mean over k cases of the mean of their n blocks (``combine``). For identical arms each
# has mean 0 and the variance s_c² of the case's A/A blocks, so the average has the variance Σ s_c² / n / k².
# This assumes that the blocks of a pass are independent. If they share a part of their noise, the true floor
# is higher. The interval is based on passes and accounts for this. An effect must be beyond both, so the
# floor can remove verdicts and never adds one.
#
# Cases with the same load and layout share their A/A blocks. For one such pool of m blocks, the average over
# its error has exactly Student's distribution with m degrees of freedom. For several pools Satterthwaite's
# number applies ("An approximate distribution of estimates of variance components", Biometrics 1946).
# ----------------------------------------------------------------------

FLOOR_BLOCKS_MIN = 5
"""Minimum number of A/A blocks, of this study and earlier ones. The SD of fewer is too uncertain for a noise
floor."""

NOISE_CHANGE_LEVEL = 0.05
"""Significance level at which earlier A/A blocks have a different noise and are excluded."""

OF_THE_LOAD = {
    "workload",
    "pacing",
    "warmup_s",
    "clients",
    "threads",
    "drivings",
    "rate",
    "capacity",
    "capacity_by",
    "transactions",
    "warmup_min_s",
    "warmup_workload",
    "cache_state",
    "probes",
    "checkpoints",
}
"""Fields of the requested study that influence the variation of blocks."""

NO_BLOCK_YET = "none completed yet"


@dataclass(frozen=True)
class Alarms:
    """Number of A/A series judged different, with the binomial interval of its rate."""

    false_alarms: int
    series: int
    confidence: float

    @in_json
    def interval(self) -> tuple[float, float]:
        """The interval of the rate by Clopper and Pearson."""
        return binomial_interval(self.false_alarms, self.series, self.confidence)


@dataclass(frozen=True)
class Noise:
    """Noise of the A/A blocks of a case.

    ``log_ratios`` are of this study's A/A blocks. ``before`` are those of earlier studies on this machine
    with the same load and layout (docs/explanation/noise.md). ``why_no_aa`` is the reason if A/A blocks are
    missing.
    """

    log_ratios: Sequence[float]
    before: Annotated[Sequence[float], about("Log ratios of A/A blocks of earlier studies.")]
    confidence: float
    margin: float
    why_no_aa: Annotated[str, about("Reason for missing A/A blocks.")] = ""
    method: Annotated[Method, about("Of the intervals of the arms.")] = Method.STUDENT
    left_out: Annotated[int, about("A/A blocks of earlier studies with a different noise.")] = 0

    @in_json
    def n(self) -> int:
        """Number of A/A blocks of the SD."""
        return len(self.log_ratios) + len(self.before)

    @property
    def sd(self) -> float | None:
        """SD of one block's log ratio about its true value 0; None without a block."""
        every = [*self.log_ratios, *self.before]
        return math.sqrt(sum(d * d for d in every) / len(every)) if every else None

    @in_json
    def sd_percent(self) -> float | None:
        """SD of one block in percent; null without an A/A block."""
        return None if self.sd is None else percent_of(self.sd)

    @in_json
    def sd_interval_percent(self) -> tuple[float, float] | None:
        """Interval of the SD in percent; null with too few A/A blocks."""
        interval = self.sd_interval
        return None if interval is None else (percent_of(interval[0]), percent_of(interval[1]))

    @property
    def sd_interval(self) -> tuple[float, float] | None:
        """Chi-squared interval of the SD; None with too few A/A blocks."""
        if self.sd is None or self.n < FLOOR_BLOCKS_MIN:
            return None
        tail, square = (1 - self.confidence) / 2, self.n * self.sd**2
        low, high = (square / chi2_quantile(p, self.n) for p in (1 - tail, tail))
        return math.sqrt(low), math.sqrt(high)

    @property
    def summary(self) -> LogRatioSummary | None:
        """Mean and interval of this study's A/A blocks, computed as for two arms."""
        return summarize(list(self.log_ratios), self.confidence, self.method) if self.log_ratios else None

    @in_json
    def verdict(self) -> Verdict:
        """Verdict on this study's A/A blocks by the rule for arms: faster or slower is a false alarm."""
        return self._judged(self.summary) if self.summary else Verdict.UNDECIDED

    def _judged(self, summary: LogRatioSummary) -> Verdict:
        return judge(summary, self.margin)

    @in_json
    def is_false_alarm(self) -> bool:
        """True if an arm was judged different from itself."""
        return self.verdict in {Verdict.FASTER, Verdict.SLOWER}

    @in_json
    def alarms(self) -> Alarms | None:
        """Alarms in consecutive series of VERDICT_BLOCKS_MIN A/A blocks, judged by the rule for arms.

        None without a complete series.
        """
        every = [*self.before, *self.log_ratios]
        series = [
            every[at : at + VERDICT_BLOCKS_MIN]
            for at in range(0, len(every) - VERDICT_BLOCKS_MIN + 1, VERDICT_BLOCKS_MIN)
        ]
        if not series:
            return None
        verdicts = [self._judged(summarize(one, self.confidence, self.method)) for one in series]
        false_alarms = sum(verdict in {Verdict.FASTER, Verdict.SLOWER} for verdict in verdicts)
        return Alarms(false_alarms, len(series), self.confidence)

    def of_today(self, comparisons: Sequence[Comparison]) -> Noise:
        """Return the noise without the earlier A/A blocks if they had a different noise than this study.

        Two-sided F test, at 5%, of their variance against that of this study's blocks: its A/A blocks about
        0, and the blocks of its first comparison about their mean.
        """
        squares, free = sum(d * d for d in self.log_ratios), len(self.log_ratios)
        effect = comparisons[0].primary if comparisons else None
        if effect is not None and effect.summary.sd is not None:
            squares += (effect.summary.n - 1) * effect.summary.sd**2
            free += effect.summary.n - 1
        if not self.before or not free or not squares:
            return self
        ratio = sum(d * d for d in self.before) / len(self.before) / (squares / free)
        below = f_below(ratio, len(self.before), free)
        if 2 * min(below, 1 - below) >= NOISE_CHANGE_LEVEL:
            return self
        return replace(self, before=(), left_out=len(self.before))

    def floor(self, blocks: int, confidence: float | None = None) -> float | None:
        """Return the noise floor of a study with a fixed number of blocks, as a log ratio.

        Identical arms exceed it with probability 1 − confidence. None with too few A/A blocks.
        """
        if self.sd is None or self.n < FLOOR_BLOCKS_MIN or blocks < 1:
            return None
        level = self.confidence if confidence is None else confidence
        return intervals.t_quantile((1 + level) / 2, self.n) * self.sd / math.sqrt(blocks)

    def detectable(self, blocks: int) -> float | None:
        """Return the log ratio that a number of blocks detects with probability POWER.

        It must exceed both what the arms' interval detects and the noise floor. None
        if so few blocks have no interval.
        """
        floor = self.floor(blocks)
        if floor is None or self.sd is None:
            return None
        reach = detectable_log_ratio(self.sd, blocks, self.confidence, self.method)
        if math.isinf(reach):
            return None
        beyond = intervals.t_quantile(POWER, blocks - 1) * self.sd / math.sqrt(blocks)
        return max(reach, floor + beyond)

    def is_over(self, comparison: Comparison) -> bool:
        """Return whether a difference exceeds the noise floor; true without a difference."""
        effect, decision = comparison.primary, comparison.decision
        if effect is None or decision is None or decision.difference is None:
            return True
        floor = self.floor(effect.summary.n, effect.summary.confidence)
        return floor is None or abs(effect.summary.mean) >= floor

    def blocks_needed(self, comparison: Comparison) -> int:
        """Return the number of further blocks until the floor is as low as the estimated effect."""
        assert comparison.primary is not None
        summary = comparison.primary.summary
        of_one = self.floor(1, summary.confidence)
        assert of_one is not None
        return max(1, math.ceil((of_one / abs(summary.mean)) ** 2) - summary.n)


def with_noise(comparison: Comparison, noise: Noise) -> Comparison:
    """Return the comparison without a difference that is below the noise floor."""
    if noise.is_over(comparison) or comparison.decision is None:
        return comparison
    return replace(
        comparison, decision=comparison.decision.without_difference(noise.blocks_needed(comparison))
    )


def noise_caveats(comparisons: Sequence[Comparison], noise: Noise) -> Iterator[Caveat]:
    """Yield caveats for comparisons as judged before ``with_noise``."""
    for comparison in comparisons:
        effect = comparison.primary
        if effect and comparison.verdict is not Verdict.SAME and not noise.is_over(comparison):
            floor = noise.floor(effect.summary.n, effect.summary.confidence)
            assert floor is not None
            names = {"arm": comparison.arm.name, "baseline": comparison.baseline.name}
            shown = {"effect": signed_percent(effect.summary.mean), "floor": floor_text(floor)}
            yield Caveat.of("under-noise-floor", **names, **shown, aa_blocks=noise.n)
    summary = noise.summary
    if noise.is_false_alarm and summary is not None and summary.low is not None and summary.high is not None:
        interval = bracketed(signed_percent(summary.low), signed_percent(summary.high))
        alarm = share_text(1 - noise.confidence)
        yield Caveat.of(
            "aa-differs",
            effect=signed_percent(summary.mean),
            interval=interval,
            aa_blocks=summary.n,
            alarm=alarm,
        )


def signed_percent(log_ratio: float) -> str:
    """Return ``+1.23%``."""
    return signed(percent_of(log_ratio), 2, "%")


def floor_text(log_ratio: float) -> str:
    """Return ``±1.2%``."""
    return f"±{significant(percent_of(log_ratio), 2)}%"


def read_noise(evidence: Evidence) -> dict[int, Noise]:
    """Return the noise of every case.

    Cases with the same load and layout share their A/A blocks, also if their servers or settings differ: the
    variation of blocks depends on the load, too.
    """
    studies = {case: evidence.study(case) for case in evidence.cases()}
    found: dict[object, list[float]] = {}
    for number, case in evidence.aa_cases().items():
        if evidence.blocks(number):
            found.setdefault(_layout(studies[case].plan), []).extend(aa_log_ratios(evidence, number))
    return {case: _noise(study, found.get(_layout(study.plan), [])) for case, study in studies.items()}


def _noise(study: StudyRecord, log_ratios: Sequence[float]) -> Noise:
    plan = study.plan
    why_no_aa = study.why_no_aa or ("" if log_ratios else NO_BLOCK_YET)
    method = Method.ANYTIME if plan.needs_anytime_intervals else Method.STUDENT
    return Noise(log_ratios, study.aa_before, plan.confidence, plan.margin, why_no_aa, method)


def _layout(plan: Study) -> object:
    """Return a key that is equal for cases with the same noise, without properties of all cases."""
    length = (plan.schedule, plan.turn_s, plan.slices_per_trial(), plan.window_s)
    return (*length, plan.model_dump_json(include=OF_THE_LOAD))


def aa_log_ratios(evidence: Evidence, case: int) -> list[float]:
    """Return the log ratios of hidden A/A blocks, in the metric of the verdicts.

    Blocks that do not count are omitted, as in any comparison.
    """
    plan, trials = evidence.study(case).plan, evidence.trials(case)
    latencies = percentiles.latencies_of_all_kinds(evidence, plan, trials)
    primary = metrics.of_plan(plan, latencies)[:1]
    (comparison,) = compare_arms(evidence.arms(case), trials, plan, primary)
    return list(comparison.primary.log_ratios.values()) if comparison.primary else []


def floor_of_average(noises: Sequence[Noise], blocks: int, confidence: float) -> float | None:
    """Return the noise floor of an average over cases as a log ratio.

    ``noises`` are of each case in the average, and ``blocks`` is the number of its passes. None if the noise
    of a case is unknown, or without a case.
    """
    variances: dict[object, float] = {}
    free: dict[object, int] = {}
    for noise in noises:
        if noise.sd is None or noise.n < FLOOR_BLOCKS_MIN:
            return None
        pool = (tuple(noise.log_ratios), tuple(noise.before))
        variances[pool] = variances.get(pool, 0.0) + noise.sd**2 / blocks / len(noises) ** 2
        free[pool] = noise.n
    whole = sum(variances.values())
    if not whole:
        return 0.0 if noises else None
    freedom = whole**2 / sum(variances[pool] ** 2 / free[pool] for pool in variances)
    return intervals.t_quantile((1 + confidence) / 2, freedom) * math.sqrt(whole)


# ----------------------------------------------------------------------
# Interim analysis of the finished blocks of a case, after which a study may stop.
#
# It computes the verdicts as the report does, and omits everything else in a report.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class InterimResult:
    """Result for one case, with one comparison for each arm after the first, and the method of intervals."""

    comparisons: Sequence[Comparison]
    method: Method

    @property
    def is_decided(self) -> bool:
        """True if every comparison is decided, and no effect may change within the windows."""
        return not self._undecided

    @property
    def is_lost(self) -> bool:
        """True if failures of servers prevent each verdict that is missing.

        As many blocks as a verdict needs also show how often an arm fails.
        """
        return bool(self._undecided) and all(
            any(of.n >= VERDICT_BLOCKS_MIN for of in comparison.failures.values())
            for comparison in self._undecided
        )

    @property
    def _undecided(self) -> list[Comparison]:
        return [of for of in self.comparisons if of.verdict is Verdict.UNDECIDED or of.may_trend]

    @property
    def extends_warm_up(self) -> bool:
        """True if an effect surely depends on the length of the warm-up."""
        return any(comparison.extends_warm_up for comparison in self.comparisons)


def interim_result(evidence: Evidence, case: int) -> InterimResult:
    """Read the data for the verdicts from one snapshot, and return the result."""
    with evidence.snapshot():
        plan, arms, trials = evidence.study(case).plan, evidence.arms(case), evidence.trials(case)
        chosen = metrics.of_plan(plan, percentiles.latencies_of_all_kinds(evidence, plan, trials))
        noise = read_noise(evidence)[case]
        missed = percentiles.read_missed_limits(evidence, plan, arms, trials)
    comparisons = compare_arms(arms, trials, plan, chosen[:1], len(evidence.cases()))
    comparisons = without_unconfirmed(comparisons, missed)
    noise = noise.of_today(comparisons)
    return InterimResult([with_noise(found, noise) for found in comparisons], method_of(plan, trials))
