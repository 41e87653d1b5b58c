"""Shared memory segments of a server, which may remain after PostgreSQL's processes have ended."""

from __future__ import annotations

import contextlib
from pathlib import Path

Segment = Path | int
"""POSIX segment by path, System V segment by ID."""


def of_postmaster(pid: int) -> set[Segment]:
    """Return the segments of a running postmaster."""
    found: set[Segment] = {number for number, creator in _system_v().items() if creator == pid}
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/maps").read_text().split()
        found.update(Path(word) for word in words if word.startswith("/dev/shm/PostgreSQL."))
    return found


def still_there(segments: set[Segment]) -> set[Segment]:
    """Return the segments that still exist."""
    numbers = _system_v()
    return {s for s in segments if (s.exists() if isinstance(s, Path) else s in numbers)}


def _system_v() -> dict[int, int]:
    """Return IDs with the process IDs of their creators."""
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(line[1]): int(line[4]) for line in lines}
