"""Intervals and tests of blocks: distributions, exact and anytime-valid intervals, pooling.

- Quantiles and probabilities: Student's t, chi-squared, F, beta, binomial; a robust SD.
- Exact confidence interval of a proportion.
- BCa bootstrap interval of a mean (Efron, "Better bootstrap confidence intervals", JASA 1987).
- Anytime-valid interval for the mean of blocks: valid for an interim analysis after every block.
- Effect of an arm against the baseline: one log ratio per block, and an interval of their mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used

from pgdyno.analysis.finding_fields import Hidden, about
from pgdyno.results.records import Slice, Trial, TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import Better, Estimate

# ----------------------------------------------------------------------
# Quantiles and probabilities: Student's t, chi-squared, F, beta, binomial; a robust SD.
#
# The functions are those of ``scipy.special``. They equal ``scipy.stats`` to the last bit (``scipy.stats.t``
# for Student's t). ``scipy.stats`` takes about a second to load and a hundred times as long per number.
# ----------------------------------------------------------------------


def chi2_quantile(probability: float, freedom: float) -> float:
    """Return the value below which a chi-squared value is with this probability."""
    return float(scipy.special.chdtri(freedom, 1 - probability))


def f_below(value: float, above_freedom: float, below_freedom: float) -> float:
    """Return the probability of a smaller ratio of two mean squares."""
    return float(scipy.special.fdtr(above_freedom, below_freedom, value))


def f_beyond(value: float, above_freedom: float, below_freedom: float) -> float:
    """Return the probability of a larger ratio of two mean squares."""
    return float(scipy.special.fdtrc(above_freedom, below_freedom, value))


def beta_below(value: float, a: float, b: float) -> float:
    """Return the probability of a smaller value of a beta distribution, for 0 … 1."""
    return float(scipy.special.betainc(a, b, value))


def binomial_at_most(successes: int, n: int, share: float) -> float:
    """Return the probability of at most ``successes`` among n."""
    return float(scipy.special.bdtr(successes, n, share))


def binomial_interval(successes: int, n: int, confidence: float) -> tuple[float, float]:
    """Return the interval of the share of successes, n ≥ 1.

    Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 1934.
    """
    tail = (1 - confidence) / 2
    low = scipy.special.betaincinv(successes, n - successes + 1, tail) if successes else 0.0
    high = scipy.special.betaincinv(successes + 1, n - successes, 1 - tail) if successes < n else 1.0
    return float(low), float(high)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """Return the value below which a value of Student's t distribution is with this probability."""
    return float(scipy.special.stdtrit(freedom, probability))


def t_beyond(value: float, freedom: float) -> float:
    """Return the probability of a larger value of Student's t distribution."""
    return float(scipy.special.stdtr(freedom, -value))


def p_value_of_means(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return the p-value that the means of two samples of n ≥ 2 values each are both 0.

    F test with the degrees of freedom of Welch and Satterthwaite: the variances may differ. If the samples
    correlate, its level of 1% is 1.2% at a correlation of 0.5, and 4% at 1 (five values, simulated).
    """
    of_a, of_b = float(np.var(a, ddof=1)), float(np.var(b, ddof=1))
    mean_square = len(a) * float(a.mean() ** 2 + b.mean() ** 2)
    if of_a == of_b == 0:
        return 0.0 if mean_square else 1.0
    freedom = (len(a) - 1) * (of_a + of_b) ** 2 / (of_a**2 + of_b**2)
    return f_beyond(mean_square / (of_a + of_b), 2, freedom)


SD_OF_MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of a normal distribution."""


def robust_sd(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1.4826 · median |x − median x| over the last axis, in the unit of the values.

    The shape is that of the values without the last axis. NaN without values. Rousseeuw and Croux,
    "Alternatives to the median absolute deviation", JASA 1993.
    """
    middle = np.median(values, axis=-1, keepdims=True)
    return np.asarray(SD_OF_MAD * np.median(np.abs(values - middle), axis=-1))


# ----------------------------------------------------------------------
# Exact confidence interval of a proportion.
# ----------------------------------------------------------------------

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Proportion:
    """``count`` of ``n`` with its two-sided 95% interval. ``limit``: one-sided upper 95% confidence limit."""

    count: int
    n: int
    low: float
    high: float
    limit: float


def proportion(count: int, n: int) -> Proportion:
    """Return a proportion with exact confidence limits (Clopper and Pearson, Biometrika 26, 1934).

    The one-sided limit for 0 of n is the rule of three: below 3/n. Raises ValueError unless 0 ≤ count ≤ n and
    n > 0.
    """
    if not (0 <= count <= n and n > 0):
        raise ValueError(f"{count} of {n} is not a proportion")
    _, limit = binomial_interval(count, n, 2 * CONFIDENCE - 1)  # 5% beyond each end, so 95% below the upper
    return Proportion(count, n, *binomial_interval(count, n, CONFIDENCE), limit)


# ----------------------------------------------------------------------
# BCa bootstrap interval of a mean (Efron, "Better bootstrap confidence intervals", JASA 1987).
#
# Results equal those of ``scipy.stats.bootstrap`` to the last bit for this statistic, but loading
# ``scipy.stats`` takes as long as all other computations of a report.
# ----------------------------------------------------------------------

Floats = npt.NDArray[np.float64]


BOOTSTRAP_RESAMPLES = 9999
BOOTSTRAP_SEED = 20261121
"""Fixed, so that repeated reports of the same results file are equal."""

BOOTSTRAP_BLOCKS_MIN = 5


def bootstrap_interval(d: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Return the BCa interval of the mean of ``d``; None for fewer blocks than BOOTSTRAP_BLOCKS_MIN.

    It is widened for few values as by Hesterberg, "What teachers should know about the bootstrap" (The
    American Statistician 2015): a resample has the variance without Bessel's correction, and its
    quantiles are those of the normal distribution. For normal values it then agrees with Student's.
    """
    if len(d) < BOOTSTRAP_BLOCKS_MIN:
        return None
    if np.ptp(d) == 0:
        return d[0], d[0]
    low, high = bca(np.asarray(d), confidence, BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED)
    n, tail, mean = len(d), (1 + confidence) / 2, float(np.mean(d))
    wider = t_quantile(tail, n - 1) / float(scipy.special.ndtri(tail)) * (n / (n - 1)) ** 0.5
    return mean + wider * (low - mean), mean + wider * (high - mean)


def bca(d: Floats, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Return the interval. The values must not all be equal."""
    n = len(d)
    drawn = np.random.default_rng(seed).integers(0, n, (resamples, n))
    means = np.sort(np.mean(d[drawn], axis=-1))
    mean = np.mean(d)
    below = np.count_nonzero(means < mean) + np.count_nonzero(means <= mean)
    bias = float(scipy.special.ndtri(below / (2 * resamples)))
    acceleration = _acceleration(d)
    z = float(scipy.special.ndtri((1 - confidence) / 2))
    low, high = (
        _quantile(means, float(scipy.special.ndtr(bias + of / (1 - acceleration * of))))
        for of in (bias + z, bias - z)
    )
    return low, high


def _acceleration(d: Floats) -> float:
    """Return the acceleration from the means without each of the values (jackknife)."""
    n = len(d)
    without = np.array([np.mean(np.delete(d, i)) for i in range(n)])
    influence = (n - 1.0) * (np.mean(without) - without)
    skew, squares = np.sum(influence**3) / float(n) ** 3, np.sum(influence**2) / float(n) ** 2
    return float(1 / 6 * skew / squares ** (3 / 2))


def _quantile(ascending: Floats, probability: float) -> float:
    """Return a quantile by linear interpolation."""
    n = len(ascending)
    place = probability * n + (1 - probability)
    share, after = place % 1, place // 1
    before = int(np.clip(after - 1, 0, n - 1))
    return float((1 - share) * ascending[before] + share * ascending[int(np.clip(after, 0, n - 1))])


# ----------------------------------------------------------------------
# Anytime-valid interval for the mean of blocks: valid for an interim analysis after every block.
#
# Student's interval holds for a fixed number of blocks. An analyst who computes it after each block and stops
# at a clear result errs far more often than its level (docs/explanation/stopping.md). Here the t statistic is
# compared with its distribution under a mixture of effects. This ratio, the Bayes factor, is a martingale if
# there is no effect, for any SD of the blocks.
#
# Let n blocks be independent and Gaussian with mean μ and standard deviation σ. Their sample mean is m, their
# sample SD s, t = √n (m − μ₀) / s and ν = n − 1. For an effect δ = (μ − μ₀) / σ drawn from N(0, g)::
#
#     BF_n(t) = r^(−1/2) ((1 + t²/ν) / (1 + t²/(r ν)))^(n/2),        r = 1 + n g
#
# σ cancels, because t does not depend on it. Under the mixture, t / √r has Student's distribution again: √n δ
# adds the variance n g to the 1 of the noise. BF_n is the ratio of the two densities of t. It is a martingale
# under μ = μ₀ in the blocks known up to their scale (Lai, "On confidence sequences", Annals of Statistics
# 1976, with a flat mixture; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian
# means with unknown variance", arXiv 2310.03722, with this one).
#
# A nonnegative martingale with value M_k at block k ever exceeds b afterwards with a probability of at most
# min(1, M_k / b) (Ville's inequality). No verdict comes before block k = VERDICT_BLOCKS_MIN, so earlier
# blocks cost nothing. The probability that BF_n ever exceeds b, n ≥ k, is at most E min(1, BF_k / b). This
# is, with t_b the t at which BF_k = b and T Student's with k − 1 degrees of freedom::
#
#     p(b) = P(|T| ≥ t_b) + P(|T| < t_b / √r_k) / b
#
# p(BF_n) is a p-value at any stopping time, and { μ₀ : p(BF_n(t(μ₀))) > α } is the interval: both ends are
# ``sequential_critical_value`` standard errors from the mean. It does not depend on a budget, so a study may
# be resumed.
#
# Large families are tested at small levels (Holm). With one g, BF_k is at most r^((k − 1)/2), so k blocks
# never reject at a level below its reciprocal. Therefore g depends on the level α: ``prior_of``. Critical
# values increase as α decreases, so the tests of all levels are nested. The p-value is the smallest level
# that rejects. It is at most α with a probability of at most α, as Holm's method requires.
# ----------------------------------------------------------------------

PRIOR = 4.0
"""g: effects of about √g = 2 SDs of a block are detected soonest, for example 5% at an SD of 2.5%. Chosen by
simulation (ADR 9): with 2 the first interim analyses detect less; with 8 or more, small effects and *same*
take longer. Every value gives a valid interval."""

LEVEL_OF_PRIOR = 0.05
"""Least level of a test with PRIOR."""

P_VALUE_MIN = 1e-12
"""Least p-value: that of blocks that are nearly equal (only synthetic ones are)."""


def prior_of(level: float) -> float:
    """Return g of the two-sided test at a level.

    The product of both is constant, so a family of m is tested with m · PRIOR. At nine times more
    comparisons, the interval of ten blocks is 2% wider than with PRIOR, and that of five 36% narrower.
    """
    return PRIOR * max(1.0, LEVEL_OF_PRIOR / level)


@lru_cache(maxsize=65536)
def sequential_p_value(t: float, n: int) -> float | None:
    """Return the two-sided p-value of n blocks, valid at any stopping time.

    None before VERDICT_BLOCKS_MIN.
    """
    if n < VERDICT_BLOCKS_MIN:
        return None

    def log_chance(level: float) -> float:
        prior = prior_of(level)
        return _log_chance(log_bayes_factor(t, n, prior), prior)

    if (log_p := log_chance(LEVEL_OF_PRIOR)) >= math.log(LEVEL_OF_PRIOR):
        return math.exp(log_p)
    return math.exp(-_root(lambda x: x >= -math.log(P_VALUE_MIN) or log_chance(math.exp(-x)) > -x))


def _root(is_beyond: Callable[[float], bool]) -> float:
    """Return the least positive number of which ``is_beyond`` is true, to the last bit."""
    low, high = 0.0, 1.0
    while not is_beyond(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return high


@lru_cache(maxsize=65536)
def sequential_critical_value(n: int, confidence: float) -> float:
    """Return half the interval's width in standard errors, which replaces Student's quantile.

    Infinite before VERDICT_BLOCKS_MIN.
    """
    if n < VERDICT_BLOCKS_MIN:
        return math.inf
    r = 1 + n * prior_of(1 - confidence)
    # BF_n = b, solved for 1 + t²/ν. It is below r: the largest BF_n exceeds 1 / α, and b does not.
    ratio = math.exp(2 / n * (_log_threshold(confidence) + math.log(r) / 2))
    return math.sqrt((n - 1) * (ratio - 1) / (1 - ratio / r))


def log_bayes_factor(t: float, n: int, prior: float = PRIOR) -> float:
    """Return ln BF_n for an effect, of the t statistic of n blocks."""
    r, x = 1 + n * prior, t * t / (n - 1)
    if math.isinf(x):
        return (n - 1) / 2 * math.log(r)
    return n / 2 * (math.log1p(x) - math.log1p(x / r)) - math.log(r) / 2


def _log_chance(log_b: float, prior: float) -> float:
    """Return ln p(b), the probability that the Bayes factor ever reaches b."""
    k = VERDICT_BLOCKS_MIN
    r = 1 + k * prior
    if log_b <= -math.log(r) / 2:
        return 0.0  # at or below the initial value
    log_ratio = 2 / k * (log_b + math.log(r) / 2)
    if log_ratio >= math.log(r):
        return -log_b  # block k alone cannot reach it
    ratio = math.exp(log_ratio)
    t = math.sqrt((k - 1) * (ratio - 1) / (1 - ratio / r))
    beyond, inside = (2 * t_beyond(t, k - 1), 1 - 2 * t_beyond(t / math.sqrt(r), k - 1))
    return min(0.0, math.log(beyond + inside * math.exp(-log_b)))


@lru_cache(maxsize=256)
def _log_threshold(confidence: float) -> float:
    """Return ln b with p(b) = 1 − confidence. p decreases with b and is at most Ville's 1 / b."""
    alpha = 1 - confidence
    prior = prior_of(alpha)
    low, high = -math.log1p(VERDICT_BLOCKS_MIN * prior) / 2, -math.log(alpha)
    while low < (middle := (low + high) / 2) < high:
        if _log_chance(middle, prior) > math.log(alpha):
            low = middle
        else:
            high = middle
    return high


# ----------------------------------------------------------------------
# Effect of an arm against the baseline: one log ratio per block, and an interval of their mean.
#
# A block is the unit of replication (ADR 4). In block b the arms give x_A and x_B; d_b = ln(x_B / x_A). The
# estimate is exp(mean d). Its interval is Student's t on d, mapped by exp. A study that stops on its verdict
# uses an interval that is valid at any stopping time (ADR 9). A BCa bootstrap (Efron, "Better
# bootstrap confidence intervals", JASA 1987) checks Student's interval. On the log scale, swapping A and B
# mirrors the result, and a machine that is twice as fast gives the same one.
#
# In the schedules slices and duet, x is the number of transactions counted in all slices of the block's
# pairs, divided by their counted time. The effect is the ratio of the two arms' mean rates over the slice
# pairs. It is preferred to the mean of the pairs' log ratios for three reasons: it is the ratio of work done,
# it agrees with the rates in the tables, and it stays finite if a stall leaves a slice empty. A slice without
# its pair (an interrupted round) is omitted.
# ----------------------------------------------------------------------


class Method(StrEnum):
    """Type of interval: for one analysis after a fixed number of blocks, or valid at any stopping time."""

    STUDENT = "student"
    ANYTIME = "anytime"


def method_of(plan: Study, trials: Sequence[Trial] | int) -> Method:
    """Return the method of all intervals of metrics: one for effects, levels, tables, gates and formats.

    The block at which a study stops depends on its primary metric, and the other metrics depend on the same
    blocks. A study that ended before its first interim analysis has a single one. The blocks of an arm do not
    matter: one that lost blocks was analyzed as often as the others. ``trials``: or the number of blocks.
    """
    if not isinstance(trials, int):
        trials = len({trial.block for trial in trials if trial.status is not TrialStatus.RUNNING})
    several = plan.needs_anytime_intervals and trials >= VERDICT_BLOCKS_MIN
    return Method.ANYTIME if several else Method.STUDENT


@dataclass(frozen=True)
class LogRatioSummary:
    """Mean and interval of the blocks' log ratios. ``sd`` and Student's interval need at least two blocks.

    A tail percentile of too few blocks has no ``sd`` either. The anytime-valid interval needs
    ``VERDICT_BLOCKS_MIN`` blocks. Logs are natural. ``p_value`` is two-sided, for mean d = 0. It is below
    1 − ``confidence`` exactly if the interval excludes 0.
    """

    mean: Annotated[float, about("Natural logarithm.")]
    n: Hidden[int]
    sd: Annotated[float | None, about("Between blocks.")]
    low: Hidden[float | None]
    high: Hidden[float | None]
    confidence: Hidden[float]
    p_value: float | None
    method: Method = Method.STUDENT

    def mirrored(self) -> LogRatioSummary:
        """Return the result of the baseline against the arm."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return replace(self, mean=-self.mean, low=low, high=high)

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
    return summarize(d, confidence, Method.STUDENT)


def summarize(d: Sequence[float], confidence: float, method: Method) -> LogRatioSummary:
    """Return the mean of ``d`` with the interval of a method. ``d`` must not be empty."""
    return with_error(float(np.mean(d)), _sd(d), len(d), confidence, method)


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


def ends(summary: LogRatioSummary, confidence: float) -> tuple[float, float]:
    """Return the ends of the interval with another confidence; infinite if there is none."""
    reach = critical_value(summary.n, confidence, summary.method)
    if summary.sd is None or math.isinf(reach):
        return -math.inf, math.inf
    reach *= summary.sd / math.sqrt(summary.n)
    return summary.mean - reach, summary.mean + reach


def critical_value(n: int, confidence: float, method: Method) -> float:
    """Return half the width of an interval in standard errors; infinite if ``n`` blocks are too few."""
    if method is Method.ANYTIME:
        return sequential_critical_value(n, confidence)
    return t_quantile((1 + confidence) / 2, n - 1) if n > 1 else math.inf


def _p_value(t: float, n: int, method: Method) -> float | None:
    if method is Method.ANYTIME:
        return sequential_p_value(t, n)
    return 2 * t_beyond(abs(t), n - 1)


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


def paired(baseline: Trial, arm: Trial) -> tuple[Sequence[Slice], Sequence[Slice]]:
    """Return both trials' measured slices that have a partner: k-th with k-th."""
    pairs = min(len(baseline.measured), len(arm.measured))
    return baseline.measured[:pairs], arm.measured[:pairs]


def own_level(
    values: Mapping[int, float], unit: str, better: Better, confidence: float, method: Method
) -> Estimate | None:
    """Return an arm's geometric mean over blocks with the interval of the logs; None without a block.

    If two arms have the same blocks, the ratio of their levels is the effect.
    """
    if not values:
        return None
    summary = summarize([float(np.log(value)) for value in values.values()], confidence, method)
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


def level_of(
    values: Mapping[int, float], unit: str, better: Better, confidence: float, method: Method
) -> Estimate | None:
    """Return the level like ``own_level``, also for values of zero or less (checkpoints, deadlocks, growth).

    These have no logarithm, so the result is the arithmetic mean with its interval.
    """
    if not values or min(values.values()) > 0:
        return own_level(values, unit, better, confidence, method)
    summary = summarize(list(values.values()), confidence, method)
    return Estimate(summary.mean, unit, summary.n, better, summary.low, summary.high, confidence)
