"""The directories in which servers' sockets lie: private, short of path, and cleared away after the dead."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgdyno.server.user import Account

PORT = 5432  # only a part of the socket's name: nothing listens on the network
# A socket's path is at most 107 bytes (sun_path); we keep well below whatever TMPDIR says.
SOCKET_PATH_BYTES_MAX = 107
PREFIX = "pgdyno-socket-"
UNFINISHED_S = 60.0
"""A directory that is this old and still has the name that it is made under has lost its maker: giving it its
final name takes milliseconds."""


@dataclass(frozen=True)
class SocketDirectory:
    """The private directory in which one server's socket lies.

    Its maker holds a lock on it for as long as it lives: that tells the dead ones from the living.
    """

    path: Path
    lock: int  # a descriptor, open while the directory is there

    @classmethod
    def create(cls, account: Account) -> Self:
        """A fresh directory that only the servers' user may enter, with a path short enough for a socket."""
        # Locked under a name that no sweep looks for, and then renamed: there is no moment without a lock.
        path = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=_parent(account)))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        account.own(path)
        return cls(path.rename(path.with_name(path.name[1:])), lock)

    def settings(self) -> dict[str, str]:
        """The settings that make a server listen here, and nowhere else."""
        return {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.path),
            "unix_socket_permissions": "0700",
        }

    def remove(self) -> None:
        """Delete the directory with what the server left in it. Safe to call twice."""
        if self.path.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                os.close(self.lock)


def sweep(account: Account) -> list[Path]:
    """Remove the directories of pgdynos that are gone (``kill -9`` leaves them); returns these."""
    return [path for path in _ours(account) if _remove_if_dead(path)]


def _ours(account: Account) -> Iterator[Path]:
    """Those of the servers' user: nobody else's directory is ever looked into. One that is still being made
    may be ours yet; it counts only when it is too old for that.
    """
    parent = _parent(account)
    for path in (*sorted(parent.glob(f"{PREFIX}*")), *sorted(parent.glob(f".{PREFIX}*"))):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        unfinished = path.name[0] == "."
        owners = {account.uid, os.geteuid()} if unfinished else {account.uid}
        if unfinished and time.time() - found.st_mtime < UNFINISHED_S:
            continue
        if path.is_dir() and not path.is_symlink() and found.st_uid in owners:
            yield path


def _remove_if_dead(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # it went by itself
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)


def _parent(account: Account) -> Path:
    parent = Path(tempfile.gettempdir())
    too_long = len(os.fsencode(parent)) > SOCKET_PATH_BYTES_MAX - 40
    return Path("/tmp") if too_long or not account.can_reach(parent / "x") else parent
