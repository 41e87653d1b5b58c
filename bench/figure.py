"""One measured figure: ours, what it is held against, their ratio, and the ratio that we want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Literal

Sense = Literal["at most", "at least"]


@dataclass(frozen=True)
class Figure:
    """``ours`` and ``theirs`` are medians of ``n`` runs each in ``unit``; ``ratio`` is the median of ours /
    theirs.

    ``theirs`` and ``ratio`` are None where there is nothing to compare with; ``wanted`` bounds the ratio.
    ``interval`` has the ratio's 95 %, None where there are too few pairs.
    """

    name: str
    unit: str
    n: int
    ours: float
    against: str
    theirs: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    wanted: float | None = None
    sense: Sense = "at most"

    @property
    def holds(self) -> bool | None:
        """Whether the ratio is as wanted; None where nothing is wanted or nothing was measured."""
        if self.ratio is None or self.wanted is None:
            return None
        return self.ratio <= self.wanted if self.sense == "at most" else self.ratio >= self.wanted


def compared(
    name: str,
    unit: str,
    pairs: Sequence[tuple[float, float]],
    against: str,
    *,
    wanted: float | None = None,
    sense: Sense = "at most",
) -> Figure:
    """A figure from pairs (ours, theirs) that were measured next to each other."""
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    interval = interval_of_median(ratios)
    return Figure(name, unit, len(pairs), ours, against, theirs, median(ratios), interval, wanted, sense)


def interval_of_median(values: Sequence[float]) -> tuple[float, float] | None:
    """Of any distribution, 95 % or somewhat more: each value lies below the median as a coin falls, so that
    two of the ordered ones enclose it. None for fewer than six, no two of which do it that surely.
    """
    n, inside, tail = len(values), 0, 0.0
    while inside < n and (tail := tail + comb(n, inside) / 2**n) <= 0.025:
        inside += 1
    ordered = sorted(values)
    return (ordered[inside - 1], ordered[n - inside]) if inside else None


def limited(name: str, unit: str, ours: Sequence[float], limit: float) -> Figure:
    """A figure that must not exceed a limit that we set ourselves."""
    return compared(name, unit, [(one, limit) for one in ours], "limit", wanted=1.0)


def alone(name: str, unit: str, ours: Sequence[float], remark: str = "–") -> Figure:
    """A figure with nothing beside it."""
    return Figure(name, unit, len(ours), median(ours), remark)


HEAD = "| figure | ours | theirs | unit | ratio | wanted | holds | n |\n|---|---|---|---|---|---|---|---|"
HOLDS = {True: "yes", False: "NO", None: "–"}


def markdown(figures: Sequence[Figure]) -> str:
    """All figures as a table."""
    return "\n".join([HEAD, *(_row(figure) for figure in figures)])


def _row(f: Figure) -> str:
    theirs = f"{_number(f.theirs)} ({f.against})" if f.theirs is not None else f.against
    ratio = "–" if f.ratio is None else f"{f.ratio:.3f}"
    if f.interval is not None:
        ratio += f" ({f.interval[0]:.3f} to {f.interval[1]:.3f})"
    wanted = "–" if f.wanted is None else f"{f.sense} {f.wanted:g}"
    cells = (f.name, _number(f.ours), theirs, f.unit, ratio, wanted, HOLDS[f.holds], str(f.n))
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
