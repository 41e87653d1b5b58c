"""Exact confidence intervals of a proportion and of a median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import scipy  # its parts load when first used

from pgdyno.analysis.statistics.distributions import binomial_interval

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


@dataclass(frozen=True)
class MedianInterval:
    """Median of ``n`` values with its interval; the ends are None if n is too small for the confidence."""

    value: float
    n: int
    low: float | None
    high: float | None


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MedianInterval | None:
    """Return the median with its distribution-free interval between order statistics; None without values.

    The number of values below the true median is binomial with p = 1/2 (Conover, Practical Nonparametric
    Statistics). 6 values are enough for 95%.
    """
    n = len(values)
    if n == 0:
        return None
    ordered = sorted(values)
    ranks = np.arange(n // 2)
    # Probability that the median is not between the value of a rank and its mirror.
    outside = 2 * scipy.special.bdtr(ranks, n, 0.5)
    inside = ranks[outside <= 1 - confidence]
    if len(inside) == 0:
        return MedianInterval(float(median(ordered)), n, None, None)
    rank = int(inside[-1])
    return MedianInterval(float(median(ordered)), n, float(ordered[rank]), float(ordered[n - 1 - rank]))
