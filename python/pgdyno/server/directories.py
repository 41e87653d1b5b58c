"""Directories: mounts, file systems, accounts.

- The kernel's table of mounts.
- File systems: sync of one, free space, locks, permissions, atomic publication.
- Operating-system account of the servers, and directories that it can access.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.interruption import stopping

# ----------------------------------------------------------------------
# The kernel's table of mounts.
#
# Paths in it are bytes in which blank, tab, newline and backslash are octal escapes. Any other byte stands
# for itself: paths in UTF-8 are not escaped, and a path need not be UTF-8.
# ----------------------------------------------------------------------

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


# ----------------------------------------------------------------------
# File systems: sync of one, free space, locks, permissions, atomic publication.
# ----------------------------------------------------------------------

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


def renew(path: Path, text: str) -> None:
    """Replace a file atomically: after a crash it has the content before or after the change."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def discard(path: Path) -> None:
    """Delete a file or directory. A directory is renamed first: an interrupt leaves no half of it, and what
    the last step of a killed build writes meanwhile remains for the next cleanup.
    """
    if path.is_dir():
        gone = path.with_name(f".{path.name.removeprefix('.')}.{time.time_ns()}.gone")
        shutil.rmtree(path.rename(gone), ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def link_target(link: Path, prefix: str) -> Path | None:
    """Return the target of a link, which may not exist; None without a link to a name with this start."""
    with contextlib.suppress(OSError):
        found = link.readlink()
        return found if found.name.startswith(prefix) else None
    return None


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
    begun_s = time.monotonic()
    with contextlib.ExitStack() as lock:
        while not lock.enter_context(locked_if_free(path, shared=shared)):
            lock.close()
            if stopping.is_over(begun_s):  # others may hold it for hours
                raise KeyboardInterrupt
            time.sleep(LOCK_POLL_S)
        yield


LOCK_POLL_S = 0.05


@contextlib.contextmanager
def locked_if_free(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Hold a file lock if it is free. Yields whether it was free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        free = True
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            free = False
        yield free
    finally:
        os.close(descriptor)


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the user's files that cannot be recreated. It may not exist."""
    home = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(home) / "pgdyno"


def free_bytes(path: Path) -> int:
    """Return the free bytes of the file system of ``path`` or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


# ----------------------------------------------------------------------
# Operating-system account of the servers, and directories that it can access.
#
# PostgreSQL refuses to run as root. As root, pgdyno therefore runs its servers as the user who called sudo,
# else as ``postgres``, else as ``nobody``. That user must have access to the files. pgdyno never changes
# permissions of directories that it did not create, so the cache moves to an accessible directory.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """Operating-system user of the servers. ``switch``: pgdyno itself runs as another user (root).

    ``control_group``: directory of the control group that they join; empty for that of pgdyno.
    """

    name: str
    uid: int
    gid: int
    switch: bool
    control_group: str = ""

    def own(self, path: Path) -> None:
        """Change the owner of a file or directory that pgdyno created to this user."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_reach(self, path: Path) -> bool:
        """Return whether this user can enter every existing parent directory of ``path``."""
        return all(self._may_enter(folder) for folder in path.resolve().parents if folder.is_dir())

    def _may_enter(self, folder: Path) -> bool:
        if not self.switch and self.uid == os.geteuid():  # also by one of its further groups, or an ACL
            return os.access(folder, os.X_OK)
        found = folder.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


OURSELVES = Account("", -1, -1, switch=False)
"""The account of pgdyno itself, also as root: that of builds, and of tools that read the user's files."""


def server_account(environ: Mapping[str, str] = os.environ) -> Account:
    """Return the user of the servers: the current user, or as root an unprivileged one. Raises UsageError if
    none exists.
    """
    if os.geteuid() != 0:
        entry = pwd.getpwuid(os.geteuid())
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=False)
    for entry in _candidates(environ):
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)
    raise UsageError(
        "PostgreSQL cannot run as root, and neither user postgres nor nobody exists: create one of them, "
        "or run pgdyno as another user"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[pwd.struct_passwd]:
    behind_sudo = environ.get("SUDO_UID", "")
    if behind_sudo.isdigit():
        with contextlib.suppress(KeyError):
            yield pwd.getpwuid(int(behind_sudo))
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            yield pwd.getpwnam(name)
