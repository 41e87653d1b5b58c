"""Datasets: a workload loaded at one scale on one build, created once and kept as a snapshot.

    key = DatasetKey(build.build_id, InitOptions(), "tpcc", {"warehouses": 10}, seed=1, format="1")
    with datasets.hold(key, make) as dataset:        # make(data_dir): initdb, start, load, stop
        restore(dataset.snapshot, run.data_dir, account)

A dataset gets its name only when it is complete. Two processes that need the same dataset create it once.
While one of them holds it, no other can prune it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pgdyno.errors import DatasetError
from pgdyno.server.cluster import InitOptions
from pgdyno.server.file_system import locked, locked_if_free, publish
from pgdyno.server.live_directories import end_postmaster
from pgdyno.server.server_account import Account
from pgdyno.server.server_process import clear_after_kill
from pgdyno.server.snapshot import Snapshot, from_manifest, take

_held: Counter[Path] = Counter()
"""Shared locks that this process holds, with their number. An exclusive lock would wait for itself."""

REMOVE_TIMEOUT_S = 5.0
"""Time limit of repeated attempts to remove a directory. After its pgdyno was killed, initdb finishes its
current step, which takes one or two seconds, and then removes its own files."""

MANIFEST = "manifest.json"
LAYOUT = 1  # version of the directory layout, part of the key of a dataset


Make = Callable[[Path], Mapping[str, Any] | None]
"""Creates a data directory; see ``Datasets.hold``."""


@dataclass(frozen=True)
class DatasetKey:
    """Identity of a dataset. ``scale``: the workload parameters that determine the data. ``format``: version
    of the loader's output, reported by the engine. ``label`` is for readers only, and not part of the
    identity.
    """

    build_id: str
    init: InitOptions
    workload: str
    scale: Mapping[str, int | str]
    seed: int
    format: str
    label: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the key for the manifest and the results file."""
        init = {name: value for name, value in asdict(self.init).items() if name != "sync"}
        return {
            "layout": LAYOUT,
            "build_id": self.build_id,
            "init": init,
            "workload": self.workload,
            "scale": dict(self.scale),
            "seed": self.seed,
            "format": self.format,
        }

    @property
    def name(self) -> str:
        """Name of the directory: a readable part, and a digest of the whole key."""
        digest = hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()[:8]
        return "-".join(part for part in (self.workload, self.label, self.build_id, digest) if part)


@dataclass(frozen=True)
class Dataset:
    """A complete dataset, held until the end of its ``with`` block."""

    name: str
    path: Path
    snapshot: Snapshot
    facts: Mapping[str, Any]
    made_s: float  # time that its creation took
    details: Mapping[str, Any] = field(default_factory=dict)  # what ``make`` returned


@dataclass(frozen=True)
class Datasets:
    """The datasets in one directory of the cache."""

    directory: Path
    account: Account

    @contextlib.contextmanager
    def hold(self, key: DatasetKey, make: Make) -> Iterator[Dataset]:
        """Hold the dataset during the block; create it if it does not exist.

        ``make`` receives the path of a data directory that it creates, loads and shuts down cleanly. It may
        return details for the manifest. If it fails, nothing remains. A damaged dataset (changed or
        incomplete files) is created again. Raises DatasetError.
        """
        with self._shared(key.name) as dataset:
            if dataset is not None:
                yield self._with_use_recorded(dataset)
                return
        if _held[self.lock(key.name)]:
            raise DatasetError(
                f"the dataset {key.name} was changed while this study uses it: stop what changes files in "
                f"{self.directory}, and start again"
            )
        with locked(self.lock(key.name)):
            if self._read(key.name) is None:
                self._make(key, make)
        # The change to a shared lock is not atomic: another process may prune in between. So read it again.
        with self._shared(key.name) as dataset:
            if dataset is None:
                raise DatasetError(
                    f"the dataset {key.name} was deleted by another pgdyno (cache prune): start again"
                )
            yield self._with_use_recorded(dataset)

    @contextlib.contextmanager
    def _shared(self, name: str) -> Iterator[Dataset | None]:
        """Hold a shared lock during the block. Yields the dataset, or None if it is missing or incomplete."""
        lock = self.lock(name)
        with locked(lock, shared=True):
            _held[lock] += 1
            try:
                yield self._read(name)
            finally:
                _held[lock] -= 1

    def _make(self, key: DatasetKey, make: Make) -> None:
        part, final = self.directory / f".{key.name}.part", self.directory / key.name
        self._discard(part)
        _remove(final)
        part.mkdir()
        if self.account.switch:
            part.chmod(0o755)
        start = time.monotonic()
        try:
            details = make(part / "data")
            snapshot = take(part / "data")
            facts = {
                "key": key.facts(),
                "made_s": time.monotonic() - start,
                "size_bytes": snapshot.size_bytes,
                "entries": snapshot.manifest(),
                "details": details or {},
            }
            (part / MANIFEST).write_text(json.dumps(facts))
            publish(part, final)
        finally:
            self._discard(part)

    def _read(self, name: str) -> Dataset | None:
        path = self.directory / name
        try:
            facts = json.loads((path / MANIFEST).read_text())
            snapshot = from_manifest(path / "data", facts["entries"])
            return Dataset(name, path, snapshot, facts["key"], facts["made_s"], facts.get("details", {}))
        except (OSError, ValueError, KeyError, TypeError, DatasetError):
            return None

    def _with_use_recorded(self, dataset: Dataset) -> Dataset:
        with contextlib.suppress(OSError):
            os.utime(dataset.path / MANIFEST)  # records the last use for `cache list` and `prune`
        return dataset

    def lock(self, name: str) -> Path:
        """Return the lock of a dataset, which its users hold."""
        return self.directory / f".{name}.lock"

    def names(self) -> list[str]:
        """Return the names of the datasets, including damaged ones, without incomplete ones."""
        return sorted(path.name for path in self.directory.iterdir() if path.is_dir() and path.name[0] != ".")

    def incomplete(self) -> dict[Path, str]:
        """Return the directories of datasets under creation or deletion, each with the name of its
        dataset."""
        left = [*self.directory.glob(".*.part"), *self.directory.glob(".*.gone")]
        return {part: part.name[1:].rsplit(".", 1)[0] for part in sorted(left)}

    def remove(self, name: str) -> bool:
        """Delete a dataset and incomplete files of it. Return False if another process holds it."""
        with locked_if_free(self.lock(name)) as free:
            if free:
                _remove(self.directory / name)
                self._discard(self.directory / f".{name}.part")
            return free

    def keep_newest(self, n: int) -> None:
        """Delete all but the n datasets used last, and those that another process holds."""
        used = {name: self._used_unix_s(name) for name in self.names()}
        for name in sorted(used, key=lambda name: used[name], reverse=True)[n:]:
            self.remove(name)

    def _used_unix_s(self, name: str) -> float:
        try:
            return (self.directory / name / MANIFEST).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def sweep(self) -> list[str]:
        """Remove incomplete datasets of processes that have ended. Return the names."""
        swept = []
        for part, name in self.incomplete().items():
            with locked_if_free(self.lock(name)) as free:
                if free and part.exists():
                    self._discard(part)
                    swept.append(name)
        return swept

    def _discard(self, part: Path) -> None:
        """Remove an incomplete dataset, and processes and shared memory of the servers killed on it."""
        for data_dir in {part / "data", *(path.parent for path in part.glob("*/postmaster.pid"))}:
            end_postmaster(data_dir)
            clear_after_kill(data_dir, self.account)
        _remove(part)


def _remove(path: Path) -> None:
    if not path.exists():
        return
    # Renamed first, so that a partly deleted dataset does not appear complete.
    if path.name[0] != ".":
        path = path.rename(path.with_name(f".{path.name}.gone"))
    # An initdb whose pgdyno was killed removes its own files at the same time.
    deadline_s = time.monotonic() + REMOVE_TIMEOUT_S
    while path.exists() and time.monotonic() < deadline_s:
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)
