"""Throughput over time: what every trial did, as the driver streamed it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pgdyno.evidence.records import Executed, Role

POINTS_MAX = 360
"""Of one trial: more than a picture can show, and enough for a slope."""


@dataclass(frozen=True, slots=True)
class Point:
    """The rate of one interval, or in long windows of several, at its middle, since the trial's epoch."""

    at_s: float
    per_s: float
    role: Role


def throughput(intervals: Iterable[Executed]) -> list[Point]:
    """Transactions carried out (ok or rolled back by design) per second."""
    known = [interval for interval in intervals if interval.to_s > interval.from_s]
    together = math.ceil(len(known) / POINTS_MAX)
    by_role = [(role, list(of)) for role, of in groupby(known, key=lambda interval: interval.role)]
    return [_point(role, of[i : i + together]) for role, of in by_role for i in range(0, len(of), together)]


def _point(role: Role, intervals: Sequence[Executed]) -> Point:
    took_s = sum(interval.to_s - interval.from_s for interval in intervals)
    return Point(
        at_s=(intervals[0].from_s + intervals[-1].to_s) / 2,
        per_s=sum(interval.n for interval in intervals) / took_s,
        role=role,
    )
