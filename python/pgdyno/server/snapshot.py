"""Snapshot: a data directory after a clean shutdown, and its file list. ``restore`` returns to it."""

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


class State(IntEnum):
    """``DBState`` of pg_control.h."""

    STARTUP = 0
    SHUT_DOWN = 1
    SHUT_DOWN_IN_RECOVERY = 2
    SHUTTING_DOWN = 3
    IN_CRASH_RECOVERY = 4
    IN_ARCHIVE_RECOVERY = 5
    IN_PRODUCTION = 6


def state_of(data_dir: Path) -> State:
    """Raises DatasetError when the file is missing or makes no sense."""
    path = data_dir / "global" / "pg_control"
    try:
        with path.open("rb") as control:
            return State(_HEAD.unpack(control.read(_HEAD.size))[3])
    except (OSError, struct.error, ValueError) as error:
        raise DatasetError(f"{path} does not describe a data directory: {error}") from error


def require_clean(data_dir: Path) -> None:
    """Raises DatasetError unless the server that ran there last was shut down cleanly."""
    state = state_of(data_dir)
    if state is not State.SHUT_DOWN:
        raise DatasetError(f"{data_dir} was not shut down cleanly (state: {state.name.lower()})")
    if (data_dir / "postmaster.pid").exists():
        raise DatasetError(f"{data_dir} has a postmaster.pid: a server may be running on it")


# What a server writes anew at each start; never a part of a snapshot.
TRANSIENT = frozenset({"postmaster.pid", "postmaster.opts", "pgdyno.conf"})


@dataclass(frozen=True)
class Entry:
    """A file or directory of a snapshot. ``mode`` has the permission bits; a directory's size is 0."""

    is_directory: bool
    size_bytes: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True)
class Snapshot:
    """A pristine data directory and what lies in it, by path relative to it, directories before their
    content.
    """

    data_dir: Path
    entries: Mapping[str, Entry]

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(entry.size_bytes for entry in self.entries.values())

    def manifest(self) -> dict[str, list[Any]]:
        """For a JSON file; see ``from_manifest``."""
        return {path: list(asdict(entry).values()) for path, entry in self.entries.items()}


def from_manifest(data_dir: Path, manifest: Mapping[str, list[Any]]) -> Snapshot:
    """The snapshot that ``manifest`` describes. Raises DatasetError when the directory is not (any more)
    that.
    """
    snapshot = Snapshot(data_dir, {path: Entry(*values) for path, values in manifest.items()})
    found = take(data_dir)
    unlike = unlike_paths(snapshot.entries, found.entries)
    if unlike:
        raise DatasetError(f"the snapshot {data_dir} was changed after it was made: {some(unlike)}")
    return snapshot


def take(data_dir: Path) -> Snapshot:
    """A snapshot of a cleanly stopped data directory, where it lies. Raises DatasetError."""
    require_clean(data_dir)
    entries = {}
    for path, found in walk(data_dir):
        directory = stat.S_ISDIR(found.st_mode)
        if not directory and not stat.S_ISREG(found.st_mode):
            raise DatasetError(
                f"{data_dir / path} is a link or device: tablespaces and moved WAL are not supported"
            )
        size_bytes = 0 if directory else found.st_size
        mtime_ns = 0 if directory else found.st_mtime_ns
        entries[path] = Entry(directory, size_bytes, mtime_ns, stat.S_IMODE(found.st_mode))
    return Snapshot(data_dir, entries)


def unlike_paths(expected: Mapping[str, Entry], found: Mapping[str, Entry]) -> list[str]:
    """The paths at which two sets of entries differ, sorted."""
    return sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))


def walk(data_dir: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Relative path and status of everything but the transient files, a directory before its content."""
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


def some(paths: list[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
