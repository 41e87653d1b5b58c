"""The kernel's table of mounts.

Paths in it are bytes in which blank, tab, newline and backslash are octal escapes. Any other byte stands for
itself: paths in UTF-8 are not escaped, and a path need not be UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A mount point, its file system with its options and source, and the number of its device.

    Of FUSE the device has no major number, and the connection as its minor number.
    """

    point: Path
    kind: str
    options: str
    source: str
    device: int


def read_mounts() -> list[Mount]:
    """Return the mounts that this process sees, in their order."""
    return mounts_of(TABLE.read_bytes())


def mounts_of(table: bytes) -> list[Mount]:
    """Return the mounts in a text of ``/proc/self/mountinfo``.

    A line is ``36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw``.
    """
    found = []
    for line in filter(None, table.split(b"\n")):
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        kind, source, of_file_system = after.split(b" ", 2)
        major, _, minor = fields[2].partition(b":")
        options = dict.fromkeys([*fields[5].split(b","), *of_file_system.split(b",")])
        mount = Mount(
            Path(_unescaped(fields[4])),
            _unescaped(kind),
            _unescaped(b",".join(options)),
            _unescaped(source),
            os.makedev(int(major), int(minor)),
        )
        found.append(mount)
    return found


def mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that a path is on: of the deepest mount point above it the latest."""
    real = path.resolve()
    above = [mount for mount in mounts if real.is_relative_to(mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point.parts), default=None)


def _unescaped(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda escape: bytes([int(escape[1], 8) & 0xFF]), field))
