"""The clock: what it is read from, and what a reading costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pgdyno.probe.machine.tree import Tree

BATCHES = 200
READS = 500
"""A batch takes some 20 µs: short enough that most are undisturbed. All together take a few milliseconds."""


@dataclass(frozen=True)
class Clock:
    """``source`` by the kernel's word. ``read_ns``: the least mean of a batch of readings, Python's own part
    (some 20 to 40 ns) with it.
    """

    source: str | None
    read_ns: float


def read_clock(tree: Tree) -> Clock:
    """As it is now."""
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Clock(source=tree.text(path), read_ns=min(_batch_ns() for _ in range(BATCHES)))


def _batch_ns() -> float:
    begun_ns = time.monotonic_ns()
    for _ in range(READS):
        time.monotonic_ns()
    return (time.monotonic_ns() - begun_ns) / (READS + 1)


def wall_ahead_s() -> float:
    """Of the monotonic clock: it changes when somebody sets the time of day."""
    return time.time() - time.monotonic()
