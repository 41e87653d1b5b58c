"""Effects averaged over cases (geometric mean).

Every case (or statement) has the same weight: the estimate is the mean of the cases' mean log ratios. It
agrees with the rows above it, and slow cases do not dominate fast ones as in a mean of milliseconds. The
geometric mean of ratios is the one that does not depend on the choice of the baseline (Fleming and Wallace,
"How not to lie with statistics", CACM 1986).

Block p of every case runs in the same pass over the cases. Drift affects all of them, so they are not
independent, and the unit is the pass. If every case has every block, the interval is Student's on the blocks'
means over the cases. If an interruption left some cases without a block, a mean over the others would depend
on the missing ones. Therefore a block contributes its sum of deviations from its cases' means, each with its
weight in the estimate. This is the cluster-robust variance of Liang and Zeger (Biometrika 1986) with the
factor B / (B − 1). Without missing blocks this equals Student's interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, with_error
from pgdyno.units import Better, Estimate

LogRatios = Mapping[int, float]
"""block → ln(x_arm / x_baseline)."""


@dataclass(frozen=True)
class Combined:
    """Average over cases or statements. ``names`` are averaged.

    ``left_out`` are not: they have too few blocks while others have more. ``summary.n`` is the number of
    blocks.
    """

    names: Sequence[str]
    left_out: Sequence[str]
    summary: LogRatioSummary

    @property
    def p_value(self) -> float | None:
        """P-value of the two-sided test of no change."""
        return self.summary.p_value

    def percent(self, better: Better) -> Estimate:
        """Return (B − A) / A in percent; its n is the number of blocks."""
        return self.summary.percent(better)


def combine(ratios: Mapping[str, LogRatios], confidence: float, method: Method) -> Combined | None:
    """Return the average over cases or statements by name; None without a block.

    A case with a single block has no SD, so it is omitted if another has two. If all have a single block, the
    estimate has no interval.
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
        summary=with_error(
            float(np.mean(list(means.values()))),
            _sd(list(parts.values())) if least > 1 else None,
            len(parts),
            confidence,
            method,
        ),
    )


def _sd(parts: Sequence[float]) -> float:
    """Return the SD for which the standard error is √(n / (n − 1) Σ part²)."""
    n = len(parts)
    return n * math.sqrt(sum(part**2 for part in parts) / (n - 1))
