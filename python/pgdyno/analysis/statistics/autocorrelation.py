"""Test whether block ratios are autocorrelated: intervals assume that they are independent.

By the rank version of von Neumann's ratio (Bartels, "The rank version of von Neumann's ratio test for
randomness", JASA 1982). Of the ranks R_1 … R_n of the blocks' log ratios, in the order in which they were
run::

    RVN = Σ (R_i − R_{i+1})² / Σ (R_i − R̄)²

Blocks that are independent and of one distribution have any order of ranks with the same chance, whatever
that distribution is: heavy tails change nothing. RVN is then about 2, and less where a block is like the one
before it. RVN / 4 is told well, as Bartels found, by a symmetric beta distribution with RVN's own variance,
4 (n − 2) (5n² − 2n − 9) / (5 n (n + 1) (n − 1)²), from BLOCKS_MIN blocks on.

Only one side is asked for: blocks that swing to and fro make an interval too wide, not too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import beta_below

BLOCKS_MIN = 10
"""With fewer the beta distribution is not good enough, and a memory that matters is hardly ever found."""


def rank_ratio(d: Sequence[float]) -> float | None:
    """RVN; None where all values are alike, or there are too few."""
    if len(d) < BLOCKS_MIN:
        return None
    ranks = _ranks(d)
    squares = float(np.sum((ranks - ranks.mean()) ** 2))
    return float(np.sum(np.diff(ranks) ** 2)) / squares if squares else None


def p_value(ratio: float, n: int) -> float:
    """The chance of so small a ratio, or of a smaller one, of n independent blocks."""
    shape = 5 * n * (n + 1) * (n - 1) ** 2 / (2 * (n - 2) * (5 * n**2 - 2 * n - 9)) - 0.5
    return beta_below(ratio / 4, shape, shape)


def _ranks(d: Sequence[float]) -> npt.NDArray[np.float64]:
    """Of values that are alike the mean of theirs."""
    _, which, count = np.unique(d, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[which])


def is_autocorrelated(d: Sequence[float], alarm: float) -> bool:
    """``d`` in the order of the blocks; independent ones are called so with a chance of ``alarm``."""
    ratio = rank_ratio(d)
    return ratio is not None and p_value(ratio, len(d)) <= alarm


def autocorrelation(d: Sequence[float]) -> float:
    """The correlation of a block with the one before it, of the values themselves."""
    off = np.asarray(d) - np.mean(d)
    return float(np.sum(off[1:] * off[:-1]) / np.sum(off**2))
