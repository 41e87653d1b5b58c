"""Exact confidence intervals of a proportion and of a median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.special import bdtr, betaincinv


@dataclass(frozen=True)
class Proportion:
    """``count`` of ``n`` with its confidence interval."""

    count: int
    n: int
    low: float
    high: float


def clopper_pearson(count: int, n: int, confidence: float = 0.95) -> Proportion:
    """Return the exact two-sided interval of a proportion (Clopper and Pearson, Biometrika 26, 1934).

    With a count of 0 or n, the whole error probability is on the other side, so that the limit for 0 of n is
    the rule of three: below 3/n. Raises ValueError unless 0 ≤ count ≤ n and n > 0.
    """
    if not (0 <= count <= n and n > 0):
        raise ValueError(f"{count} of {n} is not a proportion")
    alpha = 1 - confidence
    tail = alpha if count in (0, n) else alpha / 2
    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, tail))
    high = 1.0 if count == n else float(betaincinv(count + 1, n - count, 1 - tail))
    return Proportion(count, n, low, high)


@dataclass(frozen=True)
class MedianInterval:
    """Median of ``n`` values with its interval; the ends are None if n is too small for the confidence."""

    value: float
    n: int
    low: float | None
    high: float | None


def median_interval(values: Sequence[float], confidence: float = 0.95) -> MedianInterval | None:
    """Return the median with its distribution-free interval between order statistics; None without values.

    The number of values below the true median is binomial with p = 1/2 (Conover, Practical Nonparametric
    Statistics). 6 values are enough for 95%.
    """
    n = len(values)
    if n == 0:
        return None
    ordered = sorted(values)
    ranks = np.arange(n // 2)
    outside = 2 * bdtr(ranks, n, 0.5)  # probability that the median is not between rank r and its mirror
    inside = ranks[outside <= 1 - confidence]
    if len(inside) == 0:
        return MedianInterval(float(median(ordered)), n, None, None)
    rank = int(inside[-1])
    return MedianInterval(float(median(ordered)), n, float(ordered[rank]), float(ordered[n - 1 - rank]))
