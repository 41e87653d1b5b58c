"""What we may have of the machine: by control groups (version 1 and 2), and by the process's own limits."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pgdyno.probe.machine.tree import Tree

GROUPS = "/sys/fs/cgroup"

UNLIMITED_BYTES = 2**60
"""Version 1 writes no limit as a number near 2**63."""


@dataclass(frozen=True)
class Limits:
    """``cpu_cores`` of time: 1.5 is a core and a half. None: no limit. ``files``: open ones, of a process."""

    cpu_cores: float | None
    memory_bytes: int | None
    files: int


def read_limits(tree: Tree) -> Limits:
    """Those of this process, which the servers that it starts inherit."""
    cpus = [cores for place in places(tree, "cpu") if (cores := _cores(tree, place)) is not None]
    memory = [size for place in places(tree, "memory") if (size := _memory_bytes(tree, place)) is not None]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Limits(
        cpu_cores=min(cpus, default=None),
        memory_bytes=min(memory, default=None),
        files=2**31 if files == resource.RLIM_INFINITY else files,
    )


def places(tree: Tree, controller: str) -> Iterator[str]:
    """The directories of our group and of those above it: each may have a limit. In a container the names
    are often those of the machine outside, and only the last, the root, is there.
    """
    for line in (tree.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _upwards(GROUPS, path)
        elif controller in controllers.split(","):
            yield from _upwards(f"{GROUPS}/{controller}", path)
            yield from _upwards(f"{GROUPS}/{controllers}", path)


def _upwards(root: str, path: str) -> Iterator[str]:
    group = PurePosixPath("/", path)
    for above in (group, *group.parents):
        yield f"{root}{above}".rstrip("/")


def throttled_s(tree: Tree) -> float | None:
    """For how long the CPU was kept from us by a limit so far, all our groups together."""
    found = [
        _throttled_s(tree.text(f"{place}/cpu.stat") or "") for place in dict.fromkeys(places(tree, "cpu"))
    ]
    known = [seconds for seconds in found if seconds is not None]
    return max(known) if known else None


def _throttled_s(text: str) -> float | None:
    counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    if "throttled_usec" in counts:
        return int(counts["throttled_usec"]) / 1e6
    return int(counts["throttled_time"]) / 1e9 if "throttled_time" in counts else None


def _cores(tree: Tree, place: str) -> float | None:
    if text := tree.text(f"{place}/cpu.max"):
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    old, period_us = tree.number(f"{place}/cpu.cfs_quota_us"), tree.number(f"{place}/cpu.cfs_period_us")
    return old / period_us if old and period_us and old > 0 else None


def _memory_bytes(tree: Tree, place: str) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        size = tree.number(f"{place}/{name}")  # "max" is no number
        if size is not None and size < UNLIMITED_BYTES:
            return size
    return None
