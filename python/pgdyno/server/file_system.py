"""File systems: sync of one, free space, locks, permissions, atomic publication."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def sync_file_system(path: Path) -> None:
    """Write back all dirty pages of the file system that contains ``path``, and wait for it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def publish(part: Path, final: Path) -> None:
    """Rename a finished directory to its final name. The step is atomic, even after a power loss."""
    sync_file_system(part)
    part.rename(final)
    descriptor = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_to_all(tree: Path) -> None:
    """Make the tree readable for the user of the servers, whatever the umask; nothing becomes writable."""
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            runs = path.is_dir() or mode & stat.S_IXUSR
            path.chmod(stat.S_IMODE(mode) | (0o555 if runs else 0o444))


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a file lock, after waiting for other holders. The end of the process releases it, too."""
    descriptor = _open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold a file lock if it is free. Yields whether it was free."""
    descriptor = _open_lock(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            free = False
        yield free
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def free_bytes(path: Path) -> int:
    """Return the free bytes of the file system of ``path`` or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
