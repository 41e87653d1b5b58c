"""WAL directories without a server: requests of arms, refusals, links and removal."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from example_studies import make_study
from pgdyno.errors import DatasetError, DiskFullError, UsageError
from pgdyno.features.wal_directory import directories
from pgdyno.features.wal_directory.directories import (
    PREFIX,
    WalDirectories,
    recorded,
    release,
    require_usable,
)
from pgdyno.server.builds import Version
from pgdyno.server.directories import OURSELVES, Account
from pgdyno.server.processes import LiveDirectory, Runs
from pgdyno.server.settings import Definition
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.plan import Study

MAX_WAL_SIZE = Definition(
    "max_wal_size", "integer", "MB", "2", "2147483647", (), "sighup", "1024", "group", "what it is", None
)
GB = 1 << 30


def asked(*arms: str, **changes: object) -> Study:
    return make_study(arms=parse_arms(arms), **changes)


def requests_of(study: Study) -> Any:
    known = SimpleNamespace(definitions={"max_wal_size": MAX_WAL_SIZE}, initial={"max_wal_size": "1GB"})
    build = SimpleNamespace(version=Version(18, 4))
    return {
        index: SimpleNamespace(
            spec=arm, build=build, catalogue=known, requested=SimpleNamespace(settings=arm.settings)
        )
        for index, arm in enumerate(study.arms)
    }


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the servers run as the user of the tests, who has access to temporary directories."""
    monkeypatch.setattr(directories, "server_account", lambda: OURSELVES)
    monkeypatch.setattr(Account, "can_reach", lambda *_: True)


@pytest.fixture
def wal(tmp_path: Path) -> Path:
    """DIRECTORY, with a file and a directory of someone else."""
    path = tmp_path / "wal"
    (path / "lost+found").mkdir(parents=True)
    (path / "notes").touch()
    return path


@pytest.fixture
def run(tmp_path: Path) -> LiveDirectory:
    (tmp_path / "run" / "data" / "pg_wal").mkdir(parents=True)
    return LiveDirectory(tmp_path / "run")


def others(wal: Path) -> set[str]:
    """Return the names in DIRECTORY, without WAL directories."""
    return {path.name for path in wal.iterdir() if not path.name.startswith(PREFIX)}


def count(wal: Path) -> int:
    return len(list(wal.glob(f"{PREFIX}*")))


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("wal/here", "must be an absolute path"),
        ("{}/missing", "does not exist or is not a directory"),
        ("{}/notes", "does not exist or is not a directory"),
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_an_unusable_directory_is_refused_with_a_remedy(where: str, problem: str, wal: Path) -> None:
    study = asked("18", f"18,wal_dir={where.format(wal)}")
    with pytest.raises(UsageError, match=f"{problem}: create a directory on the disk of the WAL"):
        require_usable(study, requests_of(study))


@pytest.mark.usefixtures("everywhere")
def test_a_directory_that_cannot_be_written_or_reached_is_refused(
    wal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = asked("18", f"18,wal_dir={wal}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(UsageError, match="is not writable"):
            require_usable(study, requests_of(study))
    monkeypatch.setattr(Account, "can_reach", lambda *_: False)
    with pytest.raises(UsageError, match="is not accessible to the user"):
        require_usable(study, requests_of(study))


@pytest.mark.parametrize(
    ("sizes", "changes", "needed_gb"),
    [
        ([",max_wal_size=4GB"], {}, 8),  # it may change its live directory
        ([",max_wal_size=4GB", ",max_wal_size=3072", ""], {}, 12),
        ([",max_wal_size=4GB", ""], {"schedule": "blocks"}, 4),  # one server runs at a time
        ([""], {"schedule": "blocks"}, 1),  # the default of the server
    ],
)
@pytest.mark.usefixtures("everywhere")
def test_a_disk_needs_room_for_the_largest_wal_of_the_servers_that_run_together(
    sizes: list[str], changes: dict[str, object], needed_gb: int, wal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = asked("18", *(f"18,wal_dir={wal}{size}" for size in sizes), **changes)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(needed_gb * GB))
    assert require_usable(study, requests_of(study))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(needed_gb * GB - 1))
    with pytest.raises(DiskFullError, match="free disk space, or reduce max_wal_size"):
        require_usable(study, requests_of(study))


def test_the_wal_moves_to_its_own_directory_and_back(run: LiveDirectory, wal: Path) -> None:
    places, link = WalDirectories(OURSELVES, set()), run.data_dir / "pg_wal"
    places.place(None, True, run)
    assert not link.is_symlink() and count(wal) == 0
    places.place(wal, True, run)
    first = link.readlink()
    assert first.parent == wal and first.name.startswith(PREFIX) and first.stat().st_mode & 0o777 == 0o700
    (first / "segment").touch()
    places.place(wal, True, run)  # of the next block
    assert link.readlink() == first and (first / "segment").exists()
    other = wal.with_name("other")
    other.mkdir()
    places.place(other, True, run)
    assert (count(wal), count(other)) == (0, 1)
    places.place(None, True, run)
    assert not link.is_symlink() and count(other) == 0 and recorded(run.path) is None
    assert others(wal) == {"lost+found", "notes"}


@pytest.mark.parametrize(("is_together", "left"), [(True, 2), (False, 1)])
def test_servers_that_run_one_at_a_time_leave_no_wal_of_the_others(
    is_together: bool, left: int, run: LiveDirectory, wal: Path, tmp_path: Path
) -> None:
    places, second = WalDirectories(OURSELVES, set()), LiveDirectory(tmp_path / "second")
    second.data_dir.mkdir(parents=True)
    for one in (run, second, run, second):
        places.place(wal, is_together, one)
        assert (one.data_dir / "pg_wal").is_dir()
    assert count(wal) == left
    assert others(wal) == {"lost+found", "notes"}


def test_a_wal_directory_goes_with_its_live_directory_also_after_a_kill(wal: Path, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs", OURSELVES)
    runs.directory.mkdir()
    with runs.open("arm") as ended:
        WalDirectories(OURSELVES, set()).place(wal, True, ended)
        assert count(wal) == 1
    assert not ended.path.exists() and count(wal) == 0
    for created in (True, False):  # killed after the directory was created, and before
        left = LiveDirectory(runs.directory / "run-left")
        left.data_dir.mkdir(parents=True)
        WalDirectories(OURSELVES, set()).place(wal, True, left)
        found = recorded(left.path)
        assert found is not None
        if not created:
            found.rmdir()
        assert runs.sweep() == [left.path]
        assert not left.path.exists() and count(wal) == 0
    assert others(wal) == {"lost+found", "notes"}


def test_only_a_directory_that_pgdyno_named_is_removed(run: LiveDirectory, wal: Path) -> None:
    record = run.path / directories.RECORD
    record.symlink_to(wal / "lost+found")
    assert release(run.path) == []
    assert (wal / "lost+found").is_dir()
    record.unlink()
    linked = wal / f"{PREFIX}00"
    linked.symlink_to(wal / "lost+found")  # someone put a link in its place
    record.symlink_to(linked)
    assert release(run.path) == [str(linked)]
    assert (wal / "lost+found").is_dir() and linked.is_symlink()


def test_a_disk_that_is_gone_ends_the_trial_with_its_name(run: LiveDirectory, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"wal_dir=.*unmounted cannot be used"):
        WalDirectories(OURSELVES, set()).place(tmp_path / "unmounted", True, run)


def test_the_crash_test_refuses_a_wal_directory(refusal: Any) -> None:
    message = cast(str, refusal("crash 18 18,wal_dir=/mnt/wal"))
    assert "keeps the WAL on the disk whose power is cut (wal_dir=/mnt/wal): remove wal_dir=…" in message
