"""Snapshot: a data directory after a clean shutdown, and its file list. See ``restore``."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from pgdyno.errors import DatasetError

# pg_control.h, the same from PostgreSQL 9.6 on: uint64 system_identifier, uint32 pg_control_version,
# uint32 catalog_version_no, DBState state (an int).
_HEAD = struct.Struct("=QIIi")


class ClusterState(IntEnum):
    """``DBState`` of pg_control.h."""

    STARTUP = 0
    SHUT_DOWN = 1
    SHUT_DOWN_IN_RECOVERY = 2
    SHUTTING_DOWN = 3
    IN_CRASH_RECOVERY = 4
    IN_ARCHIVE_RECOVERY = 5
    IN_PRODUCTION = 6


def state_of(data_dir: Path) -> ClusterState:
    """Return the state in pg_control. Raises DatasetError if the file is missing or invalid."""
    path = data_dir / "global" / "pg_control"
    try:
        with path.open("rb") as control:
            return ClusterState(_HEAD.unpack(control.read(_HEAD.size))[3])
    except (OSError, struct.error, ValueError) as error:
        raise DatasetError(f"{path} is not a valid control file: {error}") from error


def require_clean(data_dir: Path) -> None:
    """Raise DatasetError unless the last server on that directory was shut down cleanly."""
    state = state_of(data_dir)
    if state is not ClusterState.SHUT_DOWN:
        raise DatasetError(f"{data_dir} was not shut down cleanly (state: {state.name.lower()})")
    if (data_dir / "postmaster.pid").exists():
        raise DatasetError(f"{data_dir} contains a postmaster.pid: a server may be running on it")


# Files that a server writes at each start. They are never part of a snapshot.
TRANSIENT = frozenset({"postmaster.pid", "postmaster.opts", "pgdyno.conf"})


@dataclass(frozen=True)
class SnapshotEntry:
    """A file or directory of a snapshot. ``mode`` has the permission bits. A directory has size 0."""

    is_directory: bool
    size_bytes: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True)
class Snapshot:
    """A data directory and its entries by relative path, directories before their content."""

    data_dir: Path
    entries: Mapping[str, SnapshotEntry]

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(entry.size_bytes for entry in self.entries.values())

    def manifest(self) -> dict[str, list[Any]]:
        """Return the entries for a JSON file; see ``from_manifest``."""
        return {path: list(asdict(entry).values()) for path, entry in self.entries.items()}


def from_manifest(data_dir: Path, manifest: Mapping[str, list[Any]]) -> Snapshot:
    """Return the snapshot that ``manifest`` describes. Raises DatasetError if the directory differs."""
    snapshot = Snapshot(data_dir, {path: SnapshotEntry(*values) for path, values in manifest.items()})
    found = take(data_dir)
    unlike = different_paths(snapshot.entries, found.entries)
    if unlike:
        raise DatasetError(f"the snapshot {data_dir} was modified: {first_paths(unlike)}")
    return snapshot


def take(data_dir: Path) -> Snapshot:
    """Return a snapshot of a cleanly stopped data directory, without a copy. Raises DatasetError."""
    require_clean(data_dir)
    entries = {}
    for path, found in walk(data_dir):
        directory = stat.S_ISDIR(found.st_mode)
        if not directory and not stat.S_ISREG(found.st_mode):
            raise DatasetError(
                f"{data_dir / path} is a link or device: tablespaces and a WAL directory elsewhere "
                "are not supported"
            )
        size_bytes = 0 if directory else found.st_size
        mtime_ns = 0 if directory else found.st_mtime_ns
        entries[path] = SnapshotEntry(directory, size_bytes, mtime_ns, stat.S_IMODE(found.st_mode))
    return Snapshot(data_dir, entries)


def different_paths(expected: Mapping[str, SnapshotEntry], found: Mapping[str, SnapshotEntry]) -> list[str]:
    """Return the paths at which two sets of entries differ, sorted."""
    return sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))


def walk(data_dir: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative path and status of all but the transient files, a directory before its content."""
    yield ".", data_dir.lstat()
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(data_dir / prefix) as listing:
            for found in sorted(listing, key=lambda item: item.name):
                path = prefix + found.name
                if path in TRANSIENT:
                    continue
                yield path, found.stat(follow_symlinks=False)
                if found.is_dir(follow_symlinks=False):
                    pending.append(path + "/")


def first_paths(paths: list[str]) -> str:
    """Return the first paths and the number of the others, for a message."""
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
