"""Quantiles and probabilities: Student's t, chi-squared, F, beta, binomial; a robust SD.

The functions are those of ``scipy.special``. They equal ``scipy.stats`` to the last bit (``scipy.stats.t``
for Student's t). ``scipy.stats`` takes about a second to load and a hundred times as long per number.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used


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


SD_OF_MAD = 1.4826
"""Ratio of the standard deviation to the median absolute deviation of a normal distribution."""


def robust_sd(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1.4826 · median |x − median x| over the last axis, in the unit of the values.

    The shape is that of the values without the last axis. NaN without values. Rousseeuw and Croux,
    "Alternatives to the median absolute deviation", JASA 1993.
    """
    middle = np.median(values, axis=-1, keepdims=True)
    return np.asarray(SD_OF_MAD * np.median(np.abs(values - middle), axis=-1))
