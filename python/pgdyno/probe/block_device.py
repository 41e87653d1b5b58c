"""Which disk a path lies on, for the kernel's counters of disks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

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
