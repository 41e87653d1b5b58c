"""Operating-system account of the servers, and directories that it can access.

PostgreSQL refuses to run as root. As root, pgdyno therefore runs its servers as the user who called sudo,
else as ``postgres``, else as ``nobody``. That user must have access to the files. pgdyno never changes
permissions of directories that it did not create, so the cache moves to an accessible directory.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import UsageError


@dataclass(frozen=True)
class Account:
    """Operating-system user of the servers. ``switch``: pgdyno itself runs as another user (root)."""

    name: str
    uid: int
    gid: int
    switch: bool

    def own(self, path: Path) -> None:
        """Change the owner of a file or directory that pgdyno created to this user."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_reach(self, path: Path) -> bool:
        """Return whether this user can enter every existing parent directory of ``path``."""
        return all(self._may_enter(folder) for folder in path.resolve().parents if folder.is_dir())

    def _may_enter(self, folder: Path) -> bool:
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
