"""Copying one file's bytes: shared blocks where the file system can, else inside the kernel."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

# linux/fs.h: make the target share the source's blocks (btrfs, xfs).
FICLONE = 0x40049409
CHUNK_BYTES = 2**30  # one call copies at most 2 GiB; smaller pieces let an interrupt through

_NO_REFLINK = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
_NO_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


def copy_bytes(source: Path, target: Path, size_bytes: int) -> None:
    """Make the target's content the source's. An existing target is written over in place.

    In place, the file keeps its blocks on disk: the layout is the same in every trial, and nothing is freed
    and allocated again. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with source.open("rb", buffering=0) as reading:
        descriptor = os.open(target, flags, 0o600)
        try:
            if not _share_blocks(reading.fileno(), descriptor):
                _copy(reading.fileno(), descriptor, size_bytes)
            # Only where it was longer: ext4 starts a transaction for each truncation, even to the same size.
            if os.fstat(descriptor).st_size > size_bytes:
                os.ftruncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)


def can_share_blocks(folder: Path) -> bool:
    """Whether the file system there copies a file by sharing its blocks (a reflink)."""
    probe, twin = folder / ".reflink-probe", folder / ".reflink-twin"
    try:
        probe.write_bytes(b"x" * 4096)
        with probe.open("rb") as source, twin.open("wb") as target:
            return _share_blocks(source.fileno(), target.fileno())
    finally:
        probe.unlink(missing_ok=True)
        twin.unlink(missing_ok=True)


def _share_blocks(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_REFLINK:
            raise
        return False
    return True


def _copy(source: int, target: int, size_bytes: int) -> None:
    done = 0
    while done < size_bytes:
        count = min(CHUNK_BYTES, size_bytes - done)
        try:
            copied = os.copy_file_range(source, target, count, done, done)
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
            os.lseek(target, done, os.SEEK_SET)
            copied = os.sendfile(target, source, done, count)
        if copied == 0:
            raise OSError(errno.EIO, "the source was truncated during the copy")
        done += copied
