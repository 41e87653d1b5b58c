"""The throughput of one trial, point by point, and the rows of points that lie far below what is usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.telemetry.events import Event
from pgdyno.evidence.records import Executed

Floats = npt.NDArray[np.float64]

RUNNING_POINTS = 61
"""In a series of twice as many points and more, the baseline leads from the median of so many to the next."""

SHORT_SHARE = 0.5
"""Of the usual length: a shorter interval, at the end of a slice, is no point."""


@dataclass(frozen=True)
class Rates:
    """The measured points of one trial."""

    from_s: Floats
    to_s: Floats
    n: Floats

    @property
    def per_s(self) -> Floats:
        """Transactions carried out per second."""
        return self.n / (self.to_s - self.from_s)


@dataclass(frozen=True)
class Dip:
    """``depth``: the share by which the throughput was lower, over all of it; ``lost``: transactions."""

    trial: int
    first: int  # its first point
    points: int
    from_s: float
    to_s: float
    depth: float
    lost: float
    causes: Sequence[Event] = ()


def rates_of(executed: Executed) -> Rates:
    """The measured ones, without those that were cut short."""
    took_s = executed.to_s - executed.from_s
    kept = executed.measured & (took_s > 0)
    if kept.any():
        kept &= took_s >= SHORT_SHARE * np.median(took_s[kept])
    return Rates(executed.from_s[kept], executed.to_s[kept], executed.n[kept])


def baseline(per_s: Floats) -> Floats:
    """What is usual at each point."""
    parts = len(per_s) // RUNNING_POINTS
    if parts < 2:
        return np.full(len(per_s), np.median(per_s))
    whole = per_s[: parts * RUNNING_POINTS].reshape(parts, RUNNING_POINTS)
    middles = (np.arange(parts) + 0.5) * RUNNING_POINTS - 0.5
    return np.interp(np.arange(len(per_s)), middles, np.median(whole, axis=1))


def relative(per_s: Floats, usual: Floats) -> Floats:
    """By which share each point lies above what is usual, or below it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(usual > 0, per_s / usual - 1, 0.0)


def follows(rates: Rates) -> npt.NDArray[np.bool_]:
    """Whether a point follows the one before it at once, or after another arm's slice."""
    took_s = rates.to_s - rates.from_s
    return np.concatenate([[False], rates.from_s[1:] - rates.to_s[:-1] < SHORT_SHARE * took_s[1:]])


def runs(low: npt.NDArray[np.bool_], follows: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and behind the last of each row of neighbours that are true."""
    begins = low & ~(follows & np.concatenate([[False], low[:-1]]))
    firsts = np.flatnonzero(begins)
    ends = [int(np.argmin(low[i:] & np.concatenate([[True], ~begins[i + 1 :]]))) for i in firsts]
    return [
        (int(first), int(first) + length if length else len(low))
        for first, length in zip(firsts, ends, strict=True)
    ]


def dips_in(trial: int, rates: Rates, usual: Floats, low: npt.NDArray[np.bool_]) -> list[Dip]:
    """The rows of low points."""
    found = []
    for first, behind in runs(low, follows(rates)):
        own = slice(first, behind)
        expected = float(np.sum(usual[own] * (rates.to_s[own] - rates.from_s[own])))
        lost = expected - float(np.sum(rates.n[own]))
        from_s, to_s = float(rates.from_s[first]), float(rates.to_s[behind - 1])
        found.append(Dip(trial, first, behind - first, from_s, to_s, lost / expected, lost))
    return found
