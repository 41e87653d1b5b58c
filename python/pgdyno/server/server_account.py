"""The account that servers run as, and directories that it can reach.

PostgreSQL refuses to run as root. As root pgdyno therefore runs its servers as the user behind sudo, else as
``postgres``, else as ``nobody``. That user must be able to reach the files: nothing that pgdyno did not
create is ever made more open for it, so the cache moves to a place that is open already.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import UsageError

SHARED_CACHE = Path("/var/cache/pgdyno")


@dataclass(frozen=True)
class Account:
    """The operating system's user that servers run as. ``switch``: pgdyno itself is another one (root)."""

    name: str
    uid: int
    gid: int
    switch: bool

    def own(self, path: Path) -> None:
        """Give a file or directory that pgdyno created to this user."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_reach(self, path: Path) -> bool:
        """Whether this user may pass through every directory that leads to ``path`` (those that exist)."""
        return all(self._may_enter(folder) for folder in path.resolve().parents if folder.is_dir())

    def _may_enter(self, folder: Path) -> bool:
        found = folder.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def server_account(environ: Mapping[str, str] = os.environ) -> Account:
    """The user that servers run as: ourselves, or as root an unprivileged one. Raises UsageError: none
    found.
    """
    if os.geteuid() != 0:
        entry = pwd.getpwuid(os.geteuid())
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=False)
    for entry in _candidates(environ):
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)
    raise UsageError(
        "PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[pwd.struct_passwd]:
    behind_sudo = environ.get("SUDO_UID", "")
    if behind_sudo.isdigit():
        with contextlib.suppress(KeyError):
            yield pwd.getpwuid(int(behind_sudo))
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            yield pwd.getpwnam(name)


def cache_root(account: Account, environ: Mapping[str, str] = os.environ) -> Path:
    """Where pgdyno keeps builds, datasets and running servers.

    ``PGDYNO_CACHE``, else ``$XDG_CACHE_HOME/pgdyno``, else ``~/.cache/pgdyno``; but as root, where the
    servers' user cannot reach the default (``/root`` is closed), ``/var/cache/pgdyno``. Raises UsageError
    where ``PGDYNO_CACHE`` names a place out of that user's reach.
    """
    chosen = environ.get("PGDYNO_CACHE")
    if chosen:
        path = Path(chosen).expanduser().absolute()
        if not account.can_reach(path):
            raise UsageError(
                f"PGDYNO_CACHE={path} cannot be reached by the user {account.name}, "
                "as which the servers run: choose a directory whose parents are open to it"
            )
        return path
    home = environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    path = Path(home).absolute() / "pgdyno"
    return path if account.can_reach(path) else SHARED_CACHE


def free_bytes(path: Path) -> int:
    """What the file system under ``path`` (or its nearest existing parent) can still hold."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
