"""Throughput over time: what every trial did, as the driver streamed it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from operator import lt, sub

from pgdyno.evidence.records import Executed, Role

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
    if not all(map(lt, executed.from_s, executed.to_s)):
        lasting = [row for row in zip(*executed, strict=True) if row[1] < row[2]]
        executed = Executed(*(zip(*lasting, strict=True) if lasting else ((), (), (), ())))
    together = math.ceil(len(executed.n) / POINTS_MAX)
    points, begin = [], 0
    for role, of in groupby(executed.roles):
        end = begin + len(list(of))
        points += [_point(executed, role, i, min(i + together, end)) for i in range(begin, end, together)]
        begin = end
    return points


def _point(executed: Executed, role: Role, begin: int, end: int) -> Point:
    """Of some intervals in a row."""
    from_s, to_s = executed.from_s[begin:end], executed.to_s[begin:end]
    took_s = sum(map(sub, to_s, from_s))
    return Point(at_s=(from_s[0] + to_s[-1]) / 2, per_s=sum(executed.n[begin:end]) / took_s, role=role)
