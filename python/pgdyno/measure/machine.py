"""The machine: limits and resources of its servers, and facts that reports show."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import psutil

from pgdyno.measure.host_counters import Tree
from pgdyno.server.directories import mount_of, read_mounts
from pgdyno.server.settings import MachineResources, disk_kind

GROUPS = "/sys/fs/cgroup"

UNLIMITED_BYTES = 2**60
"""cgroup version 1 shows no limit as a number near 2**63."""


@dataclass(frozen=True)
class Limits:
    """``cpu_cores``: CPU quota in cores, for example 1.5. None: no limit. ``files``: open files per
    process."""

    cpu_cores: float | None
    memory_bytes: int | None
    files: int


def read_limits(tree: Tree) -> Limits:
    """Read the limits of this process, which its servers inherit."""
    cpus = [cores for place in places(tree, "cpu") if (cores := _cores(tree, place)) is not None]
    memory = [size for place in places(tree, "memory") if (size := _memory_bytes(tree, place)) is not None]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Limits(
        cpu_cores=min(cpus, default=None),
        memory_bytes=min(memory, default=None),
        files=2**31 if files == resource.RLIM_INFINITY else files,
    )


def places(tree: Tree, controller: str) -> Iterator[str]:
    """Yield the directories of the control group of this process and of its parents; each can have a limit.

    In a container the names are often those of the host, and only the last directory, the root, exists.
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


def machine_resources(data_path: Path, tree: Tree | None = None) -> MachineResources:
    """Return what servers of this process can use: memory and cores up to the limits of its control groups,
    and the type of the disk of that path.
    """
    limits = read_limits(tree or Tree())
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return MachineResources(
        memory_bytes=min(memory_bytes, limits.memory_bytes or memory_bytes),
        cores=min(cores, math.ceil(limits.cpu_cores or cores)),
        disk=disk_kind(data_path),
    )


def describe_host(data_path: Path) -> dict[str, Any]:
    """Return facts about the machine and the file system of ``data_path``, without names of host and user."""
    return {
        "machine": machine_digest(),
        "processor": _processor(),
        "cores": len(psutil.Process().cpu_affinity()),
        "memory_bytes": psutil.virtual_memory().total,
        "swap_bytes": psutil.swap_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "os": platform.freedesktop_os_release().get("PRETTY_NAME", "")
        if Path("/etc/os-release").exists()
        else "",
        "file_system": _file_system(data_path),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


MACHINE_ID = Path("/etc/machine-id")


def machine_digest() -> str | None:
    """Return a digest of the machine ID, which distinguishes machines of the same model without revealing the
    ID. None without an ID, as in many containers.
    """
    try:
        found = MACHINE_ID.read_text().strip()
    except OSError:
        return None
    return hashlib.blake2b(found.encode(), digest_size=8, person=b"pgdyno").hexdigest() if found else None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _file_system(path: Path) -> str:
    """Return type and mount options of the file system of ``path``."""
    mount = mount_of(path, read_mounts())
    return f"{mount.kind} ({mount.options})" if mount else "unknown"
