"""The cache: one directory with a room for each kind of thing that pgdyno keeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgdyno.errors import UsageError
from pgdyno.server.datasets import Datasets
from pgdyno.server.fetch import Progress, Store
from pgdyno.server.runs import Runs
from pgdyno.server.sockets import sweep as sweep_sockets
from pgdyno.server.user import Account, cache_root, server_account

ROOMS = ("builds", "lists", "catalogues", "datasets", "runs")


@dataclass(frozen=True)
class Cache:
    """Where things lie. ``open`` makes the rooms.

    ``builds``: embedded builds. ``lists``: what the sources have, for a day. ``catalogues``: each build's
    settings. ``datasets``: pristine snapshots. ``runs``: live data directories, each with its owner's lock.
    """

    root: Path
    account: Account

    @classmethod
    def open(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The user's cache, its rooms made. Raises UsageError: it cannot be made or
        reached.
        """
        account = server_account(environ)
        root = cache_root(account, environ)
        try:
            return cls.at(root, account)
        except OSError as error:
            raise UsageError(_no_cache(root, error, environ)) from error

    @classmethod
    def at(cls, root: Path, account: Account) -> Self:
        """A cache in a place of one's own."""
        for room in (root, *(root / name for name in ROOMS)):
            _make(room, account)
        return cls(root, account)

    @property
    def builds(self) -> Path:
        """The room of embedded builds."""
        return self.root / "builds"

    @property
    def catalogues(self) -> Path:
        """The room of settings, a file per build."""
        return self.root / "catalogues"

    @property
    def datasets(self) -> Path:
        """The room of pristine snapshots."""
        return self.root / "datasets"

    @property
    def runs(self) -> Path:
        """The room of live data directories."""
        return self.root / "runs"

    def dataset_room(self) -> Datasets:
        """The datasets in this cache."""
        return Datasets(self.datasets, self.account)

    def run_room(self) -> Runs:
        """The live directories in this cache."""
        return Runs(self.runs, self.account)

    def sweep(self) -> None:
        """Stop the servers of pgdynos that are gone, and remove what they left. Call it when a study
        begins.
        """
        self.run_room().sweep()
        self.dataset_room().sweep()
        sweep_sockets(self.account)

    def store(self, progress: Progress | None = None) -> Store:
        """The store of embedded builds in this cache."""
        store = Store(self.builds, self.root / "lists")
        if progress is not None:
            store.progress = progress
        return store


def _no_cache(root: Path, error: OSError, environ: Mapping[str, str]) -> str:
    place = f"PGDYNO_CACHE={root}" if environ.get("PGDYNO_CACHE") else f"the cache {root}"
    why = f"{error.filename} is a file" if isinstance(error, FileExistsError) else error.strerror
    return f"{place} cannot be used: {why}: set PGDYNO_CACHE to a directory that you may write to"


def _make(path: Path, account: Account) -> None:
    """Create a directory and its missing parents; those that we create as root are open to the servers'
    user.
    """
    if path.is_dir():
        return
    _make(path.parent, account)
    path.mkdir(exist_ok=True)
    if account.switch:
        path.chmod(0o755)
