"""Robust scores of a few values, and the score above which a value is an outlier.

The score of a value is its distance from the median of the *other* values, in units of their ``robust_sd``.
The value is excluded from its own reference, so it cannot mask itself. With few other values the SD is
imprecise, and the limits are wide.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import robust_sd

VALUES_MIN = 5
"""Minimum group size: fewer values do not have an SD that a value could be compared with."""

FALSE_ALARM = 0.05
"""Maximum share of studies with a false outlier, if every group of values is normally distributed."""

SIZES = (5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100)
ALPHAS = (0.05, 0.025, 0.0166, 0.0125, 0.01, 0.005)

LIMITS: tuple[tuple[float, ...], ...] = (
    (14.0, 20.1, 24.8, 28.5, 31.7, 45.2),
    (13.1, 18.8, 23.2, 26.7, 30.2, 43.4),
    (8.3, 10.7, 12.5, 13.8, 15.0, 19.1),
    (8.2, 10.6, 12.3, 13.6, 14.7, 19.0),
    (6.5, 8.0, 9.0, 9.7, 10.4, 12.7),
    (5.7, 6.8, 7.6, 8.1, 8.6, 10.1),
    (4.9, 5.7, 6.2, 6.5, 6.8, 7.8),
    (4.6, 5.2, 5.6, 5.8, 6.0, 6.8),
    (4.2, 4.6, 4.9, 5.0, 5.2, 5.6),
    (4.0, 4.3, 4.5, 4.6, 4.7, 5.0),
    (3.9, 4.1, 4.3, 4.3, 4.4, 4.7),
)
"""Score that the largest of n normal values (rows: n in SIZES) exceeds with a probability from ALPHAS,
rounded up. Simulated in ``tests/unit/test_outlier_trials.py``."""


@dataclass(frozen=True)
class OutlierScore:
    """Comparison of one value with the others: ``off`` is its distance from their median.

    ``score`` is None if there are too few others or they are all equal.
    """

    value: float
    median: float
    off: float
    score: float | None


def outlier_scores(values: Sequence[float]) -> list[OutlierScore]:
    """Return each value's comparison with the others."""
    every = np.asarray(values, dtype=np.float64)
    return [_standing(value, np.delete(every, i)) for i, value in enumerate(values)]


def _standing(value: float, others: npt.NDArray[np.float64]) -> OutlierScore:
    if not len(others):
        return OutlierScore(value, value, 0.0, None)
    median = float(np.median(others))
    sd = float(robust_sd(others))
    enough = len(others) >= VALUES_MIN - 1 and sd > 0
    return OutlierScore(value, median, value - median, (value - median) / sd if enough else None)


def limit(n: int, groups: int) -> float:
    """Return the limit for the largest score in a group of ``n`` values of a study with ``groups`` groups.

    The probabilities of a false alarm add up to at most FALSE_ALARM (Bonferroni). Between the entries of the
    table the larger limit is used.
    """
    alpha = FALSE_ALARM / max(1, groups)
    row = LIMITS[max(0, bisect_right(SIZES, n) - 1)]
    fitting = [entry for entry, of in zip(row, ALPHAS, strict=True) if of <= alpha]
    # For more groups than in the table, the last entry is extrapolated conservatively, like the tail of few
    # values.
    return min(fitting) if fitting else row[-1] * ALPHAS[-1] / alpha
