"""Test whether block ratios are skewed. Intervals assume that their distribution is nearly symmetric.

The triples test (Randles, Fligner, Policello and Wolfe, "An asymptotically distribution-free test for
symmetry versus asymmetry", JASA 1980). Of three blocks, the middle one is closer to the smaller or to the
larger one::

    T = mean over all triples of the sign of (smallest + largest − 2 · middle) / 3

T is about 0 for every symmetric distribution, including heavy tails, where an estimated skewness would be far
from 0. Its variance is that of a U-statistic, estimated from the same blocks. T divided by its standard error
is compared with Student's distribution, which is slightly conservative with ten blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pgdyno.analysis.statistics.distributions import t_beyond

BLOCKS_MIN = 10
"""With fewer blocks, only extreme skewness could be detected."""

BLOCKS_MAX = 100
"""Maximum number of blocks tested, the last ones: 161,700 triples take 0.1 s."""

ROUNDING = 1e-12
"""Variance of T that is rounding only. The smallest other one is larger by far: T is a mean of thirds."""


def is_skewed(d: Sequence[float], alarm: float) -> bool:
    """Return whether the values are skewed, with false alarm probability ``alarm``. The test is two-sided."""
    score = triples_score(d)
    return score is not None and 2 * t_beyond(abs(score), len(tested(d))) <= alarm


def tested(d: Sequence[float]) -> Sequence[float]:
    """Return the values that are tested."""
    return d[-BLOCKS_MAX:]


def triples_score(d: Sequence[float]) -> float | None:
    """Return T in standard errors, positive for a long right tail; None for too few or equal values.

    Infinite if all triples have the same direction, as with extreme skewness.
    """
    values = np.asarray(tested(d), dtype=float)
    n = len(values)
    if n < BLOCKS_MIN:
        return None
    of = np.array(list(combinations(range(n), 3)))
    triples = np.sort(values[of], axis=1)
    signs = np.sign(triples[:, 0] + triples[:, 2] - 2 * triples[:, 1]) / 3
    t = float(signs.mean())
    pairs = [of[:, i] * n + of[:, k] for i, k in combinations(range(3), 2)]
    thrice = np.tile(signs, 3)
    by_one = np.bincount(of.T.ravel(), thrice, n) / math.comb(n - 1, 2)
    every_two = np.bincount(np.concatenate(pairs), thrice, n * n).reshape(n, n) / (n - 2)
    by_two = every_two[np.triu_indices(n, 1)]
    variance = (
        3 * math.comb(n - 3, 2) * float(np.mean((by_one - t) ** 2))
        + 3 * (n - 3) * float(np.mean((by_two - t) ** 2))
        + float(np.mean(signs**2))
        - t * t
    ) / math.comb(n, 3)
    if variance <= ROUNDING:
        return math.copysign(math.inf, t) if t else None
    return t / math.sqrt(variance)


def skewness(d: Sequence[float]) -> float:
    """Return the third standardized moment of the values."""
    off = np.asarray(d) - np.mean(d)
    return float(np.mean(off**3) / np.mean(off**2) ** 1.5)
