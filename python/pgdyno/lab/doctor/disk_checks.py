"""Checks of the disk and the file system of the data."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.estimate import given_percent, percent_text
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, not_reported
from pgdyno.probe.disks import Disk, FlushTimes
from pgdyno.units import format_duration, format_size

CONSEQUENCES = {
    **dict.fromkeys(("tmpfs", "ramfs"), "it is in memory: flushes have no effect, and data are not durable"),
    **dict.fromkeys(("overlay", "aufs"), "the first change of a file copies it from a lower layer"),
    **dict.fromkeys(("btrfs", "zfs", "bcachefs"), "it is copy-on-write: files become fragmented"),
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs"), "the load of another machine affects it"
    ),
}
"""Consequences of file systems that differ from a local one on a disk. See ``file_system`` for FUSE."""

FREE_BYTES_MIN = 2 * 2**30
FREE_SHARE_MIN = 0.05
"""Minimum free space. Below it, ext4 and xfs allocate space less efficiently; the last 5% are reserved for
root."""

FLUSH_S_MIN = {"rotational": 1e-3, "ssd": 20e-6, "nvme": 10e-6}
"""Minimum plausible flush time. A disk with 7200 rpm takes 4 ms on average, the fastest flash with capacitors
about 15 µs, and a transfer over PCI Express alone 10 µs."""

FLUSH_S_MAX = 0.02
"""Maximum flush time: two rotations of a slow disk."""

UNEVEN_TIMES = 10
UNEVEN_S_MIN = 5e-3
"""Limits of the 99th percentile: ten times the median, and long enough to affect a rate."""

SYNCS_MIN = 100
"""Minimum number of flushes for a 99th percentile."""


def file_system(disk: Disk) -> Checked:
    """Check that it behaves like a local file system on a disk."""
    about = "file system of the data"
    if disk.file_system is None:
        return not_reported(about)
    consequence = CONSEQUENCES.get(disk.file_system)
    if disk.file_system.startswith("fuse"):
        consequence = "every call passes through another program"
    if consequence:
        return disturbs(about, Code.FILE_SYSTEM, file_system=disk.file_system, consequence=consequence)
    return fine(about, disk.file_system)


def space(disk: Disk) -> Checked:
    """Check the free space."""
    about = "free space for the data"
    share = disk.free_bytes / disk.size_bytes if disk.size_bytes else 0.0
    if disk.free_bytes < FREE_BYTES_MIN or share < FREE_SHARE_MIN:
        return disturbs(
            about,
            Code.SPACE_SHORT,
            free=format_size(disk.free_bytes),
            share=percent_text(share, 1),
            limit_size=format_size(FREE_BYTES_MIN),
            limit=given_percent(FREE_SHARE_MIN),
        )
    return fine(about, f"{format_size(disk.free_bytes)}, {percent_text(share, 1)}")


def flush(disk: Disk) -> Checked:
    """Check that the flush of a commit is not too fast, too slow or too uneven."""
    about = "flush of a page (write and fdatasync)"
    syncs = disk.syncs
    if syncs is None:
        return not_reported(about, "could not be measured")
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


def is_uneven(syncs: FlushTimes) -> bool:
    """Return whether the 99th percentile exceeds both limits, the relative and the absolute one."""
    limit_s = max(UNEVEN_S_MIN, UNEVEN_TIMES * syncs.median_s)
    return syncs.n >= SYNCS_MIN and syncs.p99_s > limit_s


def _beneath(disk: Disk) -> str:
    if disk.device is not None and disk.device.startswith(("vd", "xvd")):
        return "; a virtual disk: whether its host makes confirmed flushes durable is unknown"
    return f"; the cache of the disk is {disk.write_cache}" if disk.write_cache else ""
