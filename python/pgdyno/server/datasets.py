"""Datasets: a workload loaded at one scale on one build, made once and kept as a pristine snapshot.

    key = DatasetKey(build.build_id, InitOptions(), "tpcc", {"warehouses": 10}, seed=1, format="1")
    with datasets.hold(key, make) as dataset:        # make(data_dir): initdb, start, load, stop
        restore(dataset.snapshot, run.data_dir, account)

A dataset appears under its name only when it is whole. Two processes that want the same one make it once;
while one holds it, no other can prune it.
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
from dataclasses import asdict, dataclass
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
"""The locks that this process holds, shared, and how often: to take one alone it would wait for itself."""

REMOVE_TIMEOUT_S = 5.0
"""How long a directory is removed again and again: initdb, when its pgdyno was killed, ends its current step,
which takes a second or two, and then removes what it made."""

MANIFEST = "manifest.json"
LAYOUT = 1  # of the dataset's directory; another number is another dataset


@dataclass(frozen=True)
class DatasetKey:
    """What makes two datasets the same. ``scale``: the parameters that shape the workload's data;
    ``format``: what its loader writes, as the engine tells. ``label`` is for people, and makes no difference.
    """

    build_id: str
    init: InitOptions
    workload: str
    scale: Mapping[str, int | str]
    seed: int
    format: str
    label: str = ""

    def facts(self) -> dict[str, Any]:
        """For the manifest and evidence."""
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
        """The directory's name: what a person can read of it, and a digest of all of it."""
        digest = hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()[:8]
        return "-".join(part for part in (self.workload, self.label, self.build_id, digest) if part)


@dataclass(frozen=True)
class Dataset:
    """A dataset that is whole, and held while its ``with`` lasts."""

    name: str
    path: Path
    snapshot: Snapshot
    facts: Mapping[str, Any]
    made_s: float  # how long making it took


@dataclass(frozen=True)
class Datasets:
    """The datasets in one directory of the cache."""

    room: Path
    account: Account

    @contextlib.contextmanager
    def hold(self, key: DatasetKey, make: Callable[[Path], None]) -> Iterator[Dataset]:
        """The dataset, made if it is not there.

        ``make`` gets the path of a data directory to create, load and leave cleanly shut down. If it fails,
        nothing is left. A damaged dataset (changed or incomplete files) is made again. Raises DatasetError.
        """
        with self._shared(key.name) as dataset:
            if dataset is not None:
                yield self._touched(dataset)
                return
        if _held[self._lock(key.name)]:
            raise DatasetError(
                f"the dataset {key.name} was damaged while this study uses it: find out what changes files "
                f"in {self.room}, and start again"
            )
        with locked(self._lock(key.name)):
            if self._read(key.name) is None:
                self._make(key, make)
        # The lock cannot be made shared without a gap, in which another process may prune: once more then.
        with self._shared(key.name) as dataset:
            if dataset is None:
                raise DatasetError(
                    f"the dataset {key.name} vanished after it was made: another pgdyno pruned it"
                )
            yield self._touched(dataset)

    @contextlib.contextmanager
    def _shared(self, name: str) -> Iterator[Dataset | None]:
        """The dataset, if it is whole, held with others."""
        lock = self._lock(name)
        with locked(lock, shared=True):
            _held[lock] += 1
            try:
                yield self._read(name)
            finally:
                _held[lock] -= 1

    def _make(self, key: DatasetKey, make: Callable[[Path], None]) -> None:
        part, final = self.room / f".{key.name}.part", self.room / key.name
        self._discard(part)
        _remove(final)
        part.mkdir()
        if self.account.switch:
            part.chmod(0o755)
        start = time.monotonic()
        try:
            make(part / "data")
            snapshot = take(part / "data")
            facts = {
                "key": key.facts(),
                "made_s": time.monotonic() - start,
                "size_bytes": snapshot.size_bytes,
                "entries": snapshot.manifest(),
            }
            (part / MANIFEST).write_text(json.dumps(facts))
            publish(part, final)
        finally:
            self._discard(part)

    def _read(self, name: str) -> Dataset | None:
        path = self.room / name
        try:
            facts = json.loads((path / MANIFEST).read_text())
            snapshot = from_manifest(path / "data", facts["entries"])
            return Dataset(name, path, snapshot, facts["key"], facts["made_s"])
        except (OSError, ValueError, KeyError, TypeError, DatasetError):
            return None

    def _touched(self, dataset: Dataset) -> Dataset:
        with contextlib.suppress(OSError):
            os.utime(dataset.path / MANIFEST)  # its last use, for `cache list` and `prune`
        return dataset

    def _lock(self, name: str) -> Path:
        return self.room / f".{name}.lock"

    def names(self) -> list[str]:
        """The datasets that are there, whole or not, without half-made ones."""
        return sorted(path.name for path in self.room.iterdir() if path.is_dir() and path.name[0] != ".")

    def half_made(self) -> dict[Path, str]:
        """What was left of making or deleting a dataset, or is being made, with the dataset's name."""
        left = [*self.room.glob(".*.part"), *self.room.glob(".*.gone")]
        return {part: part.name[1:].rsplit(".", 1)[0] for part in sorted(left)}

    def remove(self, name: str) -> bool:
        """Delete a dataset and what was left of making it; False if somebody holds it."""
        with locked_if_free(self._lock(name)) as free:
            if free:
                _remove(self.room / name)
                self._discard(self.room / f".{name}.part")
            return free

    def sweep(self) -> list[str]:
        """Remove what makers that are gone left half-made; returns the names."""
        swept = []
        for part, name in self.half_made().items():
            with locked_if_free(self._lock(name)) as free:
                if free and part.exists():
                    self._discard(part)
                    swept.append(name)
        return swept

    def _discard(self, part: Path) -> None:
        """Remove what was half-made, and what a server that was killed on it has left."""
        end_postmaster(part / "data")
        clear_after_kill(part / "data", self.account)
        _remove(part)


def _remove(path: Path) -> None:
    if not path.exists():
        return
    # Renamed first: a dataset that is deleted half must not look whole.
    if path.name[0] != ".":
        path = path.rename(path.with_name(f".{path.name}.gone"))
    # An initdb whose pgdyno was killed removes its own files, at the same time as we do.
    deadline_s = time.monotonic() + REMOVE_TIMEOUT_S
    while path.exists() and time.monotonic() < deadline_s:
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)
