"""One measured figure: ours, the reference value, their ratio, and the bound of the ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Literal

Sense = Literal["at most", "at least"]


@dataclass(frozen=True)
class Figure:
    """Medians of ``n`` runs each, in ``unit``. ``ratio`` is the median of ours / theirs.

    ``theirs`` and ``ratio`` are None without a reference value. ``bound`` is the bound of the ratio.
    ``interval`` is the 95% CI of the ratio, None with too few pairs.
    """

    name: str
    unit: str
    n: int
    ours: float
    against: str
    theirs: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    bound: float | None = None
    sense: Sense = "at most"

    @property
    def holds(self) -> bool | None:
        """Return whether the ratio is within its bound. None without a ratio or a bound."""
        if self.ratio is None or self.bound is None:
            return None
        return self.ratio <= self.bound if self.sense == "at most" else self.ratio >= self.bound


def compared(
    name: str,
    unit: str,
    pairs: Sequence[tuple[float, float]],
    against: str,
    *,
    bound: float | None = None,
    sense: Sense = "at most",
) -> Figure:
    """Return a figure from pairs (ours, theirs), each measured in succession."""
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    interval = interval_of_median(ratios)
    return Figure(name, unit, len(pairs), ours, against, theirs, median(ratios), interval, bound, sense)


def interval_of_median(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the distribution-free CI of the median with at least 95% coverage.

    It is the interval of the sign test, from two order statistics. None for fewer than six values, which
    cannot reach the coverage.
    """
    n, inside, tail = len(values), 0, 0.0
    while inside < n and (tail := tail + comb(n, inside) / 2**n) <= 0.025:
        inside += 1
    ordered = sorted(values)
    return (ordered[inside - 1], ordered[n - inside]) if inside else None


def limited(name: str, unit: str, ours: Sequence[float], limit: float) -> Figure:
    """Return a figure with a fixed upper limit."""
    return compared(name, unit, [(one, limit) for one in ours], "limit", bound=1.0)


def alone(name: str, unit: str, ours: Sequence[float], remark: str = "–") -> Figure:
    """Return a figure without a reference value."""
    return Figure(name, unit, len(ours), median(ours), remark)


HEAD = "| figure | ours | theirs | unit | ratio | wanted | holds | n |\n|---|---|---|---|---|---|---|---|"
HOLDS = {True: "yes", False: "NO", None: "–"}


def markdown(figures: Sequence[Figure]) -> str:
    """Format the figures as a Markdown table."""
    return "\n".join([HEAD, *(_row(figure) for figure in figures)])


def _row(f: Figure) -> str:
    theirs = f"{_number(f.theirs)} ({f.against})" if f.theirs is not None else f.against
    ratio = "–" if f.ratio is None else f"{f.ratio:.3f}"
    if f.interval is not None:
        ratio += f" [{f.interval[0]:.3f}, {f.interval[1]:.3f}]"
    bound = "–" if f.bound is None else f"{f.sense} {f.bound:g}"
    cells = (f.name, _number(f.ours), theirs, f.unit, ratio, bound, HOLDS[f.holds], str(f.n))
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
