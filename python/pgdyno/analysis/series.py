"""Throughput over time: what every trial did, as the driver streamed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter, sub

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
    known = [row for row in zip(*executed, strict=True) if row[2] > row[1]]
    together = math.ceil(len(known) / POINTS_MAX)
    by_role = [(role, list(of)) for role, of in groupby(known, key=itemgetter(0))]
    return [_point(role, of[i : i + together]) for role, of in by_role for i in range(0, len(of), together)]


def _point(role: Role, rows: Sequence[tuple[Role, float, float, int]]) -> Point:
    _, from_s, to_s, n = zip(*rows, strict=True)
    took_s = sum(map(sub, to_s, from_s))
    return Point(at_s=(from_s[0] + to_s[-1]) / 2, per_s=sum(n) / took_s, role=role)
