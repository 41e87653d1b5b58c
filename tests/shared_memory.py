"""The shared memory that a server has of the system: PostgreSQL's own processes end, it may stay."""

from __future__ import annotations

import contextlib
from pathlib import Path

Segment = Path | int
"""Of POSIX by its path, of System V by its id."""


def of_postmaster(pid: int) -> set[Segment]:
    """While that postmaster lives."""
    found: set[Segment] = {number for number, creator in _system_v().items() if creator == pid}
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/maps").read_text().split()
        found.update(Path(word) for word in words if word.startswith("/dev/shm/PostgreSQL."))
    return found


def still_there(segments: set[Segment]) -> set[Segment]:
    """Those that nobody has removed."""
    numbers = _system_v()
    return {s for s in segments if (s.exists() if isinstance(s, Path) else s in numbers)}


def _system_v() -> dict[int, int]:
    """Ids, with the process ids of those that made them."""
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(line[1]): int(line[4]) for line in lines}
