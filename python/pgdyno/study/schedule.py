"""How a block is laid out, and what its slices are for."""

from __future__ import annotations

from enum import StrEnum


class Schedule(StrEnum):
    """The layout of a block."""

    SLICES = "slices"
    DUET = "duet"
    BLOCKS = "blocks"
    SEQUENTIAL = "sequential"

    @property
    def is_together(self) -> bool:
        """Whether the servers of all arms are up at the same time, and their trials cut into slices."""
        return self in TOGETHER


TOGETHER = (Schedule.SLICES, Schedule.DUET)


class Role(StrEnum):
    """The purpose of a slice."""

    WARM_UP = "warm-up"
    MEASURE = "measure"
