"""An interval for the mean of blocks that is valid at any stopping time: looked at after every block.

Student's interval holds for a number of blocks that was fixed beforehand. Who looks after each block and
stops where the answer is clear errs far more often than it says (docs/explanation/stopping.md). Here the t
statistic is held against its distribution under a mixture of effects, and that ratio, the Bayes factor, is a
martingale as long as there is no effect, whatever the blocks' spread is.

With mean m and standard deviation s of n blocks that are independent and Gaussian with mean μ and standard
deviation σ, t = √n (m − μ₀) / s, ν = n − 1, and an effect of δ = (μ − μ₀) / σ that is drawn from N(0, g)::

    BF_n(t) = r^(−1/2) ((1 + t²/ν) / (1 + t²/(r ν)))^(n/2),        r = 1 + n g

σ is gone: t does not depend on it, and under the mixture t / √r is Student's again, for √n δ has the variance
n g beside the 1 of the noise. BF_n is the ratio of the two densities of t. It is a martingale under μ = μ₀ in
the blocks known up to their scale (Lai, "On confidence sequences", Annals of Statistics 1976, with a flat
mixture; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
variance", arXiv 2310.03722, with this one).

A martingale ≥ 0 that is at M_k at block k exceeds b from then on with a chance of min(1, M_k / b) at most
(Ville's inequality). No verdict comes before block k = FIRST_LOOK, so what happens before it costs nothing:
the chance that BF_n ever exceeds b, n ≥ k, is at most E min(1, BF_k / b), which is, with t_b the t at which
BF_k = b and T Student's with k − 1 degrees of freedom::

    p(b) = P(|T| ≥ t_b) + P(|T| < t_b / √r_k) / b

p(BF_n) is a p-value at any stopping time, and { μ₀ : p(BF_n(t(μ₀))) > α } is the interval: both ends at
``critical`` standard errors from the mean. Nothing in it knows of a budget, so a study may be resumed.
"""

from __future__ import annotations

import math
from functools import lru_cache

from pgdyno.analysis.statistics import distributions
from pgdyno.study.plan import LOOKS_FROM

FIRST_LOOK = LOOKS_FROM
"""Blocks before which nothing is decided: the spread of fewer is hardly known."""

PRIOR = 4.0
"""g: effects of about √g = 2 of a block's standard deviations are found soonest, such as 5 % where they
spread by 2.5 %. Chosen by simulation (ADR 9): with 2 the first looks find less, with 8 or more small effects,
as well as *same*, take longer. Every value gives a valid interval."""


def p_value(t: float, n: int, prior: float = PRIOR) -> float | None:
    """Two-sided, of n blocks, valid at any stopping time; None before FIRST_LOOK."""
    if n < FIRST_LOOK:
        return None
    return 1.0 if t == 0 else math.exp(_log_chance(log_bayes_factor(t, n, prior), prior))


@lru_cache(maxsize=65536)
def critical(n: int, confidence: float, prior: float = PRIOR) -> float:
    """Half the interval's width in standard errors: what Student's quantile is where there is one look.

    Infinite before FIRST_LOOK, and where so few blocks cannot be so sure.
    """
    if n < FIRST_LOOK:
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


def _log_chance(log_b: float, prior: float) -> float:
    """ln p(b): that the Bayes factor ever is b or more."""
    k = FIRST_LOOK
    r = 1 + k * prior
    if log_b <= -math.log(r) / 2:
        return 0.0  # where it begins
    ratio = math.exp(2 / k * (log_b + math.log(r) / 2))
    if ratio >= r:
        return -log_b  # block k alone never gets so far
    t = math.sqrt((k - 1) * (ratio - 1) / (1 - ratio / r))
    beyond, inside = (
        2 * distributions.t_beyond(t, k - 1),
        1 - 2 * distributions.t_beyond(t / math.sqrt(r), k - 1),
    )
    return min(0.0, math.log(beyond + inside * math.exp(-log_b)))


@lru_cache(maxsize=256)
def _log_threshold(confidence: float, prior: float) -> float:
    """ln b with p(b) = 1 − confidence. p falls with b, and lies between it and Ville's own 1 / b."""
    alpha = 1 - confidence
    low, high = -math.log1p(FIRST_LOOK * prior) / 2, -math.log(alpha)
    while low < (middle := (low + high) / 2) < high:
        if _log_chance(middle, prior) > math.log(alpha):
            low = middle
        else:
            high = middle
    return high
