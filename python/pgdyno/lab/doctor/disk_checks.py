"""Checks of the disk and the file system of the data."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, percent, unknown
from pgdyno.probe.disks import Disk, Syncs
from pgdyno.units import format_duration, format_size

CONSEQUENCES = {
    **dict.fromkeys(("tmpfs", "ramfs"), "it is memory, where nothing is flushed and nothing kept"),
    **dict.fromkeys(("overlay", "aufs"), "files are copied up from a layer below when they first change"),
    **dict.fromkeys(("btrfs", "zfs", "bcachefs"), "it copies what changes, and scatters files as they age"),
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs"), "another machine's load shows"
    ),
}
"""Of types that behave unlike a disk's own file system. Others, and FUSE's, are below."""

FREE_BYTES_MIN = 2 * 2**30
FREE_SHARE_MIN = 0.05
"""ext4 and xfs find room for new files less and less well from here on; the last 5 % are root's."""

FLUSH_S_MIN = {"rotational": 1e-3, "ssd": 20e-6, "nvme": 10e-6}
"""A disk that turns at 7200 per minute takes 4 ms in the mean; the fastest flash with capacitors some 15 µs,
a transfer alone over PCI Express 10 µs."""

FLUSH_S_MAX = 0.02
"""Two turns of a slow disk."""

UNEVEN_TIMES = 10
UNEVEN_S_MIN = 5e-3
"""A hundredth of the commits waits ten times as long as half of them, and long enough to show in a rate."""

SYNCS_MIN = 100
"""Fewer have no 99th percentile."""


def file_system(disk: Disk) -> Checked:
    """Whether it behaves like a file system on a disk."""
    about = "file system of the data"
    if disk.file_system is None:
        return unknown(about)
    consequence = CONSEQUENCES.get(disk.file_system)
    if disk.file_system.startswith("fuse"):
        consequence = "every call passes through another program"
    if consequence:
        return disturbs(about, Code.FILE_SYSTEM, file_system=disk.file_system, consequence=consequence)
    return fine(about, disk.file_system)


def space(disk: Disk) -> Checked:
    """What is free there."""
    about = "free space for the data"
    share = disk.free_bytes / disk.size_bytes if disk.size_bytes else 0.0
    if disk.free_bytes < FREE_BYTES_MIN or share < FREE_SHARE_MIN:
        return disturbs(
            about,
            Code.SPACE_SHORT,
            free=format_size(disk.free_bytes),
            share=percent(share),
            limit_size=format_size(FREE_BYTES_MIN),
            limit=f"{FREE_SHARE_MIN:.0%}",
        )
    return fine(about, f"{format_size(disk.free_bytes)}, {percent(share)}")


def flush(disk: Disk) -> Checked:
    """How long a commit's flush takes: too short, too long, or too uneven."""
    about = "flush of a page (write and fdatasync)"
    syncs = disk.syncs
    if syncs is None:
        return unknown(about, "could not be tried")
    least_s = FLUSH_S_MIN.get(disk.kind, FLUSH_S_MIN["ssd"])
    median = format_duration(syncs.median_s)
    if syncs.median_s < least_s:
        return disturbs(about, Code.FLUSH_TOO_FAST, median=median, limit=format_duration(least_s))
    if syncs.median_s > FLUSH_S_MAX:
        return disturbs(about, Code.FLUSH_SLOW, median=median, limit=format_duration(FLUSH_S_MAX))
    if is_uneven(syncs):
        limit = format_duration(max(UNEVEN_S_MIN, UNEVEN_TIMES * syncs.median_s))
        p99 = format_duration(syncs.p99_s)
        return disturbs(about, Code.FLUSH_UNEVEN, median=median, p99=p99, limit=limit)
    return fine(
        about, f"median {median}, worst of {syncs.n} {format_duration(syncs.worst_s)}{_beneath(disk)}"
    )


def is_uneven(syncs: Syncs) -> bool:
    """Both in proportion and in time."""
    limit_s = max(UNEVEN_S_MIN, UNEVEN_TIMES * syncs.median_s)
    return syncs.n >= SYNCS_MIN and syncs.p99_s > limit_s


def _beneath(disk: Disk) -> str:
    if disk.device is not None and disk.device.startswith(("vd", "xvd")):
        return "; a virtual disk: whether its host keeps what it confirms is not seen from here"
    return f"; the disk's cache is {disk.write_cache}" if disk.write_cache else ""
