"""Throughput over time: what every trial did, second by second, as the driver streamed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pgdyno.evidence.records import Interval, Role


@dataclass(frozen=True)
class Point:
    """The rate of one interval, at its middle. ``at_s`` counts from the trial's epoch."""

    at_s: float
    per_s: float
    role: Role


def throughput(intervals: Iterable[Interval]) -> list[Point]:
    """Transactions carried out (ok or rolled back by design) per second, interval by interval."""
    return [
        Point(
            at_s=(interval.from_s + interval.to_s) / 2,
            per_s=sum(counts.executed for counts in interval.kinds.values())
            / (interval.to_s - interval.from_s),
            role=interval.role,
        )
        for interval in intervals
        if interval.to_s > interval.from_s
    ]
