"""The cache directory: one subdirectory per kind of content, its sizes and ages, and pruning."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pgdyno.errors import UsageError
from pgdyno.hooks import Hooks
from pgdyno.server.build_store import Progress, Store
from pgdyno.server.builds import MARK
from pgdyno.server.directories import Account, discard, locked, locked_if_free, server_account
from pgdyno.server.processes import OWNER, Runs
from pgdyno.server.processes import sweep as sweep_sockets
from pgdyno.server.snapshots import MANIFEST, Datasets

SUBDIRECTORIES = ("builds", "lists", "catalogues", "templates", "data", "datasets", "runs", "fleet")

FLEET_LOCK = ".prune.lock"
"""File in ``fleet``, locked while a directory is created there or deleted."""

SHARED_CACHE = Path("/var/cache/pgdyno")
"""The cache of root, if the user of the servers cannot access the home directory of root."""


def cache_root(account: Account, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of builds, datasets and running servers.

    ``PGDYNO_CACHE``, else ``$XDG_CACHE_HOME/pgdyno``, else ``~/.cache/pgdyno``. As root, if the user of the
    servers cannot access the default (``/root`` is closed), ``/var/cache/pgdyno``. Raises UsageError if that
    user cannot access ``PGDYNO_CACHE``, or if the path is unsuitable.
    """
    chosen = environ.get("PGDYNO_CACHE")
    if chosen:
        path = _suitable(Path(chosen).expanduser().absolute())
        if not account.can_reach(path):
            raise UsageError(
                f"PGDYNO_CACHE={path} is not accessible to the user {account.name}, who runs the servers: "
                "choose a directory with accessible parents"
            )
        return path
    home = environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    path = Path(home).absolute() / "pgdyno"
    return _suitable(path) if account.can_reach(path) else SHARED_CACHE


def _suitable(path: Path) -> Path:
    """Return the path. Raises UsageError if PostgreSQL or the results file cannot contain it."""
    if re.search(r"[\r\n\udc80-\udcff]", str(path)):
        raise UsageError(
            f"the cache {str(path)!a} contains a line break, or bytes that are not UTF-8: set "
            "PGDYNO_CACHE to a directory without them"
        )
    return path


@dataclass(frozen=True)
class Cache:
    """The cache directory. ``open`` creates its subdirectories.

    ``builds``: embedded builds and those from source. ``lists``: versions that the sources list, for a day.
    ``catalogues``: settings of each build. ``templates``: files of its initdb. ``data``: data of the user by
    name. ``datasets``: snapshots. ``runs``: live data directories, each with the lock of its owner.
    ``fleet``: files of fleet studies, until they are collected, each with the lock of its owner.
    """

    root: Path
    account: Account

    @classmethod
    def open(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Open the cache of the user; create it if missing. Raises UsageError if it is not accessible."""
        account = server_account(environ)
        root = cache_root(account, environ)
        try:
            return cls.at(root, account)
        except OSError as error:
            raise UsageError(_no_cache(root, error, environ)) from error

    @classmethod
    def at(cls, root: Path, account: Account) -> Self:
        """Open a cache in the given directory; create it if missing. Raises OSError."""
        for directory in (root, *(root / name for name in SUBDIRECTORIES)):
            _make(directory, account)
        return cls(root, account)

    @property
    def builds(self) -> Path:
        """Directory of embedded builds and those from source."""
        return self.root / "builds"

    @property
    def catalogues(self) -> Path:
        """Directory of settings, a file per build."""
        return self.root / "catalogues"

    @property
    def data(self) -> Path:
        """Directory of the user's data, a directory per name."""
        return self.root / "data"

    @property
    def datasets(self) -> Path:
        """Directory of snapshots."""
        return self.root / "datasets"

    @property
    def runs(self) -> Path:
        """Directory of live data directories."""
        return self.root / "runs"

    @property
    def fleet(self) -> Path:
        """Directory of files of fleet studies on this host, a directory per results file."""
        return self.root / "fleet"

    def cached_datasets(self) -> Datasets:
        """Return the datasets of this cache."""
        return Datasets(self.datasets, self.account)

    def templates(self) -> Datasets:
        """Return the empty clusters of this cache, one for each build and set of options of initdb."""
        return Datasets(self.root / "templates", self.account)

    def live_runs(self) -> Runs:
        """Return the live directories of this cache."""
        return Runs(self.runs, self.account)

    def sweep(self) -> None:
        """Stop the servers of killed pgdynos and remove their files. Call it when a study begins."""
        self.live_runs().sweep()
        self.cached_datasets().sweep()
        self.templates().sweep()
        sweep_sockets(self.account)

    def store(self, progress: Progress | None = None) -> Store:
        """Return the store of the builds in this cache."""
        store = Store(self.builds, self.root / "lists")
        if progress is not None:
            store.progress = progress
        return store


def _no_cache(root: Path, error: OSError, environ: Mapping[str, str]) -> str:
    place = f"PGDYNO_CACHE={root}" if environ.get("PGDYNO_CACHE") else f"the cache {root}"
    why = f"{error.filename} is a file" if isinstance(error, FileExistsError) else error.strerror
    return f"{place} cannot be used: {why}: set PGDYNO_CACHE to a writable directory"


def _make(path: Path, account: Account) -> None:
    """Create a directory and its missing parents. Directories created by root are accessible to the user of
    the servers.
    """
    if path.is_dir():
        return
    _make(path.parent, account)
    path.mkdir(exist_ok=True)
    if account.switch:
        path.chmod(0o755)


ItemKind = Literal["build", "dataset", "template", "incomplete", "run", "fleet"]


@dataclass(frozen=True)
class Item:
    """One item of the cache. ``used_unix_s``: its last use, as a file time. ``in_use``: a pgdyno holds it."""

    kind: ItemKind
    name: str
    path: Path
    size_bytes: int
    used_unix_s: float
    in_use: bool


@dataclass(frozen=True)
class Leftovers:
    """Files that killed processes of a feature leave in a directory of the cache.

    ``unfinished``: returns their paths, each with the lock of its process. ``sweep``: removes those without
    a process.
    """

    directory: str
    unfinished: Callable[[Path], Mapping[Path, Path]]
    sweep: Callable[[Path], None]


LEFTOVERS: Hooks[Leftovers] = Hooks("leftovers")


def items(cache: Cache) -> list[Item]:
    """Return builds, datasets, templates, what is incomplete, runs, and files of fleet studies, in this
    order, sorted by name.
    """
    found: list[Item] = []
    for path in sorted(cache.builds.iterdir()):
        if path.is_dir() and path.name[0] != ".":
            # Before it has MARK, its maker holds the lock beside it.
            lock = path / OWNER if (path / MARK).exists() else cache.builds / f".{path.name}.lock"
            found.append(_item("build", path, path / MARK, lock))
    made: tuple[tuple[ItemKind, Datasets], ...] = (
        ("dataset", cache.cached_datasets()),
        ("template", cache.templates()),
    )
    for kind, of in made:
        for name in of.names():
            path = of.directory / name
            found.append(_item(kind, path, path / MANIFEST, of.lock(name)))
    for left in sorted(LEFTOVERS, key=lambda left: left.directory):
        for part, lock in left.unfinished(cache.root / left.directory).items():
            found.append(_item("incomplete", part, part, lock))
    for _, of in made:
        for part, name in of.incomplete().items():
            found.append(_item("incomplete", part, part, of.lock(name)))
    for path in sorted(cache.runs.glob("run-*")):
        found.append(_item("run", path, path, path / OWNER))
    for path in sorted(cache.fleet.glob("[!.]*")):
        if path.is_dir():
            found.append(_item("fleet", path, path, path / OWNER))
    return found


def _item(kind: ItemKind, path: Path, used: Path, lock: Path) -> Item:
    with locked_if_free(lock) as free:
        used_unix_s = used.stat().st_mtime if used.exists() else 0.0
        return Item(kind, path.name, path, _size_bytes(path), used_unix_s, not free)


def _size_bytes(path: Path) -> int:
    """Return the bytes that its deletion frees."""
    total = 0
    for found in (path, *path.rglob("*")):
        try:
            total += found.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # a running server deletes files
    return total


def to_prune(
    found: list[Item], *, older_than_s: float | None, keep: int | None, now_unix_s: float
) -> list[Item]:
    """Return the items to delete, without those in use.

    Runs without an owner, incomplete builds and datasets: always. Datasets: those unused for
    ``older_than_s``, or all but the last ``keep``; with neither, all. Templates likewise, without ``keep``.
    Builds: by age only, as files of fleet studies: they are not collected yet, and a resume needs them.
    """
    datasets = sorted(
        (item for item in found if item.kind == "dataset"), key=lambda item: item.used_unix_s, reverse=True
    )
    spared = {item.name for item in datasets[: keep or 0]}
    chosen = []
    for item in found:
        old = older_than_s is not None and now_unix_s - item.used_unix_s > older_than_s
        goes = {
            "run": True,
            "incomplete": True,
            "dataset": item.name not in spared and (older_than_s is None or old),
            "template": older_than_s is None or old,
            "build": old,
            "fleet": old,
        }[item.kind]
        if goes and not item.in_use:
            chosen.append(item)
    return chosen


def prune(
    cache: Cache, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
) -> list[Item]:
    """Delete the items of ``to_prune``. Return the deleted items; with ``dry_run``, those to delete."""
    chosen = to_prune(items(cache), older_than_s=older_than_s, keep=keep, now_unix_s=time.time())
    if dry_run:
        return chosen
    cache.cached_datasets().sweep()
    cache.templates().sweep()
    for left in LEFTOVERS:
        left.sweep(cache.root / left.directory)
    swept = {path.name for path in cache.live_runs().sweep()}
    return [item for item in chosen if _delete(cache, item, swept)]


def _delete(cache: Cache, item: Item, swept: set[str]) -> bool:
    if item.kind == "run":
        return item.name in swept
    if item.kind == "incomplete":
        return not item.path.exists()
    if item.kind in ("dataset", "template"):
        of = cache.cached_datasets() if item.kind == "dataset" else cache.templates()
        return of.remove(item.name)
    if item.kind == "fleet":
        with locked(cache.fleet / FLEET_LOCK), locked_if_free(item.path / OWNER) as free:
            if free:
                shutil.rmtree(item.path, ignore_errors=True)
            return free
    lock = item.path.with_name(f".{item.name}.lock")
    with locked_if_free(lock) as made, locked_if_free(item.path / OWNER) as free:
        if made and free:
            discard(item.path)
        return made and free
