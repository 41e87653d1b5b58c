"""Copies of files in place that write only what differs."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

# linux/fs.h: make the target share the source's blocks (btrfs, xfs).
FICLONE = 0x40049409
CHUNK_BYTES = 2**30  # a call copies at most 2 GiB; smaller chunks allow an interrupt in between
BLOCK_BYTES = 8192  # unit of comparison: the block size of nearly all servers. Correct for any other
COMPARED_BYTES = (
    2**22
)  # compared at once; smaller pieces pass the interpreter lock between threads more often

_NO_REFLINK = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
_NO_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


def copy_bytes(source: Path, target: Path, size_bytes: int) -> int:
    """Make the content of the target equal to the source. Return the number of bytes written.

    In place, the file keeps its blocks on disk: the layout is the same in every trial, and no block is freed
    and allocated again. Blocks that are equal already are only read. Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with source.open("rb", buffering=0) as reading:
        descriptor = os.open(target, flags, 0o600)
        try:
            written = size_bytes
            if not _share_blocks(reading.fileno(), descriptor):
                common_bytes = min(size_bytes, os.fstat(descriptor).st_size) // BLOCK_BYTES * BLOCK_BYTES
                written = _copy_unequal_blocks(reading.fileno(), descriptor, common_bytes)
                _copy(reading.fileno(), descriptor, common_bytes, size_bytes)
                written += size_bytes - common_bytes
            # Only if it was longer: ext4 starts a transaction for each truncation, even to the same size.
            if os.fstat(descriptor).st_size > size_bytes:
                os.ftruncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)
    return written


def _share_blocks(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_REFLINK:
            raise
        return False
    return True


def _copy_unequal_blocks(source: int, target: int, size_bytes: int) -> int:
    """Copy the blocks that differ among the first bytes of two files. Return the number of bytes written."""
    buffer_bytes, written = min(COMPARED_BYTES, size_bytes), 0
    wanted, found = bytearray(buffer_bytes), bytearray(buffer_bytes)
    for offset in range(0, size_bytes, COMPARED_BYTES):
        count = min(COMPARED_BYTES, size_bytes - offset)
        _read(source, memoryview(wanted)[:count], offset)
        _read(target, memoryview(found)[:count], offset)
        unequal = (_words(wanted, count) != _words(found, count)).any(axis=1)
        for first, end in _runs(unequal):
            written += _write(
                target,
                memoryview(wanted)[first * BLOCK_BYTES : end * BLOCK_BYTES],
                offset + first * BLOCK_BYTES,
            )
    return written


def _words(content: bytearray, count: int) -> npt.NDArray[np.uint64]:
    """Return the first bytes as blocks of words, without a copy. Shape (blocks, words of a block)."""
    return np.frombuffer(content, np.uint64, count // 8).reshape(-1, BLOCK_BYTES // 8)


def _runs(chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the first index and the end of each run of chosen elements."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).tolist()
    yield from zip(edges[::2], edges[1::2], strict=True)


def _read(descriptor: int, into: memoryview, offset: int) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], offset + done)
        if count == 0:
            raise _truncated()
        done += count


def _write(descriptor: int, content: memoryview, offset: int) -> int:
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], offset + done)
    return done


def _copy(source: int, target: int, done: int, size_bytes: int) -> None:
    """Copy the bytes from ``done`` on, inside the kernel."""
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
            raise _truncated()
        done += copied


def _truncated() -> OSError:
    return OSError(errno.EIO, "a file was truncated during the copy")
