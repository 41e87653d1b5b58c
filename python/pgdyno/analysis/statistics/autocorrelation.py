"""Test whether block ratios are autocorrelated. Intervals assume that they are independent.

The test is the rank version of von Neumann's ratio (Bartels, "The rank version of von Neumann's ratio test
for randomness", JASA 1982). For the ranks R_1 … R_n of the blocks' log ratios in the order of execution::

    RVN = Σ (R_i − R_{i+1})² / Σ (R_i − R̄)²

If blocks are independent and identically distributed, every order of ranks has the same probability. This
holds for any distribution, including heavy tails. RVN is then about 2, and smaller if a block resembles the
previous one. RVN / 4 has nearly a symmetric beta distribution, as Bartels found, from BLOCKS_MIN blocks on.
The variance of RVN is 4 (n − 2) (5n² − 2n − 9) / (5 n (n + 1) (n − 1)²).

The test is one-sided: negatively correlated blocks make an interval too wide, not too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import beta_below

BLOCKS_MIN = 10
"""Minimum for the beta approximation. Fewer blocks hardly ever show a relevant autocorrelation."""


def rank_ratio(d: Sequence[float]) -> float | None:
    """Return RVN; None if all values are equal or there are too few."""
    if len(d) < BLOCKS_MIN:
        return None
    ranks = _ranks(d)
    squares = float(np.sum((ranks - ranks.mean()) ** 2))
    return float(np.sum(np.diff(ranks) ** 2)) / squares if squares else None


def von_neumann_p_value(ratio: float, n: int) -> float:
    """Return the probability that n independent blocks have this ratio or a smaller one."""
    shape = 5 * n * (n + 1) * (n - 1) ** 2 / (2 * (n - 2) * (5 * n**2 - 2 * n - 9)) - 0.5
    return beta_below(ratio / 4, shape, shape)


def _ranks(d: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the ranks. Equal values share the mean of their ranks."""
    _, which, count = np.unique(d, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[which])


def is_autocorrelated(d: Sequence[float], alarm: float) -> bool:
    """Return whether ``d``, in block order, is autocorrelated, with false alarm probability ``alarm``."""
    ratio = rank_ratio(d)
    return ratio is not None and von_neumann_p_value(ratio, len(d)) <= alarm


def autocorrelation(d: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation of the values."""
    off = np.asarray(d) - np.mean(d)
    return float(np.sum(off[1:] * off[:-1]) / np.sum(off**2))
