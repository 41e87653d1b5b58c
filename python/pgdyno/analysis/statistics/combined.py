"""The total average: the geometric mean of the ratios of several cases, or of several statements.

Every case (or statement) counts the same: the estimate is the mean over them of their mean log ratios, so
that it agrees with the rows above it, and a slow case does not drown a fast one, as it would in a mean of
milliseconds. Of ratios the geometric mean is the one that does not depend on which arm is the baseline
(Fleming and Wallace, "How not to lie with statistics", CACM 1986).

Block p of every case is run in the same pass over the cases, so that what drifts hits all of them, and they
are not independent: the unit is the pass. Where every case has every block, the interval is Student's on the
blocks' means over the cases. Where an interruption left some without, a mean over those present would move
with which they are; so a block's part is its sum of deviations from its cases' own means, each with the
weight that it has in the estimate (the cluster-robust variance of Liang and Zeger, Biometrika 1986, with the
factor B / (B − 1)); where nothing is missing that is Student's interval exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.statistics.effect import Method, Spread, with_error
from pgdyno.estimate import Better, Estimate

LogRatios = Mapping[int, float]
"""block → ln(x_arm / x_baseline)."""


@dataclass(frozen=True)
class Combined:
    """``names`` are what is averaged, ``left_out`` what is not: it has too few blocks where others have more.

    ``spread.n`` is the number of blocks.
    """

    names: Sequence[str]
    left_out: Sequence[str]
    spread: Spread

    def percent(self, better: Better) -> Estimate:
        """(B − A) / A in percent; its n is the number of blocks."""
        return self.spread.percent(better)


def combine(
    ratios: Mapping[str, LogRatios], confidence: float, method: Method = Method.STUDENT
) -> Combined | None:
    """The average over cases or statements, by name. None where none has a block.

    One with a single block says nothing about its own spread: it is left out as soon as another has two. If
    all have but one there is an estimate without an interval.
    """
    least = 2 if any(len(d) > 1 for d in ratios.values()) else 1
    counted = {name: d for name, d in ratios.items() if len(d) >= least}
    if not counted:
        return None
    means = {name: float(np.mean(list(d.values()))) for name, d in counted.items()}
    parts: dict[int, float] = {}
    for name, d in counted.items():
        for block, ratio in d.items():
            share = 1 / (len(counted) * len(d))
            parts[block] = parts.get(block, 0.0) + share * (ratio - means[name])
    return Combined(
        names=list(counted),
        left_out=[name for name in ratios if name not in counted],
        spread=with_error(
            float(np.mean(list(means.values()))),
            _sd(list(parts.values())) if least > 1 else None,
            len(parts),
            confidence,
            method,
        ),
    )


def _sd(parts: Sequence[float]) -> float:
    """Whose error is √(n / (n − 1) Σ part²)."""
    n = len(parts)
    return n * math.sqrt(sum(part**2 for part in parts) / (n - 1))
