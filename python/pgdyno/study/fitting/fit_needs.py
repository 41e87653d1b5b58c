"""Time and memory with which a fit keeps the question of its source."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pgdyno.errors import UsageError
from pgdyno.study.fitting.fit_study import FitMachine, Fitted, fit_study
from pgdyno.study.study_file import StudyFile
from pgdyno.units import format_duration, format_size

MINUTES_MAX = 14 * 24 * 60
"""Longest time to propose."""

PRECISION = 1.1
"""The proposed time is at most a tenth longer than needed."""

MB = 2**20

MEMORY_MIN_BYTES = 512 * MB
"""Smallest memory limit to propose: pgdyno, its engine and two servers with their connections need a few
hundred MB besides the page cache, and the kernel would end them in less."""


@dataclass(frozen=True)
class Needs:
    """Each value alone keeps the question; None: not by itself. ``memory_bytes`` is an upper limit.

    ``dropped``: factors with levels that do not fit into ``minutes``, although ``[fit]`` allows to drop them.
    """

    minutes: float | None
    memory_bytes: int | None
    dropped: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The needs as text, empty if neither is known."""
        parts = []
        if self.minutes is not None:
            without = f", without {'; '.join(self.dropped)}" if self.dropped else ""
            parts.append(f"--minutes {self.minutes:g} ({format_duration(60 * self.minutes)}{without})")
        if self.memory_bytes is not None:
            limit = f"systemd-run --scope -p MemoryMax={math.ceil(self.memory_bytes / MB)}M pgdyno …"
            parts.append(f"memory limited to {format_size(self.memory_bytes)}, page cache included ({limit})")
        return " or ".join(parts)


def needs_of(file: StudyFile, machine: FitMachine, minutes: float, fitted: Fitted) -> Needs:
    """Return what the question needs; ``fitted`` is the fit of the file to the machine, which loses it."""
    smaller = None
    if fitted.memory_bytes is not None and MEMORY_MIN_BYTES <= fitted.memory_bytes < machine.memory_bytes:
        limited = replace(machine, memory_bytes=fitted.memory_bytes)
        smaller = fitted.memory_bytes if _keeps(file, limited, minutes) else None
    needed = _minutes(file, machine, minutes)
    dropped = () if needed is None else fit_study(file, machine, needed).dropped
    return Needs(needed, smaller, dropped)


def _minutes(file: StudyFile, machine: FitMachine, minutes: float) -> float | None:
    low, high = minutes, 2 * minutes
    while not _keeps(file, machine, high):
        if high > MINUTES_MAX:
            return None
        low, high = high, 2 * high
    while high / low > PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _keeps(file, machine, middle) else (middle, high)
    return float(math.ceil(high))


def _keeps(file: StudyFile, machine: FitMachine, minutes: float) -> bool:
    try:
        return not fit_study(file, machine, minutes).lost
    except UsageError:  # the disk is too small for it
        return False
