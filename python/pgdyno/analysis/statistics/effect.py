"""Effect of an arm against the baseline: one log ratio per block, and an interval of their mean.

A block is the unit of replication (ADR 4). In block b the arms give x_A and x_B; d_b = ln(x_B / x_A). The
estimate is exp(mean d). Its interval is Student's t on d, mapped by exp. A study that stops on its verdict
uses an interval that is valid at any stopping time (``sequential``, ADR 9). A BCa bootstrap (Efron, "Better
bootstrap confidence intervals", JASA 1987) checks Student's interval. On the log scale, swapping A and B
mirrors the result, and a machine that is twice as fast gives the same one.

In the schedules slices and duet, x is the number of transactions counted in all slices of the block's pairs,
divided by their counted time. The effect is the ratio of the two arms' mean rates over the slice pairs. It is
preferred to the mean of the pairs' log ratios for three reasons: it is the ratio of work done, it agrees with
the rates in the tables, and it stays finite if a stall leaves a slice empty. A slice without its pair (an
interrupted round) is omitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, TypeVar

import numpy as np

from pgdyno.analysis.statistics import distributions, sequential
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import Slice, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN


class Method(StrEnum):
    """Type of interval: for one analysis after a fixed number of blocks, or valid at any stopping time."""

    STUDENT = "student"
    ANYTIME = "anytime"


def method_of(plan: Study, trials: Sequence[Trial]) -> Method:
    """Return the method of all intervals of effects: one for every metric, table, gate and format.

    The block at which a study stops depends on its primary metric, and the other metrics depend on the same
    blocks. A study that ended before its first interim analysis has a single one. The blocks of an arm do not
    matter: one that lost blocks was analyzed as often as the others.
    """
    blocks = {trial.block for trial in trials if trial.status is not TrialStatus.RUNNING}
    several = plan.needs_anytime_intervals and len(blocks) >= VERDICT_BLOCKS_MIN
    return Method.ANYTIME if several else Method.STUDENT


@dataclass(frozen=True)
class LogRatioSummary:
    """Mean and interval of the blocks' log ratios. ``sd`` and Student's interval need at least two blocks.

    Ratios that are too dispersed for an interval have no ``sd`` either. The anytime-valid interval needs
    ``VERDICT_BLOCKS_MIN`` blocks. Logs are natural. ``p_value`` is two-sided, for mean d = 0. It is below
    1 − ``confidence`` exactly if the interval excludes 0.
    """

    mean: float
    n: int
    sd: float | None
    low: float | None
    high: float | None
    confidence: float
    p_value: float | None
    method: Method = Method.STUDENT

    def p_value_at(self, log_ratio: float) -> float | None:
        """Return the two-sided p-value for mean d = ``log_ratio``."""
        return with_error(self.mean - log_ratio, self.sd, self.n, self.confidence, self.method).p_value

    def mirrored(self) -> LogRatioSummary:
        """Return the result of the baseline against the arm."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return replace(self, mean=-self.mean, low=low, high=high)

    def equivalence(self, confidence: float) -> LogRatioSummary:
        """Return the same with the interval of two one-sided tests, each at the level α = 1 − ``confidence``.

        It lies within the margin exactly if both tests reject a larger effect. Its confidence is 1 − 2α.
        """
        reach = math.inf if self.sd is None else one_sided_critical_value(self.n, confidence, self.method)
        low = high = None
        if self.sd is not None and not math.isinf(reach):
            reach *= self.sd / math.sqrt(self.n)
            low, high = self.mean - reach, self.mean + reach
        return replace(self, low=low, high=high, confidence=2 * confidence - 1)

    def percent(self, better: Better) -> Estimate:
        """Return (B − A) / A in percent."""
        return Estimate(
            value=percent_of(self.mean),
            unit="%",
            n=self.n,
            better=better,
            low=None if self.low is None else percent_of(self.low),
            high=None if self.high is None else percent_of(self.high),
            confidence=self.confidence,
        )


def percent_of(log_ratio: float) -> float:
    """Return 100 · (e^d − 1)."""
    return float(100 * np.expm1(log_ratio))


def student(d: Sequence[float], confidence: float) -> LogRatioSummary:
    """Return the mean of ``d`` with Student's interval. ``d`` must not be empty."""
    return with_error(float(np.mean(d)), _sd(d), len(d), confidence, Method.STUDENT)


def anytime(d: Sequence[float], confidence: float) -> LogRatioSummary:
    """Return the mean of ``d`` with the anytime-valid interval. ``d`` must not be empty."""
    return with_error(float(np.mean(d)), _sd(d), len(d), confidence, Method.ANYTIME)


def summarize(d: Sequence[float], confidence: float, method: Method) -> LogRatioSummary:
    """Return the mean of ``d`` with the interval of a method. ``d`` must not be empty."""
    return student(d, confidence) if method is Method.STUDENT else anytime(d, confidence)


def with_error(mean: float, sd: float | None, n: int, confidence: float, method: Method) -> LogRatioSummary:
    """Return the interval and p-value of a mean of ``n`` blocks with the standard error ``sd`` / √n."""
    if sd is None:
        return LogRatioSummary(mean, n, None, None, None, confidence, None, method)
    error = sd / math.sqrt(n)
    # Blocks that are all equal (only synthetic ones are) leave no uncertainty.
    t = mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
    p_value, reach = _p_value(t, n, method), critical_value(n, confidence, method)
    if math.isinf(reach):
        return LogRatioSummary(mean, n, sd, None, None, confidence, p_value, method)
    low, high = mean - reach * error, mean + reach * error
    return LogRatioSummary(mean, n, sd, low, high, confidence, p_value, method)


def critical_value(n: int, confidence: float, method: Method) -> float:
    """Return half the width of an interval in standard errors; infinite if ``n`` blocks are too few."""
    if method is Method.ANYTIME:
        return sequential.sequential_critical_value(n, confidence)
    return distributions.t_quantile((1 + confidence) / 2, n - 1) if n > 1 else math.inf


def one_sided_critical_value(n: int, confidence: float, method: Method) -> float:
    """Return the standard errors at which a one-sided test rejects; infinite if ``n`` blocks are too few."""
    if method is Method.ANYTIME:
        return sequential.one_sided_critical_value(n, confidence)
    return distributions.t_quantile(confidence, n - 1) if n > 1 else math.inf


def _p_value(t: float, n: int, method: Method) -> float | None:
    if method is Method.ANYTIME:
        return sequential.sequential_p_value(t, n)
    return 2 * distributions.t_beyond(abs(t), n - 1)


def _sd(d: Sequence[float]) -> float | None:
    return float(np.std(d, ddof=1)) if len(d) > 1 else None


def holm_confidences(p_values: Sequence[float | None], confidence: float) -> list[float]:
    """Return the confidence of each comparison's interval, so that it agrees with Holm's test.

    Holm ("A simple sequentially rejective multiple test procedure", 1979) takes the p-values in ascending
    order and compares the j-th of m with α / (m − j + 1) until one fails; all after it fail too. The
    confidence of an interval is 1 minus the level at which its comparison was tested, so it excludes 0
    exactly if Holm rejects. The probability of one or more false verdicts (faster or slower) among all
    comparisons is at most α. A comparison without a p-value is tested last.
    """
    alpha, m = 1 - confidence, len(p_values)
    order = sorted(range(m), key=lambda i: 2.0 if p_values[i] is None else float(p_values[i] or 0.0))
    levels = [0.0] * m
    level = alpha / m if m else alpha
    failed = False
    for rank, i in enumerate(order):
        if not failed:
            level = alpha / (m - rank)
        levels[i] = level
        p_value = p_values[i]
        failed = failed or p_value is None or p_value > level
    return [1 - level for level in levels]


class Tested(Protocol):
    """An estimate with a test."""

    @property
    def p_value(self) -> float | None:
        """P-value of the two-sided test of no difference."""
        ...


Estimated = TypeVar("Estimated", bound=Tested | None)


def simultaneous(estimators: Sequence[Callable[[float], Estimated]], confidence: float) -> list[Estimated]:
    """Return the estimates of a family with intervals that hold simultaneously (Holm).

    Each estimator is a function of the confidence. An estimate that is None counts as a comparison.
    """
    alone = [estimator(confidence) for estimator in estimators]
    if len(alone) < 2:
        return alone
    p_values = [None if one is None else one.p_value for one in alone]
    levels = holm_confidences(p_values, confidence)
    return [estimator(level) for estimator, level in zip(estimators, levels, strict=True)]


def paired(baseline: Trial, arm: Trial) -> tuple[list[Slice], list[Slice]]:
    """Return both trials' measured slices that have a partner: k-th with k-th."""
    pairs = min(len(baseline.measured), len(arm.measured))
    return baseline.measured[:pairs], arm.measured[:pairs]


def own_level(values: Mapping[int, float], unit: str, better: Better, confidence: float) -> Estimate | None:
    """Return an arm's geometric mean over blocks with Student's interval on the logs; None without a block.

    If two arms have the same blocks, the ratio of their levels is the effect.
    """
    if not values:
        return None
    summary = student([float(np.log(value)) for value in values.values()], confidence)
    low, high = summary.low, summary.high
    return Estimate(
        value=float(np.exp(summary.mean)),
        unit=unit,
        n=summary.n,
        better=better,
        low=None if low is None else float(np.exp(low)),
        high=None if high is None else float(np.exp(high)),
        confidence=confidence,
    )


def level_of(values: Mapping[int, float], unit: str, better: Better, confidence: float) -> Estimate | None:
    """Return the level like ``own_level``, also for values of zero or less (checkpoints, deadlocks, growth).

    These have no logarithm, so the result is the arithmetic mean with Student's interval.
    """
    if not values or min(values.values()) > 0:
        return own_level(values, unit, better, confidence)
    summary = student(list(values.values()), confidence)
    return Estimate(summary.mean, unit, summary.n, better, summary.low, summary.high, confidence)
