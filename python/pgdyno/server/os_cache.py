"""The operating system's cache of a data directory: how much of it is there, and getting it out of it.

For the files of one directory only, without root, and without harm to other programs: the kernel's switch for
the whole machine (drop_caches) is never touched. The server must be stopped: its own cache is another matter.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)


def drop(data_dir: Path) -> float:
    """Writes back what is dirty and has the kernel forget the content of all files under a directory, links
    followed (a WAL or tablespaces elsewhere).

    Returns the share that it has kept in memory all the same: 0 on a disk, 1 on a file system in memory.
    """
    for path in files(data_dir):
        with _opened(path) as descriptor:
            os.fdatasync(descriptor)  # a dirty page stays
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(data_dir)


def resident_share(data_dir: Path) -> float:
    """Of the pages of all files under a directory: how many are in memory, 0 to 1; 1 where there are none."""
    resident = total = 0
    for path in files(data_dir):
        with _opened(path) as descriptor:
            if size := os.fstat(descriptor).st_size:
                pages = _resident_pages(descriptor, size)
                resident += int(np.count_nonzero(pages))
                total += len(pages)
    return resident / total if total else 1.0


def files(data_dir: Path) -> Iterator[Path]:
    """All regular files under a directory, links to directories followed."""
    for directory, _, names in os.walk(data_dir, followlinks=True):
        for name in names:
            path = Path(directory, name)
            if path.is_file():
                yield path


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _resident_pages(descriptor: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each page is in memory: mincore(2), which reads none."""
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
        found = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        content = np.frombuffer(mapped, dtype=np.uint8)
        status = _libc.mincore(
            ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)
        )
        del content  # or the mapping could not be ended
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return (found & 1).astype(np.bool_)
