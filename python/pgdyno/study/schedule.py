"""Layout of a block and the purpose of its slices."""

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

    def rounds_error(self, rounds: int) -> str:
        """Return why a block cannot have so many rounds; empty if it can."""
        if rounds % 2 and self.is_together:
            return "must be even: each round is followed by its mirror image"
        return ""


TOGETHER = (Schedule.SLICES, Schedule.DUET)


class Role(StrEnum):
    """The purpose of a slice."""

    WARM_UP = "warm-up"
    MEASURE = "measure"
