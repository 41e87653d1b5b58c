"""Throughput over time: what every trial did, as the driver streamed it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pgdyno.results.records import Executed
from pgdyno.study.schedule import Role

POINTS_MAX = 360
"""Of one trial: more than a picture can show, and enough for a slope."""


@dataclass(frozen=True, slots=True)
class Point:
    """The rate of one interval, or in long windows of several, at its middle, since the trial's epoch."""

    at_s: float
    per_s: float
    role: Role


def throughput(executed: Executed) -> list[Point]:
    """Transactions carried out (ok or rolled back by design) per second."""
    lasting = executed.from_s < executed.to_s
    measured = executed.measured[lasting]
    from_s, to_s, n = (column[lasting] for column in executed[1:])
    if not len(n):
        return []
    firsts = _firsts(measured, math.ceil(len(n) / POINTS_MAX))
    lasts = np.append(firsts[1:], len(n)) - 1
    point = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)  # to which each interval belongs
    at_s = (from_s[firsts] + to_s[lasts]) / 2
    per_s = np.bincount(point, n) / np.bincount(point, to_s - from_s)
    roles = [Role.MEASURE if one else Role.WARM_UP for one in measured[firsts].tolist()]
    return list(map(Point, at_s.tolist(), per_s.tolist(), roles))


def _firsts(measured: npt.NDArray[np.bool_], together: int) -> npt.NDArray[np.int64]:
    """Where points begin: with a slice of another role, and after so many intervals of the same."""
    edges = [0, *(np.flatnonzero(np.diff(measured)) + 1).tolist(), len(measured)]
    return np.concatenate([np.arange(*ends, together) for ends in pairwise(edges)])
