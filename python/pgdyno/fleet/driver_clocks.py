"""Offsets of the monotonic clocks of nodes, measured by round trips. Pure, except for the clock itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

ROUND_TRIPS = 9
"""Round trips per measurement. The shortest one counts: delays of the others only add error."""

GUARD_S = 0.1
"""Time between the agreement on the start of a slice and the start. A command must reach every node within
it, and no clock may be off by more."""


@dataclass(frozen=True)
class ClockOffset:
    """``offset_ns``: the clock of a node minus the clock of this process; it is exact to ±``error_ns``."""

    offset_ns: int
    error_ns: int

    def spread_s(self, later: ClockOffset) -> float:
        """Return the largest error of instants between two measurements: drift and both errors."""
        return (abs(later.offset_ns - self.offset_ns) + max(self.error_ns, later.error_ns)) / 1e9


SAME_CLOCK = ClockOffset(0, 0)
"""Offset of a process on this machine."""


def measure_offset(
    read_ns: Callable[[], int], now_ns: Callable[[], int] = time.monotonic_ns, rounds: int = ROUND_TRIPS
) -> ClockOffset:
    """Return the offset of a clock, as in NTP: its reading against the middle of the shortest round trip."""
    found = []
    for _ in range(rounds):
        sent_ns = now_ns()
        theirs_ns = read_ns()
        received_ns = now_ns()
        offset_ns = theirs_ns - (sent_ns + received_ns) // 2
        found.append(ClockOffset(offset_ns, (received_ns - sent_ns + 1) // 2))
    return min(found, key=lambda one: one.error_ns)
