"""Whether the blocks of a comparison remember each other: intervals take them for independent.

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
import scipy  # its parts load when first used

from pgdyno.analysis.comparison.comparison import Comparison
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.estimate import signed

BLOCKS_MIN = 10
"""With fewer the beta distribution is not good enough, and a memory that matters is hardly ever found."""

ALARM = 0.05
"""The chance, at most, that a study whose blocks are independent has this caveat: over all of its cases and
arms, by Bonferroni's correction."""


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
    return float(scipy.special.betainc(shape, shape, ratio / 4))


def _ranks(d: Sequence[float]) -> npt.NDArray[np.float64]:
    """Of values that are alike the mean of theirs."""
    _, which, count = np.unique(d, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[which])


def is_remembered(d: Sequence[float], alarm: float) -> bool:
    """``d`` in the order of the blocks; independent ones are called so with a chance of ``alarm``."""
    ratio = rank_ratio(d)
    return ratio is not None and p_value(ratio, len(d)) <= alarm


def memory(d: Sequence[float]) -> float:
    """The correlation of a block with the one before it, of the values themselves."""
    off = np.asarray(d) - np.mean(d)
    return float(np.sum(off[1:] * off[:-1]) / np.sum(off**2))


def doubts(comparisons: Sequence[Comparison], cases: int) -> list[Caveat]:
    """``comparisons`` of one case out of so many."""
    found = []
    for comparison in comparisons:
        if comparison.primary is None:
            continue
        ratios = comparison.primary.log_ratios
        d = [ratios[block] for block in sorted(ratios)]
        if is_remembered(d, ALARM / (cases * len(comparisons))):
            told: dict[str, Parameter] = {"correlation": signed(memory(d), 2, ""), "blocks": len(d)}
            told |= {"arm": comparison.arm.name, "baseline": comparison.baseline.name}
            found.append(Caveat(Code.BLOCKS_REMEMBER, told))
    return found
