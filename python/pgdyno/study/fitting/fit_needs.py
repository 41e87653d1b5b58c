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

DISK_MAX_BYTES = 2**50
"""Largest disk to propose."""

MEMORY_MIN_BYTES = 512 * MB
"""Smallest memory limit to propose: pgdyno, its engine and two servers with their connections need a few
hundred MB besides the page cache, and the kernel would end them in less."""


@dataclass(frozen=True)
class Need:
    """Requirements that together keep the question. ``memory_bytes`` is an upper limit of the memory.

    ``disk_bytes``: free space, if this machine has less. ``dropped``: factors with levels that do not fit
    into ``minutes``, although ``[fit]`` allows to drop them.
    """

    minutes: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    dropped: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The need as text."""
        parts = []
        if self.minutes is not None:
            without = f", without {'; '.join(self.dropped)}" if self.dropped else ""
            parts.append(f"--minutes {self.minutes:g} ({format_duration(60 * self.minutes)}{without})")
        if self.memory_bytes is not None:
            limit = f"systemd-run --scope -p MemoryMax={math.ceil(self.memory_bytes / MB)}M pgdyno …"
            parts.append(f"memory limited to {format_size(self.memory_bytes)}, page cache included ({limit})")
        if self.disk_bytes is not None:
            parts.append(f"{format_size(self.disk_bytes)} of free disk space (PGDYNO_CACHE)")
        return " and ".join(parts)


def needs_of(file: StudyFile, machine: FitMachine, minutes: float, fitted: Fitted) -> list[Need]:
    """Return alternative requirements, each of which keeps the question; empty if none is known.

    ``fitted`` is the fit of the file to the machine, which loses the question. More disk space is proposed
    only if no longer time is known to be enough.
    """
    found = [
        need
        for need in (_more_minutes(file, machine, minutes), _less_memory(file, machine, minutes, fitted))
        if need is not None
    ]
    if not found and (both := _less_memory_for_longer(file, machine, minutes)):
        found.append(both)
    if all(need.minutes is None for need in found):
        found += filter(None, [_more_disk(file, machine, minutes)])
    return found


def _more_minutes(file: StudyFile, machine: FitMachine, minutes: float) -> Need | None:
    needed = _minutes(file, machine, minutes)
    return None if needed is None else Need(needed, dropped=fit_study(file, machine, needed).dropped)


def _less_memory(file: StudyFile, machine: FitMachine, minutes: float, fitted: Fitted) -> Need | None:
    wanted_bytes = fitted.memory_bytes
    if wanted_bytes is None or not MEMORY_MIN_BYTES <= wanted_bytes < machine.memory_bytes:
        return None
    limited = replace(machine, memory_bytes=wanted_bytes)
    return Need(memory_bytes=wanted_bytes) if _keeps(file, limited, minutes) else None


def _less_memory_for_longer(file: StudyFile, machine: FitMachine, minutes: float) -> Need | None:
    while (minutes := 2 * minutes) <= MINUTES_MAX:
        try:
            fitted = fit_study(file, machine, minutes)
        except UsageError:  # the disk is too small for it
            continue
        if need := _less_memory(file, machine, minutes, fitted):
            return replace(need, minutes=minutes)
    return None


def _more_disk(file: StudyFile, machine: FitMachine, minutes: float) -> Need | None:
    needed = _minutes(file, replace(machine, disk_free_bytes=DISK_MAX_BYTES), minutes)
    if needed is None:
        return None
    low, high = machine.disk_free_bytes, DISK_MAX_BYTES
    while high / max(1, low) > PRECISION:
        middle = round(math.sqrt(max(1, low) * high))
        is_enough = _keeps(file, replace(machine, disk_free_bytes=middle), needed)
        low, high = (low, middle) if is_enough else (middle, high)
    kept = fit_study(file, replace(machine, disk_free_bytes=high), needed)
    return Need(needed, disk_bytes=high, dropped=kept.dropped)


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
