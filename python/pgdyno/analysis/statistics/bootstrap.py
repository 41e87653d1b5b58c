"""BCa bootstrap interval of a mean (Efron, "Better bootstrap confidence intervals", JASA 1987).

Results equal those of ``scipy.stats.bootstrap`` to the last bit for this statistic, but loading
``scipy.stats`` takes as long as all other computations of a report.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used

from pgdyno.analysis.statistics.distributions import t_quantile

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
