"""WAL directories below the DIRECTORY of an arm: checks, the links to them, and their removal.

In a live data directory of such an arm, ``pg_wal`` is a link. A second link, next to the data directory,
exists before the WAL directory does. Whoever removes the live directory, also after a kill, thus finds the
WAL directory, and no other directory below DIRECTORY is ever touched.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pgdyno.caveats import Caveat
from pgdyno.errors import DatasetError, DiskFullError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm, Prepared
from pgdyno.measure.host_counters import disk_of
from pgdyno.measure.preflight import ArmRequest, number_of
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import Watch
from pgdyno.server.directories import Account, free_bytes, link_target, mount_of, read_mounts, server_account
from pgdyno.server.processes import LiveDirectory
from pgdyno.server.snapshots import WAL
from pgdyno.study.arm_spec import ArmSpec, unquoted
from pgdyno.study.plan import Study
from pgdyno.units import format_size

PREFIX = "pgdyno-wal-"
"""Start of the names of WAL directories below DIRECTORY."""

RECORD = "wal-directory"
"""Link to the WAL directory, next to the data directory."""

SETTING = "max_wal_size"  # in MB


def directory_of(arm: ArmSpec) -> Path | None:
    """Return the DIRECTORY of an arm; None if its WAL is with its data."""
    return Path(unquoted(arm.wal_dir)).expanduser() if arm.wal_dir else None


# ----------------------------------------------------------------------
# Checks before anything is loaded.
# ----------------------------------------------------------------------


def require_usable(study: Study, wanted: dict[int, ArmRequest]) -> dict[int, ArmRequest]:
    """Return the requests. Raises UsageError for an unusable DIRECTORY, DiskFullError without room.

    Servers that run together need room for the WAL of each. One more may remain of the block before.
    """
    account = server_account()
    on_device: dict[int, list[tuple[Path, int]]] = defaultdict(list)
    for request in wanted.values():
        if directory := directory_of(request.spec):
            _require_directory(directory, account)
            most = number_of(request, SETTING)
            on_device[directory.stat().st_dev].append((directory, most))
    for needs in on_device.values():
        directory, most = max(needs, key=lambda need: need[1])
        needed = most * (max(2, len(needs)) if study.is_together else 1)
        if (free := free_bytes(directory)) < needed:
            raise DiskFullError(
                f"wal_dir={directory} needs {format_size(needed)} for {SETTING}={format_size(most)}, but "
                f"only {format_size(free)} are free: free disk space, or reduce {SETTING}"
            )
    return wanted


def _require_directory(directory: Path, account: Account) -> None:
    if not directory.is_absolute():
        problem = "must be an absolute path"
    elif not directory.is_dir():
        problem = "does not exist or is not a directory"
    elif not os.access(directory, os.W_OK | os.X_OK):
        problem = "is not writable"
    elif not account.can_reach(directory / PREFIX):
        problem = f"is not accessible to the user {account.name}, who runs the servers"
    else:
        return
    raise UsageError(f"wal_dir={directory} {problem}: create a directory on the disk of the WAL, and name it")


# ----------------------------------------------------------------------
# Links to WAL directories, and their removal.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class WalDirectories:
    """WAL directories of the live directories of a study, which arms with and without DIRECTORY exchange.

    ``runs``: live directories that can have one.
    """

    account: Account
    runs: set[LiveDirectory]

    def place(self, directory: Path | None, is_together: bool, run: LiveDirectory) -> None:
        """Let the WAL of a stopped server be below DIRECTORY; None: with its data. The restore fills it.

        If servers run one at a time, the WAL of the others is removed. Raises DatasetError.
        """
        try:
            for other in self.runs - {run} if not is_together else ():
                release(other.path)
            if not self._is_placed(run, directory):
                self._place(run, directory)
        except OSError as error:
            raise DatasetError(f"wal_dir={directory} cannot be used: {error}") from error

    def _is_placed(self, run: LiveDirectory, directory: Path | None) -> bool:
        link, known = run.data_dir / WAL, recorded(run.path)
        target = link.readlink() if link.is_symlink() else None
        return known == target and (known and known.parent) == directory and (known is None or known.is_dir())

    def _place(self, run: LiveDirectory, directory: Path | None) -> None:
        link = run.data_dir / WAL
        if left := release(run.path):
            raise DatasetError(f"{', '.join(left)} cannot be removed: end the processes that use it")
        if link.is_symlink():
            link.unlink()
        if directory is None:
            return
        shutil.rmtree(link, ignore_errors=True)
        run.data_dir.mkdir(mode=0o700, exist_ok=True)
        target = directory / f"{PREFIX}{secrets.token_hex(8)}"
        (run.path / RECORD).symlink_to(target)
        target.mkdir(mode=0o700)
        self.account.own(target)
        link.symlink_to(target)
        self.runs.add(run)


def recorded(path: Path) -> Path | None:
    """Return the WAL directory of a live directory, which may not exist yet; None without one."""
    return link_target(path / RECORD, PREFIX)


def release(path: Path) -> Sequence[str]:
    """Remove the WAL directory of a live directory. Return its path if it remains."""
    if (found := recorded(path)) is None:
        return []
    if not found.is_symlink():
        shutil.rmtree(found, ignore_errors=True)
    if found.exists() or not found.parent.is_dir():  # or its disk is not mounted
        return [str(found)]
    (path / RECORD).unlink()
    return []


# ----------------------------------------------------------------------
# The arms of a study, and what its results file says about them.
# ----------------------------------------------------------------------


def with_wal_directories(ready: list[Prepared], _: Watch, __: Interruption) -> list[Prepared]:
    """Return the cases whose arms place their WAL, if an arm of any case has a DIRECTORY: cases share live
    directories.
    """
    if not any(arm.wal_dir for prepared in ready for arm in prepared.study.arms):
        return ready
    places = WalDirectories(server_account(), set())
    return [_placed(prepared, places) for prepared in ready]


def _placed(prepared: Prepared, places: WalDirectories) -> Prepared:
    study = prepared.study
    directories = {i: found for i, arm in enumerate(study.arms) if (found := directory_of(arm))}
    arms = [
        replace(arm, before_restore=partial(places.place, directories.get(arm.index), study.is_together))
        if isinstance(arm, BuildArm)
        else arm
        for arm in prepared.arms
    ]
    prepared.caveats.extend(
        Caveat.of("wal-with-data", arm=study.arms[i].name, directory=str(directory))
        for i, directory in directories.items()
        if _is_one_disk(directory, prepared.data_path)
    )
    described = [
        replace(record, server={**record.server, **facts(directories[record.arm])})
        if record.arm in directories
        else record
        for record in prepared.records
    ]
    return replace(prepared, arms=arms, records=described)


def _is_one_disk(directory: Path, data_path: Path) -> bool:
    """Return whether both are on one file system, or on partitions of one disk."""
    disks = {disk_of(path) for path in (directory, data_path)}
    return directory.stat().st_dev == data_path.stat().st_dev or (len(disks) == 1 and None not in disks)


def facts(directory: Path) -> Mapping[str, str]:
    """Return the facts about a DIRECTORY for the results file. A resume requires the same ``wal_disk``."""
    mount = mount_of(directory, read_mounts())
    return {"wal_dir": str(directory), "wal_disk": f"{mount.source}, {mount.kind}" if mount else "unknown"}


PREPARATION = Preparation(arms=with_wal_directories)
