"""Throughput over time of each trial, from the driver's intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pgdyno.results.records import Executed
from pgdyno.study.schedule import Role

POINTS_MAX = 360
"""Maximum number of points of one trial: more than a chart can show, and enough for a slope."""


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    """Rate of one interval, or of several in long windows, at its middle since the trial's epoch."""

    at_s: float
    per_s: float
    role: Role


def throughput_points(executed: Executed) -> list[ThroughputPoint]:
    """Return the transactions per second that ended as designed (ok or intentional rollback)."""
    lasting = executed.from_s < executed.to_s
    measured = executed.measured[lasting]
    from_s, to_s, n = (column[lasting] for column in executed[1:])
    if not len(n):
        return []
    firsts = _firsts(measured, math.ceil(len(n) / POINTS_MAX))
    lasts = np.append(firsts[1:], len(n)) - 1
    point = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)  # of each interval
    at_s = (from_s[firsts] + to_s[lasts]) / 2
    per_s = np.bincount(point, n) / np.bincount(point, to_s - from_s)
    roles = [Role.MEASURE if one else Role.WARM_UP for one in measured[firsts].tolist()]
    return list(map(ThroughputPoint, at_s.tolist(), per_s.tolist(), roles))


def _firsts(measured: npt.NDArray[np.bool_], together: int) -> npt.NDArray[np.int64]:
    """Return the first interval of each point: at a change of role, and after a fixed number of intervals."""
    edges = [0, *(np.flatnonzero(np.diff(measured)) + 1).tolist(), len(measured)]
    return np.concatenate([np.arange(*ends, together) for ends in pairwise(edges)])
