"""Directories in use: live data directories and socket directories, and cleanup after dead owners.

with runs.open("arm-0") as run:                  # a private directory, kept for the whole study
    restore(dataset.snapshot, run.data_dir, account)
    with Cluster(build, run.data_dir, account, run.log_path).start(settings) as server: ...
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgdyno.server.disk_release import release_disks
from pgdyno.server.file_system import locked, locked_if_free
from pgdyno.server.server_account import Account
from pgdyno.server.server_process import clear_after_kill

PORT = 5432  # only part of the socket name: the server does not listen on the network
# The path of a socket has at most 107 bytes (sun_path). A longer TMPDIR is replaced by /tmp.
SOCKET_PATH_BYTES_MAX = 107
SOCKET_PREFIX = "pgdyno-socket-"
UNFINISHED_S = 60.0
"""Age after which a directory with its temporary name is abandoned. The creator renames it within
milliseconds."""


@dataclass(frozen=True)
class SocketDirectory:
    """Private directory of the socket of one server.

    Its creator holds a lock on it while it lives. A directory without a lock is abandoned.
    """

    path: Path
    lock: int  # a descriptor, open while the directory exists

    @classmethod
    def create(cls, account: Account) -> Self:
        """Create a directory that only the user of the servers can enter, with a short path for the
        socket."""
        # Locked under a name that no cleanup removes, and then renamed, so it is never without a lock.
        path = Path(tempfile.mkdtemp(prefix=f".{SOCKET_PREFIX}", dir=_parent(account)))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        account.own(path)
        return cls(path.rename(path.with_name(path.name[1:])), lock)

    def settings(self) -> dict[str, str]:
        """Return the settings with which a server listens only here."""
        return {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.path),
            "unix_socket_permissions": "0700",
        }

    def remove(self) -> None:
        """Delete the directory with its content. Safe to call twice."""
        if self.path.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                os.close(self.lock)


def sweep(account: Account) -> list[Path]:
    """Remove the socket directories of killed pgdynos. Return their paths."""
    return [path for path in _ours(account) if _remove_if_dead(path)]


def _ours(account: Account) -> Iterator[Path]:
    """Yield the socket directories of the user of the servers; those of other users are not opened. A
    directory with its temporary name counts only if it is older than UNFINISHED_S.
    """
    parent = _parent(account)
    for path in (*sorted(parent.glob(f"{SOCKET_PREFIX}*")), *sorted(parent.glob(f".{SOCKET_PREFIX}*"))):
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
        return False  # its owner removed it
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


OWNER = "owner.lock"
PREFIX = "run-"
END_TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class LiveDirectory:
    """One live directory: a data directory, and the server log next to it."""

    path: Path

    @property
    def data_dir(self) -> Path:
        """Data directory for ``restore`` and ``Cluster``."""
        return self.path / "data"

    @property
    def log_path(self) -> Path:
        """Server log for ``Cluster``. Copy it to the results file before the run ends."""
        return self.path / "server.log"


@dataclass(frozen=True)
class Runs:
    """The live directories in one directory of the cache."""

    directory: Path
    account: Account

    @contextlib.contextmanager
    def open(self, label: str) -> Iterator[LiveDirectory]:
        """Create a directory and remove it at the end. Its servers must be stopped before that."""
        with locked(self.directory / ".sweep.lock", shared=True):  # no cleanup between creation and lock
            path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{label}-", dir=self.directory))
            owning = contextlib.ExitStack()
            owning.enter_context(locked(path / OWNER))
        if self.account.switch:
            path.chmod(0o711)  # the user of the servers needs access to its data directory
        try:
            with owning:
                yield LiveDirectory(path)
        finally:
            clear_after_kill(path / "data", self.account)
            _remove(path)

    def sweep(self, *, dry_run: bool = False) -> list[Path]:
        """Stop the servers of owners that have ended and remove their directories. Return the paths."""
        swept = []
        with locked(self.directory / ".sweep.lock"):
            for path in sorted(self.directory.glob(f"{PREFIX}*")):
                with locked_if_free(path / OWNER) as free:
                    if not free:
                        continue
                    swept.append(path)
                    if not dry_run:
                        end_postmaster(path / "data")
                        clear_after_kill(path / "data", self.account)
                        _remove(path)
        return swept


def _remove(path: Path) -> None:
    """Delete a directory and its simulated disks. It stays if a disk cannot be removed: its files are in use,
    and the next cleanup tries again.
    """
    if not release_disks(path):
        shutil.rmtree(path, ignore_errors=True)


def end_postmaster(data_dir: Path) -> None:
    """Stop the server on that directory immediately, if one runs, and wait for its end.

    The process ID in postmaster.pid may belong to another program by now. The working directory of a
    postmaster is its data directory; other processes are not signaled.
    """
    try:
        pid = int((data_dir / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return
    try:
        if not Path(f"/proc/{pid}/cwd").samefile(data_dir):
            return
        for number in (signal.SIGQUIT, signal.SIGKILL):
            signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], END_TIMEOUT_MS / 1000)[0]:
                return
    except OSError:
        return  # it has ended meanwhile
    finally:
        os.close(descriptor)
