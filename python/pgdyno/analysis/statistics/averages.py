"""Effects averaged over cases (geometric mean).

Every case (or statement) has the same weight: the estimate is the mean of the cases' mean log ratios. It
agrees with the rows above it, and slow cases do not dominate fast ones as in a mean of milliseconds. The
geometric mean of ratios is the one that does not depend on the choice of the baseline (Fleming and Wallace,
"How not to lie with statistics", CACM 1986).

Block p of every case runs in the same pass over the cases. Drift affects all of them, so they are not
independent, and the unit is the pass: the interval is that of the passes' means. Only complete passes count.
With the others, the estimate would depend on the cases that they reached, or the degrees of freedom would not
be those of every case: a 95% interval then covered 90% if one of four cases had two of eight blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, summarize
from pgdyno.units import Better, Estimate

LogRatios = Mapping[int, float]
"""block → ln(x_arm / x_baseline)."""


@dataclass(frozen=True)
class Combined:
    """Average over cases or statements. ``names`` are averaged.

    ``left_out`` are not: they have too few blocks while others have more. ``summary.n`` is the number of
    complete passes.
    """

    names: Sequence[str]
    left_out: Sequence[str]
    summary: LogRatioSummary

    @property
    def p_value(self) -> float | None:
        """P-value of the two-sided test of no change."""
        return self.summary.p_value

    def percent(self, better: Better) -> Estimate:
        """Return (B − A) / A in percent; its n is the number of complete passes."""
        return self.summary.percent(better)


def combine(ratios: Mapping[str, LogRatios], confidence: float, method: Method) -> Combined | None:
    """Return the average over cases or statements by name; None without a complete pass.

    A case with a single block has no SD, so it is omitted if another has two. If all have a single block, the
    estimate has no interval.
    """
    least = 2 if any(len(d) > 1 for d in ratios.values()) else 1
    counted = {name: d for name, d in ratios.items() if len(d) >= least}
    passes = sorted(set.intersection(*map(set, counted.values()))) if counted else []
    if not passes:
        return None
    means = [fmean(d[block] for d in counted.values()) for block in passes]
    left_out = [name for name in ratios if name not in counted]
    return Combined(list(counted), left_out, summarize(means, confidence, method))
