"""Anytime-valid interval for the mean of blocks: valid for an interim analysis after every block.

Student's interval holds for a fixed number of blocks. An analyst who computes it after each block and stops
at a clear result errs far more often than its level (docs/explanation/stopping.md). Here the t statistic is
compared with its distribution under a mixture of effects. This ratio, the Bayes factor, is a martingale if
there is no effect, for any SD of the blocks.

Let n blocks be independent and Gaussian with mean μ and standard deviation σ. Their sample mean is m, their
sample SD s, t = √n (m − μ₀) / s and ν = n − 1. For an effect δ = (μ − μ₀) / σ drawn from N(0, g)::

    BF_n(t) = r^(−1/2) ((1 + t²/ν) / (1 + t²/(r ν)))^(n/2),        r = 1 + n g

σ cancels, because t does not depend on it. Under the mixture, t / √r has Student's distribution again: √n δ
adds the variance n g to the 1 of the noise. BF_n is the ratio of the two densities of t. It is a martingale
under μ = μ₀ in the blocks known up to their scale (Lai, "On confidence sequences", Annals of Statistics 1976,
with a flat mixture; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with
unknown variance", arXiv 2310.03722, with this one).

A nonnegative martingale with value M_k at block k ever exceeds b afterwards with a probability of at most
min(1, M_k / b) (Ville's inequality). No verdict comes before block k = VERDICT_BLOCKS_MIN, so earlier
blocks cost nothing. The probability that BF_n ever exceeds b, n ≥ k, is at most E min(1, BF_k / b). This is,
with t_b the t at which BF_k = b and T Student's with k − 1 degrees of freedom::

    p(b) = P(|T| ≥ t_b) + P(|T| < t_b / √r_k) / b

p(BF_n) is a p-value at any stopping time, and { μ₀ : p(BF_n(t(μ₀))) > α } is the interval: both ends are
``sequential_critical_value`` standard errors from the mean. It does not depend on a budget, so a study may be
resumed.

The test that the effect is below a limit is one-sided, H₀: μ ≥ μ₀. It mixes over the effects of one sign, a
half-normal distribution, and t = √n (μ₀ − m) / s::

    LR_n(t) = 2 BF_n(t) F_n(n t √(g / r) / √(ν + t²/r))

F_n is Student's distribution with n degrees of freedom, and 2 F_n the skewing factor of the skew-t
distribution that t / √r has under this mixture (Azzalini and Capitanio, J. R. Stat. Soc. B 2003). LR_n is a
martingale at μ = μ₀ and a supermartingale above, since t has a monotone likelihood ratio. With M the
distribution of t under the mixture, p(b) = P(T ≥ t_b) + M(t_b) / b. A one-sided test spends the whole level
on one side, so its critical values are smaller. *Same* needs two of these tests. Both err together at most as
often as either (Schuirmann, J. Pharmacokinet. Biopharm. 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from pgdyno.analysis.statistics import distributions
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

PRIOR = 4.0
"""g: effects of about √g = 2 SDs of a block are detected soonest, for example 5% at an SD of 2.5%. Chosen by
simulation (ADR 9): with 2 the first interim analyses detect less; with 8 or more, small effects and *same*
take longer. Every value gives a valid interval."""


def sequential_p_value(t: float, n: int, prior: float = PRIOR) -> float | None:
    """Return the two-sided p-value of n blocks, valid at any stopping time.

    None before VERDICT_BLOCKS_MIN.
    """
    if n < VERDICT_BLOCKS_MIN:
        return None
    return 1.0 if t == 0 else math.exp(_log_chance(log_bayes_factor(t, n, prior), prior))


@lru_cache(maxsize=65536)
def sequential_critical_value(n: int, confidence: float, prior: float = PRIOR) -> float:
    """Return half the interval's width in standard errors, which replaces Student's quantile.

    Infinite before VERDICT_BLOCKS_MIN, and if the confidence is too high for so few blocks.
    """
    if n < VERDICT_BLOCKS_MIN:
        return math.inf
    r = 1 + n * prior
    # BF_n = b, solved for 1 + t²/ν.
    ratio = math.exp(2 / n * (_log_threshold(confidence, prior) + math.log(r) / 2))
    if ratio >= r:
        return math.inf
    return math.sqrt((n - 1) * (ratio - 1) / (1 - ratio / r))


def log_bayes_factor(t: float, n: int, prior: float = PRIOR) -> float:
    """Return ln BF_n for an effect, of the t statistic of n blocks."""
    r, x = 1 + n * prior, t * t / (n - 1)
    if math.isinf(x):
        return (n - 1) / 2 * math.log(r)
    return n / 2 * (math.log1p(x) - math.log1p(x / r)) - math.log(r) / 2


@lru_cache(maxsize=65536)
def one_sided_critical_value(n: int, confidence: float, prior: float = PRIOR) -> float:
    """Return the standard errors between mean and limit at which the one-sided test rejects.

    Infinite before VERDICT_BLOCKS_MIN, and if the confidence is too high for so few blocks.
    """
    if n < VERDICT_BLOCKS_MIN:
        return math.inf
    threshold = _one_sided_log_threshold(confidence, prior)
    if log_likelihood_ratio(math.inf, n, prior) <= threshold:
        return math.inf
    return _root(lambda t: log_likelihood_ratio(t, n, prior) >= threshold)


def log_likelihood_ratio(t: float, n: int, prior: float = PRIOR) -> float:
    """Return ln LR_n for an effect on one side of the limit, of the t statistic of n blocks."""
    r = 1 + n * prior
    skew = n * math.sqrt(prior)  # its limit
    if math.isfinite(t):
        skew *= t / math.sqrt(r * (n - 1) + t * t)
    return math.log(2) + log_bayes_factor(t, n, prior) + math.log(distributions.t_beyond(-skew, n))


@lru_cache(maxsize=256)
def _one_sided_log_threshold(confidence: float, prior: float) -> float:
    """Return ln b with p(b) = 1 − confidence."""
    alpha, k = 1 - confidence, VERDICT_BLOCKS_MIN
    if log_likelihood_ratio(math.inf, k, prior) <= -math.log(alpha):
        return -math.log(alpha)  # block k alone cannot reach it

    def is_beyond(t: float) -> bool:
        inside = _below_under_mixture(t, k, prior) * math.exp(-log_likelihood_ratio(t, k, prior))
        return distributions.t_beyond(t, k - 1) + inside <= alpha

    return log_likelihood_ratio(_root(is_beyond), k, prior)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def _below_under_mixture(t: float, n: int, prior: float) -> float:
    """Return M(t): the integral of LR_n times Student's density, by Gauss and Legendre over atan(t / √ν)."""
    free = n - 1
    half = (math.atan(t / math.sqrt(free)) + math.pi / 2) / 2
    angles = half * (NODES + 1) - math.pi / 2
    ratios = [math.exp(log_likelihood_ratio(x, n, prior)) for x in math.sqrt(free) * np.tan(angles)]
    density = math.gamma(n / 2) / math.gamma(free / 2) / math.sqrt(math.pi) * np.cos(angles) ** (free - 1)
    return float(half * np.sum(WEIGHTS * ratios * density))


def _root(is_beyond: Callable[[float], bool]) -> float:
    """Return the least positive number of which ``is_beyond`` is true, to the last bit."""
    low, high = 0.0, 1.0
    while not is_beyond(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return high


def _log_chance(log_b: float, prior: float) -> float:
    """Return ln p(b), the probability that the Bayes factor ever reaches b."""
    k = VERDICT_BLOCKS_MIN
    r = 1 + k * prior
    if log_b <= -math.log(r) / 2:
        return 0.0  # at or below the initial value
    ratio = math.exp(2 / k * (log_b + math.log(r) / 2))
    if ratio >= r:
        return -log_b  # block k alone cannot reach it
    t = math.sqrt((k - 1) * (ratio - 1) / (1 - ratio / r))
    beyond, inside = (
        2 * distributions.t_beyond(t, k - 1),
        1 - 2 * distributions.t_beyond(t / math.sqrt(r), k - 1),
    )
    return min(0.0, math.log(beyond + inside * math.exp(-log_b)))


@lru_cache(maxsize=256)
def _log_threshold(confidence: float, prior: float) -> float:
    """Return ln b with p(b) = 1 − confidence. p decreases with b and is at most Ville's 1 / b."""
    alpha = 1 - confidence
    low, high = -math.log1p(VERDICT_BLOCKS_MIN * prior) / 2, -math.log(alpha)
    while low < (middle := (low + high) / 2) < high:
        if _log_chance(middle, prior) > math.log(alpha):
            low = middle
        else:
            high = middle
    return high
