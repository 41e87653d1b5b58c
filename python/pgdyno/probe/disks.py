"""The disk and file system under a directory, and the time of a flush there."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from pgdyno.probe.proc_files import Tree
from pgdyno.server.settings.machine_resources import disk_kind

SYS = Path("/sys")
MOUNTS = Path("/proc/self/mountinfo")


def disk_of(path: Path) -> str | None:
    """The kernel's name of the whole disk under a path (``sda``, ``nvme0n1``, ``dm-0``), as in its counters.

    None where the file system lies on none that we can see: in memory, on a network, an overlay, a pool.
    """
    number = path.stat().st_dev
    return _name(number) or _name(_source(path, number))


def _name(number: int | None) -> str | None:
    """Of a device by its number; a partition's is that of its disk, which it shares with the others."""
    if number is None:
        return None
    link = SYS / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        return None
    device = link.resolve()
    return device.parent.name if (device / "partition").exists() else device.name


def _source(path: Path, number: int) -> int | None:
    """What is mounted there, where the file system numbers itself (btrfs): a device's own number."""
    found: tuple[int, str] | None = None
    for line in MOUNTS.read_text().splitlines():
        # 36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()[1]
        mounted = fields[4].encode().decode("unicode_escape")
        if path.resolve().is_relative_to(mounted) and (found is None or len(mounted) >= found[0]):
            found = (len(mounted), source)
    if found is None or not found[1].startswith("/"):
        return None
    try:
        device = Path(found[1]).stat()
    except OSError:
        return None
    return device.st_rdev if stat.S_ISBLK(device.st_mode) and device.st_rdev != number else None


PAGE = bytes(8192)
"""A page, as pg_test_fsync writes."""

SYNCS_MAX = 20_000
"""More say nothing new, and memory has their times."""


@dataclass(frozen=True)
class Syncs:
    """Of ``n`` writes of 8 kB with fdatasync, one after the other."""

    n: int
    median_s: float
    p99_s: float
    worst_s: float


@dataclass(frozen=True)
class Disk:
    """``device``: the kernel's name, None where the file system lies on none that we see. ``kind``: nvme, ssd
    or rotational, as far as the kernel knows. ``write_cache``: what the device says of its cache: ``write
    back`` has to be flushed. ``syncs``: None where they were not to be tried, or could not.
    """

    file_system: str | None
    device: str | None
    kind: str
    write_cache: str | None
    size_bytes: int
    free_bytes: int
    syncs: Syncs | None


def read_disk(tree: Tree, path: Path, sync_s: float) -> Disk:
    """Of what ``path``, a directory, lies on. Flushes are tried for ``sync_s``; none if that is 0."""
    device = disk_of(path)
    usage = shutil.disk_usage(path)
    return Disk(
        file_system=_file_system(path),
        device=device,
        kind=disk_kind(path),
        write_cache=tree.text(f"/sys/block/{device}/queue/write_cache") if device else None,
        size_bytes=usage.total,
        free_bytes=usage.free,
        syncs=try_syncs(path, sync_s) if sync_s > 0 else None,
    )


def try_syncs(path: Path, duration_s: float) -> Syncs | None:
    """Writes one page over and over, and flushes it each time. None where nothing can be written there."""
    took_s: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=path, prefix="pgdyno-sync-") as file:
            os.pwrite(file.fileno(), PAGE, 0)
            os.fsync(file.fileno())  # its place is found before the clock runs
            ends_s = time.monotonic() + duration_s
            while not took_s or (time.monotonic() < ends_s and len(took_s) < SYNCS_MAX):
                begun_s = time.monotonic()
                os.pwrite(file.fileno(), PAGE, 0)
                os.fdatasync(file.fileno())
                took_s.append(time.monotonic() - begun_s)
    except OSError:
        return None
    return summary(took_s)


def summary(took_s: list[float]) -> Syncs:
    """Percentiles by rank."""
    ordered = sorted(took_s)
    n = len(ordered)
    return Syncs(n, ordered[n // 2], ordered[min(n - 1, (99 * n) // 100)], ordered[-1])


def _file_system(path: Path) -> str | None:
    above = [
        part for part in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(part.mountpoint)
    ]
    return max(above, key=lambda part: len(part.mountpoint)).fstype if above else None
