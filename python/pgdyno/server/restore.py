"""Restore of a live data directory from a snapshot.

A restore writes only what differs from the snapshot. Each restore records size, modification time, change
time and inode of every file in the live directory. If all of these still hold, the file was not written
since: the kernel sets the change time at every write, and no program can set it back. A file that was written
is compared with the snapshot, and only the blocks that differ are copied.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgdyno.errors import DatasetError, DiskFullError
from pgdyno.server.file_copy import copy_bytes
from pgdyno.server.file_system import free_bytes, sync_file_system
from pgdyno.server.server_account import Account
from pgdyno.server.server_process import clear_after_kill
from pgdyno.server.snapshot import TRANSIENT, Snapshot, different_paths, first_paths, take, walk
from pgdyno.units import format_size

# Two writes within one tick of the kernel clock (at most 10 ms) have the same change time. A restore ends
# only after that tick, so that every later write is detected.
CLOCK_TICK_NS = 20_000_000

COPY_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class RestoreStatistics:
    """Statistics of a restore. ``bytes_copied``: bytes written into the copied files."""

    files_copied: int
    bytes_copied: int
    files_kept: int
    files_removed: int
    duration_s: float
    sync_s: float


def restore(snapshot: Snapshot, data_dir: Path, account: Account, *, sync: bool = True) -> RestoreStatistics:
    """Make ``data_dir`` equal to the snapshot, check it, and sync it, so that write-back does not disturb the
    trial.

    Creates ``data_dir`` if missing. The file ``<data_dir>.restored`` next to it records the files that the
    next restore can keep. Raises DatasetError (a server runs there, or the result differs from the snapshot),
    DiskFullError.
    """
    start = time.monotonic()
    if (data_dir / "postmaster.pid").exists():
        _refuse_running(data_dir)
        clear_after_kill(data_dir, account)  # a remaining backend could write into the restored files
    recorded = _read_record(data_dir, snapshot)
    data_dir.mkdir(mode=0o700, exist_ok=True)
    _record(data_dir).unlink(missing_ok=True)  # an interrupted restore must not be trusted
    removed, kept = _remove_and_sort(snapshot, data_dir, recorded)
    files = [path for path, entry in snapshot.entries.items() if not entry.is_directory and path not in kept]
    _require_space(data_dir, files, snapshot)
    _make_directories(snapshot, data_dir, account)
    bytes_copied = _copy_all(snapshot, data_dir, files, account)
    _check(snapshot, data_dir)
    copied_s = time.monotonic() - start
    if sync:
        sync_file_system(data_dir)
    _write_record(data_dir, snapshot)
    end = time.monotonic()
    return RestoreStatistics(
        len(files), bytes_copied, len(kept), removed, end - start, end - start - copied_s
    )


def _refuse_running(data_dir: Path) -> None:
    pid = (data_dir / "postmaster.pid").read_bytes().split(b"\n", 1)[0].strip().decode(errors="replace")
    if pid.isdigit() and Path(f"/proc/{pid}/cwd").exists():
        raise DatasetError(f"{data_dir} cannot be restored: process {pid} may be a server running on it")


def _remove_and_sort(
    snapshot: Snapshot, data_dir: Path, recorded: Mapping[str, list[int]]
) -> tuple[int, set[str]]:
    """Delete the files that the snapshot lacks. Return their number and the set of unchanged files."""
    for name in TRANSIENT:
        (data_dir / name).unlink(missing_ok=True)
    removed, kept = 0, set()
    for path, found in list(walk(data_dir)):
        expected = snapshot.entries.get(path)
        is_directory = stat.S_ISDIR(found.st_mode)
        if expected is not None and expected.is_directory == is_directory and not stat.S_ISLNK(found.st_mode):
            if not is_directory and recorded.get(path) == _identity(found):
                kept.add(path)
            continue
        target = data_dir / path
        removed += 1
        if not is_directory:
            target.unlink(missing_ok=True)  # its directory may be deleted already
        elif target.exists():
            shutil.rmtree(target)
    return removed, kept


def _require_space(data_dir: Path, files: list[str], snapshot: Snapshot) -> None:
    needed = 0
    for path in files:
        target = data_dir / path
        there = target.stat().st_size if target.exists() else 0
        needed += max(0, snapshot.entries[path].size_bytes - there)
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


def _copy_all(snapshot: Snapshot, data_dir: Path, files: list[str], account: Account) -> int:
    """Copy the files. Return the number of bytes written."""

    def copy(path: str) -> int:
        entry, target = snapshot.entries[path], data_dir / path
        written = copy_bytes(snapshot.data_dir / path, target, entry.size_bytes)
        account.own(target)
        target.chmod(entry.mode)
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))
        return written

    files = sorted(files, key=lambda path: snapshot.entries[path].size_bytes, reverse=True)
    with ThreadPoolExecutor(COPY_THREADS, thread_name_prefix="pgdyno-copy") as pool:
        try:
            return sum(pool.map(copy, files))
        except OSError as error:
            pool.shutdown(cancel_futures=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DiskFullError(
                f"disk full at {data_dir} while restoring {snapshot.data_dir}: run `pgdyno cache prune`"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _check(snapshot: Snapshot, data_dir: Path) -> None:
    unlike = different_paths(snapshot.entries, take(data_dir).entries)
    if unlike:
        raise DatasetError(f"{data_dir} differs from its snapshot {snapshot.data_dir}: {first_paths(unlike)}")


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


def _write_record(data_dir: Path, snapshot: Snapshot) -> None:
    files, newest_ns = {}, 0
    for path, found in walk(data_dir):
        if stat.S_ISREG(found.st_mode):
            files[path] = _identity(found)
            newest_ns = max(newest_ns, found.st_ctime_ns)
    _record(data_dir).write_text(json.dumps({"source": _source(snapshot), "files": files}))
    wait_ns = newest_ns + CLOCK_TICK_NS - time.time_ns()
    if 0 < wait_ns <= CLOCK_TICK_NS:
        time.sleep(wait_ns / 1e9)
