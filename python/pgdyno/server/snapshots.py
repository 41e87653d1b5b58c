"""Snapshots: datasets, copies of files, restores, and the page cache before a trial.

- Copies of files in place that write only what differs.
- Snapshot: a data directory after a clean shutdown, and its file list. See ``restore``.
- Restore of a live data directory from a snapshot.
- Page cache and shared buffers before a trial: eviction and prewarming of a data directory.
- Datasets: a workload loaded at one scale on one build, created once and kept as a snapshot.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import mmap
import os
import re
import shutil
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.rows import namedtuple_row

from pgdyno.errors import DatasetError, DiskFullError
from pgdyno.server.directories import Account, free_bytes, locked, locked_if_free, publish, sync_file_system
from pgdyno.server.processes import Connection, InitOptions, clear_after_kill, end_postmaster, is_on
from pgdyno.units import format_size

# ----------------------------------------------------------------------
# Copies of files in place that write only what differs.
# ----------------------------------------------------------------------

# linux/fs.h: make a range of the target share the source's blocks (btrfs, xfs).
FICLONERANGE = 0x4020940D
CHUNK_BYTES = 2**30  # a call copies at most 2 GiB; smaller chunks allow an interrupt in between
BLOCK_BYTES = 8192  # unit of comparison: the block size of nearly all servers. Correct for any other
COMPARED_BYTES = 2**18  # compared at once: the blocks of both files fit into the L2 cache of a core
_UNEQUAL_BLOCKS = re.compile(b"\x01+")

_NO_REFLINK = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
_NO_COPY_RANGE = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


def copy_bytes(source: Path, target: Path, end: int, start: int = 0) -> int:
    """Make the bytes from start to end of the target equal to the source. Return the number of bytes written.

    In place, the file keeps its blocks on disk: the layout is the same in every trial, and no block is freed
    and allocated again. Blocks that are equal already are only read. ``start`` is a multiple of their size.
    Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with source.open("rb", buffering=0) as reading:
        descriptor = os.open(target, flags, 0o600)
        try:
            if _share_blocks(reading.fileno(), descriptor, start, end):
                return end - start
            common_end = max(start, min(end, os.fstat(descriptor).st_size) // BLOCK_BYTES * BLOCK_BYTES)
            written = _copy_unequal_blocks(reading.fileno(), descriptor, start, common_end)
            _copy(reading.fileno(), descriptor, common_end, end)
        finally:
            os.close(descriptor)
    return written + end - common_end


def _share_blocks(source: int, target: int, start: int, end: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONERANGE, struct.pack("=qQQQ", source, start, end - start, start))
    except OSError as error:
        if error.errno not in _NO_REFLINK:
            raise
        return False
    return True


def _copy_unequal_blocks(source: int, target: int, start: int, end: int) -> int:
    """Copy the blocks that differ in a range of two files. Return the number of bytes written."""
    buffer_bytes, written = min(COMPARED_BYTES, end - start), 0
    wanted, found = bytearray(buffer_bytes), bytearray(buffer_bytes)
    for offset in range(start, end, COMPARED_BYTES):
        count = min(COMPARED_BYTES, end - offset)
        _read(source, memoryview(wanted)[:count], offset)
        _read(target, memoryview(found)[:count], offset)
        if wanted == found:  # much faster than the search for unequal blocks
            continue
        unequal = (_words(wanted, count) != _words(found, count)).any(axis=1)
        for run in _UNEQUAL_BLOCKS.finditer(unequal.tobytes()):
            at, past = (block * BLOCK_BYTES for block in run.span())
            written += _write(target, memoryview(wanted)[at:past], offset + at)
    return written


def _words(content: bytearray, count: int) -> npt.NDArray[np.uint64]:
    """Return the first bytes as blocks of words, without a copy. Shape (blocks, words of a block)."""
    return np.frombuffer(content, np.uint64, count // 8).reshape(-1, BLOCK_BYTES // 8)


def _read(descriptor: int, into: memoryview, offset: int) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], offset + done)
        if count == 0:
            raise _truncated()
        done += count


def _write(descriptor: int, content: memoryview, offset: int) -> int:
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], offset + done)
    return done


def _copy(source: int, target: int, done: int, size_bytes: int) -> None:
    """Copy the bytes from ``done`` on, inside the kernel."""
    while done < size_bytes:
        count = min(CHUNK_BYTES, size_bytes - done)
        try:
            copied = os.copy_file_range(source, target, count, done, done)
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
            os.lseek(target, done, os.SEEK_SET)
            copied = os.sendfile(target, source, done, count)
        if copied == 0:
            raise _truncated()
        done += copied


def _truncated() -> OSError:
    return OSError(errno.EIO, "a file was truncated during the copy")


# ----------------------------------------------------------------------
# Snapshot: a data directory after a clean shutdown, and its file list. See ``restore``.
# ----------------------------------------------------------------------

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
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            raise DatasetError(
                f"{data_dir / path} is a link or device: tablespaces and a WAL directory elsewhere "
                "are not supported"
            )
        entries[path] = _entry(found)
    return Snapshot(data_dir, entries)


def _entry(found: os.stat_result) -> SnapshotEntry:
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return SnapshotEntry(True, 0, 0, mode)
    return SnapshotEntry(False, found.st_size, found.st_mtime_ns, mode)


def different_paths(expected: Mapping[str, SnapshotEntry], found: Mapping[str, SnapshotEntry]) -> list[str]:
    """Return the paths at which two sets of entries differ, sorted."""
    return sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))


WAL = "pg_wal"
"""Directory of the WAL. In a live data directory it may be a link to a directory on another disk."""


def walk(data_dir: Path, linked: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative path and status of all but the transient files, a directory before its content.

    ``linked``: a path that may be a link to a directory, and counts as that directory.
    """
    yield ".", data_dir.lstat()
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(data_dir / prefix) as listing:
            for found in sorted(listing, key=lambda item: item.name):
                path = prefix + found.name
                if path in TRANSIENT:
                    continue
                follow = path == linked and found.is_dir()
                yield path, found.stat(follow_symlinks=follow)
                if found.is_dir(follow_symlinks=follow):
                    pending.append(path + "/")


def first_paths(paths: list[str]) -> str:
    """Return the first paths and the number of the others, for a message."""
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


# ----------------------------------------------------------------------
# Restore of a live data directory from a snapshot.
#
# A restore writes only what differs from the snapshot. Each restore records size, modification time, change
# time and inode of every file in the live directory. If all of these still hold, the file was not written
# since: the kernel sets the change time at every write, and no program can set it back. A file that was
# written is compared with the snapshot, and only the blocks that differ are copied.
# ----------------------------------------------------------------------

# Two writes within one tick of the kernel clock (at most 10 ms) have the same change time. A restore ends
# only after that tick, so that every later write is detected.
CLOCK_TICK_NS = 20_000_000

COPY_THREADS = min(4, os.cpu_count() or 1)
PIECE_BYTES = 2**25  # of a file, compared by one thread


@dataclass(frozen=True)
class RestoreStatistics:
    """Statistics of a restore. ``bytes_copied``: bytes written into the copied files."""

    files_copied: int
    bytes_copied: int
    files_kept: int
    duration_s: float


def restore(snapshot: Snapshot, data_dir: Path, account: Account, *, sync: bool = True) -> RestoreStatistics:
    """Make ``data_dir`` equal to the snapshot, sync it, so that write-back does not disturb the trial, and
    check it.

    Creates ``data_dir`` if missing, and keeps its link WAL to a directory. The file ``<data_dir>.restored``
    next to it records the files that the next restore can keep. Raises DatasetError (a server runs there, or
    the result differs from the snapshot), DiskFullError.
    """
    begun_s = time.monotonic()
    if (data_dir / "postmaster.pid").exists():
        _refuse_running(data_dir)
        clear_after_kill(data_dir, account)  # a remaining backend could write into the restored files
    recorded = _read_record(data_dir, snapshot)
    data_dir.mkdir(mode=0o700, exist_ok=True)
    _record(data_dir).unlink(missing_ok=True)  # an interrupted restore must not be trusted
    files, kept = _remove_and_sort(snapshot, data_dir, recorded)
    _require_space(data_dir, files, snapshot)
    _make_directories(snapshot, data_dir, account)
    bytes_copied = _copy_all(snapshot, data_dir, files, account)
    linked = [data_dir / WAL] if (data_dir / WAL).is_symlink() else []
    for synced in (data_dir, *linked) if sync else ():  # a second sync takes up to 20 ms
        sync_file_system(synced)
    _write_record(data_dir, snapshot, _checked(snapshot, data_dir))
    return RestoreStatistics(len(files), bytes_copied, kept, time.monotonic() - begun_s)


def _refuse_running(data_dir: Path) -> None:
    pid = (data_dir / "postmaster.pid").read_bytes().split(b"\n", 1)[0].strip().decode(errors="replace")
    if pid.isdigit() and is_on(int(pid), data_dir):
        raise DatasetError(f"{data_dir} cannot be restored: process {pid} is a server running on it")


def _remove_and_sort(
    snapshot: Snapshot, data_dir: Path, recorded: Mapping[str, list[int]]
) -> tuple[dict[str, int], int]:
    """Delete what the snapshot lacks, and what has another type or a second name.

    Return the files to copy, each with its size in the directory, and the number of unchanged files.
    """
    for name in TRANSIENT:
        (data_dir / name).unlink(missing_ok=True)
    files = {path: 0 for path, entry in snapshot.entries.items() if not entry.is_directory}
    n = len(files)
    for path, found in list(walk(data_dir, WAL)):
        expected, target = snapshot.entries.get(path), data_dir / path
        if stat.S_ISDIR(found.st_mode):
            if (expected is None or not expected.is_directory) and target.exists():
                shutil.rmtree(target)
        elif path not in files or not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            target.unlink(missing_ok=True)  # its directory may be deleted already
        elif recorded.get(path) == _identity(found):
            del files[path]
        else:
            files[path] = found.st_size
    return files, n - len(files)


def _require_space(data_dir: Path, files: Mapping[str, int], snapshot: Snapshot) -> None:
    needed = sum(max(0, snapshot.entries[path].size_bytes - there) for path, there in files.items())
    free = free_bytes(data_dir)
    if needed > free:
        raise DiskFullError(
            f"restoring {snapshot.data_dir} needs {format_size(needed)} at {data_dir}, but only "
            f"{format_size(free)} are free: run `pgdyno cache prune`"
        )


def _make_directories(snapshot: Snapshot, data_dir: Path, account: Account) -> None:
    for path, entry in snapshot.entries.items():
        if entry.is_directory:
            target = data_dir / path
            target.mkdir(exist_ok=True)
            target.chmod(entry.mode)
            account.own(target)


def _copy_all(snapshot: Snapshot, data_dir: Path, files: Mapping[str, int], account: Account) -> int:
    """Copy the files, each with its size in the directory. Return the number of bytes written."""

    def copy(piece: tuple[str, int, int]) -> int:
        path, start, end = piece
        try:
            return copy_bytes(snapshot.data_dir / path, data_dir / path, end, start)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The WAL may be on another disk.
            raise DiskFullError(
                f"disk full at {(data_dir / path).resolve()} while restoring {snapshot.data_dir}: free space "
                "there, or run `pgdyno cache prune`"
            ) from error

    with ThreadPoolExecutor(COPY_THREADS, thread_name_prefix="pgdyno-copy") as pool:
        try:
            written = sum(pool.map(copy, _pieces(snapshot, files)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for path, there in files.items():
        entry, target = snapshot.entries[path], data_dir / path
        # Only if it was longer: ext4 starts a transaction for each truncation, even to the same size.
        if there > entry.size_bytes:
            os.truncate(target, entry.size_bytes)
        account.own(target)
        target.chmod(entry.mode)
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))
    return written


def _pieces(snapshot: Snapshot, files: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Return path, start and end of the pieces of files, the largest first. What a file lacks is in its last
    piece: threads that extend one file would wait for each other.
    """
    pieces = []
    for path, there in files.items():
        size_bytes = snapshot.entries[path].size_bytes
        *starts, last = range(0, max(1, min(size_bytes, there)), PIECE_BYTES)
        pieces += [*((path, start, start + PIECE_BYTES) for start in starts), (path, last, size_bytes)]
    return sorted(pieces, key=lambda piece: piece[1] - piece[2])


def _checked(snapshot: Snapshot, data_dir: Path) -> dict[str, os.stat_result]:
    """Return the status of all entries. Raises DatasetError if they differ from those of the snapshot."""
    restored = dict(walk(data_dir, WAL))
    unlike = different_paths(snapshot.entries, {path: _entry(found) for path, found in restored.items()})
    if unlike:
        raise DatasetError(f"{data_dir} differs from its snapshot {snapshot.data_dir}: {first_paths(unlike)}")
    return restored


def _identity(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _record(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.restored")


def _source(snapshot: Snapshot) -> list[Any]:
    """Return the identity of the snapshot, which differs for a later directory of the same name."""
    found = snapshot.data_dir.stat()
    return [str(snapshot.data_dir.resolve()), found.st_ino, found.st_ctime_ns]


def _read_record(data_dir: Path, snapshot: Snapshot) -> dict[str, list[int]]:
    try:
        record = json.loads(_record(data_dir).read_text())
        if record["source"] == _source(snapshot):
            files: dict[str, list[int]] = record["files"]
            return files
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {}


def _write_record(data_dir: Path, snapshot: Snapshot, restored: Mapping[str, os.stat_result]) -> None:
    files = {path: _identity(found) for path, found in restored.items() if stat.S_ISREG(found.st_mode)}
    newest_ns = max((found.st_ctime_ns for found in restored.values()), default=0)
    _record(data_dir).write_text(json.dumps({"source": _source(snapshot), "files": files}))
    wait_ns = newest_ns + CLOCK_TICK_NS - time.time_ns()
    if 0 < wait_ns <= CLOCK_TICK_NS:
        time.sleep(wait_ns / 1e9)


# ----------------------------------------------------------------------
# Page cache and shared buffers before a trial: eviction and prewarming of a data directory.
#
# Eviction affects the files of one directory only, needs no root, and does not harm other programs: it does
# not use the switch for the whole machine (drop_caches). The server must be stopped, because it has its own
# cache.
#
# Prewarming uses the best method available. pg_prewarm reads every block into shared buffers. If the
# extension is missing or cannot be created, pgdyno reads the files into the page cache. If the files are not
# accessible, sequential scans read the tables, without their indexes.
# ----------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)


def evict(data_dir: Path) -> float:
    """Write back dirty pages and evict all files under a directory from the page cache. Follows links (a WAL
    directory or tablespaces elsewhere).

    Returns the share of pages that remain in memory: 0 on a disk, 1 on a file system in memory.
    """
    for path in regular_files(data_dir):
        with path.open("rb", buffering=0) as file:
            os.fdatasync(file)  # dirty pages are not evicted
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(data_dir)


def resident_share(data_dir: Path) -> float:
    """Return the share of pages under a directory that are in memory, 0 to 1; 1 without any pages."""
    resident = total = 0
    for path in regular_files(data_dir):
        with path.open("rb", buffering=0) as file:
            if size := os.fstat(file.fileno()).st_size:
                pages = _resident_pages(file.fileno(), size)
                resident += int(np.count_nonzero(pages))
                total += len(pages)
    return resident / total if total else 1.0


def regular_files(data_dir: Path) -> Iterator[Path]:
    """Yield all regular files under a directory; follows links to directories."""
    for directory, _, names in os.walk(data_dir, followlinks=True):
        for name in names:
            path = Path(directory, name)
            if path.is_file():
                yield path


def _resident_pages(descriptor: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each page whether it is in memory: mincore(2), which reads no page."""
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
        found = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        content = np.frombuffer(mapped, dtype=np.uint8)
        status = _libc.mincore(
            ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)
        )
        del content  # otherwise the mapping cannot be closed
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return (found & 1).astype(np.bool_)


Way = Literal["pg_prewarm", "files", "scans"]

_RELATIONS = Path(__file__).with_name("sql").joinpath("relations_to_prewarm.sql").read_bytes()
READ_BYTES = 2**20


def prewarm(connection: Connection, data_dir: Path | None = None) -> Way:
    """Prewarm the database of the connection, and return how. ``data_dir``: that of the server, if its files
    are readable.

    Creates the extension pg_prewarm if it is missing. The connection is in autocommit mode.
    Raises psycopg.Error.
    """
    relations: list[Any] = connection.cursor(row_factory=namedtuple_row).execute(_RELATIONS).fetchall()
    try:
        connection.execute("create extension if not exists pg_prewarm")
    except psycopg.Error:
        if connection.closed:
            raise
    else:
        for relation in relations:
            # Some catalogs require privileges.
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute("select pg_prewarm(%s::oid::regclass)", [relation.oid])
        return "pg_prewarm"
    if data_dir is not None:
        with contextlib.suppress(OSError):
            for relation in relations:
                _read_files(data_dir / relation.path)
            return "files"
    for relation in relations:
        if relation.kind in ("r", "m") and relation.is_readable:
            with connection.transaction():  # one for all would hold the locks of thousands of tables
                for setting in ("enable_indexonlyscan", "enable_indexscan", "enable_bitmapscan"):
                    connection.execute(f"set local {setting} = off")
                connection.execute(f"select count(*) from {relation.name}".encode())
    return "scans"


def _read_files(first: Path) -> None:
    """Read all segments of a relation (``16384``, ``16384.1``, …)."""
    for path in (first, *first.parent.glob(f"{first.name}.*")):
        with path.open("rb", buffering=0) as segment:
            while segment.read(READ_BYTES):
                pass


# ----------------------------------------------------------------------
# Datasets: a workload loaded at one scale on one build, created once and kept as a snapshot.
#
# key = DatasetKey(build.build_id, InitOptions(), "tpcc", {"warehouses": 10}, seed=1, format="1") with
# datasets.hold(key, make) as dataset:        # make(data_dir): initdb, start, load, stop
# restore(dataset.snapshot, run.data_dir, account)
#
# A dataset gets its name only when it is complete. Two processes that need the same dataset create it once.
# While one of them holds it, no other can prune it.
# ----------------------------------------------------------------------

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
        facts = asdict(self)
        del facts["label"], facts["init"]["sync"]
        return {"layout": LAYOUT, **facts}

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
