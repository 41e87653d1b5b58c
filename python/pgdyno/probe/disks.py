"""The disk and file system under a directory, and the time of a flush there."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pgdyno.probe.proc_files import Tree
from pgdyno.server.mount_table import mount_of, read_mounts
from pgdyno.server.settings.machine_resources import disk_kind

SYS = Path("/sys")


def disk_of(path: Path) -> str | None:
    """Return the kernel's name of the whole disk of a path (``sda``, ``nvme0n1``, ``dm-0``), as in its
    counters.

    None if no disk is visible: file systems in memory or on a network, overlays, pools.
    """
    number = path.stat().st_dev
    return _name(number) or _name(_source(path, number))


def _name(number: int | None) -> str | None:
    """Return the name of a device by its number; for a partition, that of its disk."""
    if number is None:
        return None
    link = SYS / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        return None
    device = link.resolve()
    return device.parent.name if (device / "partition").exists() else device.name


def _source(path: Path, number: int) -> int | None:
    """Return the device number of a file system with its own numbers (btrfs), from the mount table."""
    mount = mount_of(path, read_mounts())
    if mount is None or not mount.source.startswith("/"):
        return None
    try:
        device = Path(mount.source).stat()
    except OSError:
        return None
    return device.st_rdev if stat.S_ISBLK(device.st_mode) and device.st_rdev != number else None


PAGE = bytes(8192)
"""A page, as pg_test_fsync writes."""

SYNCS_MAX = 20_000
"""Maximum number of flushes, because their times are kept in memory."""


@dataclass(frozen=True)
class FlushTimes:
    """Times of ``n`` consecutive writes of 8 kB with fdatasync."""

    n: int
    median_s: float
    p99_s: float
    worst_s: float


@dataclass(frozen=True)
class Disk:
    """``device``: the kernel's name, None if no disk is visible. ``kind``: nvme, ssd or rotational, as
    reported by the kernel. ``write_cache``: type of the device's cache; ``write back`` requires flushes.
    ``syncs``: None if not requested or not possible.
    """

    file_system: str | None
    device: str | None
    kind: str
    write_cache: str | None
    size_bytes: int
    free_bytes: int
    syncs: FlushTimes | None


def read_disk(tree: Tree, path: Path, sync_s: float) -> Disk:
    """Read the disk of the directory ``path``. Measures flushes for ``sync_s``; none if it is 0."""
    device = disk_of(path)
    usage = shutil.disk_usage(path)
    mount = mount_of(path, read_mounts())
    return Disk(
        file_system=mount.kind if mount else None,
        device=device,
        kind=disk_kind(path),
        write_cache=tree.text(f"/sys/block/{device}/queue/write_cache") if device else None,
        size_bytes=usage.total,
        free_bytes=usage.free,
        syncs=measure_flushes(path, sync_s) if sync_s > 0 else None,
    )


def measure_flushes(path: Path, duration_s: float) -> FlushTimes | None:
    """Write one page repeatedly, each time with a flush. None if the directory is not writable."""
    took_s: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=path, prefix="pgdyno-sync-") as file:
            os.pwrite(file.fileno(), PAGE, 0)
            os.fsync(file.fileno())  # allocates the block before the measurement
            ends_s = time.monotonic() + duration_s
            while not took_s or (time.monotonic() < ends_s and len(took_s) < SYNCS_MAX):
                begun_s = time.monotonic()
                os.pwrite(file.fileno(), PAGE, 0)
                os.fdatasync(file.fileno())
                took_s.append(time.monotonic() - begun_s)
    except OSError:
        return None
    return percentile_summary(took_s)


def percentile_summary(took_s: list[float]) -> FlushTimes:
    """Return the percentiles by rank."""
    ordered = sorted(took_s)
    n = len(ordered)
    return FlushTimes(n, ordered[n // 2], ordered[min(n - 1, (99 * n) // 100)], ordered[-1])
