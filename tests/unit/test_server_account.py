"""User of servers, location of files, cleanup, and displayed connection strings. No server."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from pgdyno.errors import DatasetError, UsageError
from pgdyno.interruption import stopping
from pgdyno.server.build_store import resolve_all
from pgdyno.server.builds import MARK
from pgdyno.server.cache_directory import SHARED_CACHE, Cache, Item, cache_root, items, prune, to_prune
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import Account, locked, locked_if_free, server_account
from pgdyno.server.processes import SOCKET_PREFIX, SocketDirectory, sweep
from pgdyno.server.settings import disk_kind
from pgdyno.server.snapshots import ClusterState, require_clean, state_of

STRANGER = Account("stranger", 12345, 12345, switch=False)
OURSELVES = Account("me", os.geteuid(), os.getegid(), switch=False)


def test_servers_never_run_as_root() -> None:
    assert server_account({}).uid != 0
    assert server_account({"SUDO_UID": "0"}).uid != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses another user")
def test_as_root_the_user_behind_sudo_comes_first() -> None:
    nobody = server_account({"SUDO_UID": "65534"})
    assert (nobody.uid, nobody.switch) == (65534, True)
    assert server_account({"SUDO_UID": "4000000"}) == server_account({})


def test_a_closed_directory_on_the_way_is_out_of_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not STRANGER.can_reach(closed / "x" / "y")
    assert OURSELVES.can_reach(closed / "x" / "y")


REACHES = """
import os, sys
from pathlib import Path
from pgdyno.server.directories import Account
os.setgroups([12347])
os.setgid(12346)
os.setuid(12346)
print(*(Account("me", uid, 12346, switch=False).can_reach(Path(sys.argv[1], "x")) for uid in (12346, 12345)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the groups of a process")
def test_a_user_reaches_the_directories_of_all_its_groups(server_dir: Path) -> None:
    shared = server_dir / "shared"
    shared.mkdir()
    os.chown(shared, 0, 12347)
    shared.chmod(0o750)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", REACHES, shared]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "True False\n"


def test_the_cache_is_in_the_environments_directory_or_an_accessible_one(tmp_path: Path) -> None:
    assert cache_root(OURSELVES, {"PGDYNO_CACHE": str(tmp_path / "c")}) == tmp_path / "c"
    assert cache_root(OURSELVES, {"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "pgdyno"
    tmp_path.chmod(0o700)
    assert cache_root(STRANGER, {"XDG_CACHE_HOME": str(tmp_path)}) == SHARED_CACHE
    with pytest.raises(UsageError, match="not accessible to the user stranger"):
        cache_root(STRANGER, {"PGDYNO_CACHE": str(tmp_path / "c")})


@pytest.mark.parametrize("name", ["two\nlines", os.fsdecode(b"\xff"), "carriage\rreturn"])
def test_a_cache_that_no_server_can_use_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="line break, or bytes"):
        cache_root(OURSELVES, {"PGDYNO_CACHE": str(tmp_path / name)})
    with pytest.raises(UsageError, match="set PGDYNO_CACHE"):
        cache_root(OURSELVES, {"XDG_CACHE_HOME": str(tmp_path / name)})
    odd = tmp_path / "cäche, \u2028 'a' \\040"
    assert cache_root(OURSELVES, {"PGDYNO_CACHE": str(odd)}) == odd


def test_an_invalid_cache_is_reported_with_its_variable(server_dir: Path) -> None:
    taken = server_dir / "taken"
    taken.write_text("not a directory")
    for path in (taken, taken / "below"):
        with pytest.raises(UsageError, match=rf"PGDYNO_CACHE={path} cannot be used: .*: set PGDYNO_CACHE"):
            Cache.open({"PGDYNO_CACHE": str(path)})
    with pytest.raises(UsageError, match=rf"the cache {taken}/pgdyno cannot be used: .*: set PGDYNO_C"):
        Cache.open({"XDG_CACHE_HOME": str(taken)})


def item(kind: str, name: str, age_s: float, in_use: bool = False) -> Item:
    return Item(kind, name, Path(name), 1, 1000.0 - age_s, in_use)  # type: ignore[arg-type]


CACHE = [
    item("build", "b-old", 500),
    item("build", "b-new", 5),
    item("dataset", "d-old", 400),
    item("dataset", "d-mid", 50),
    item("dataset", "d-used", 900, in_use=True),
    item("template", "t-old", 300),
    item("template", "t-new", 5),
    item("run", "r-dead", 1),
    item("run", "r-alive", 1, in_use=True),
]


@pytest.mark.parametrize(
    ("older_than_s", "keep", "gone"),
    [
        (None, None, {"d-old", "d-mid", "r-dead", "t-old", "t-new"}),
        (None, 1, {"d-old", "r-dead", "t-old", "t-new"}),
        (100.0, None, {"b-old", "d-old", "r-dead", "t-old"}),
        (100.0, 2, {"b-old", "r-dead", "t-old"}),
        (1e9, None, {"r-dead"}),
    ],
)
def test_prune_removes_old_entries_and_keeps_used_ones(
    older_than_s: float | None, keep: int | None, gone: set[str]
) -> None:
    chosen = to_prune(CACHE, older_than_s=older_than_s, keep=keep, now_unix_s=1000.0)
    assert {one.name for one in chosen} == gone


def test_templates_are_listed_pruned_and_limited_to_the_newest(tmp_path: Path) -> None:
    cache = Cache.at(tmp_path / "cache", OURSELVES)
    templates = cache.templates()
    for used_unix_s, name in enumerate(("old", "held", "mid", "new")):
        path = templates.directory / name
        path.mkdir()
        (path / "manifest.json").write_text("{}")
        os.utime(path / "manifest.json", (used_unix_s, used_unix_s))
    (templates.directory / ".dead.part").mkdir()
    with templates.lock("held").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        templates.keep_newest(2)
        assert [(one.kind, one.name, one.in_use) for one in items(cache)] == [
            ("template", "held", True),
            ("template", "mid", False),
            ("template", "new", False),
            ("incomplete", ".dead.part", False),
        ]
        assert [one.name for one in prune(cache)] == ["mid", "new", ".dead.part"]
    assert templates.names() == ["held"]


def test_datasets_are_listed_and_pruned_unless_they_are_held_or_being_loaded(tmp_path: Path) -> None:
    cache = Cache.at(tmp_path / "cache", OURSELVES)
    for name in (".dead.part", ".deleted.gone", ".made.part", "held", "unused"):
        (cache.datasets / name).mkdir()
        (cache.datasets / name / "manifest.json").write_bytes(b"{}" + b" " * 9000)
    with (cache.datasets / ".made.lock").open("w") as load, (cache.datasets / ".held.lock").open("w") as use:
        fcntl.flock(load, fcntl.LOCK_EX)
        fcntl.flock(use, fcntl.LOCK_SH)
        found = items(cache)
        assert {(one.kind, one.name, one.in_use) for one in found} == {
            ("dataset", "held", True),
            ("dataset", "unused", False),
            ("incomplete", ".dead.part", False),
            ("incomplete", ".deleted.gone", False),
            ("incomplete", ".made.part", True),
        }
        assert all(one.size_bytes >= 9000 for one in found)
        for dry_run in (True, False):
            removed = {one.name for one in prune(cache, dry_run=dry_run)}
            assert removed == {"unused", ".dead.part", ".deleted.gone"}
        assert [path.name for path in cache.datasets.glob(".*.*") if path.is_dir()] == [".made.part"]
    assert cache.cached_datasets().names() == ["held"]


def write_builds(cache: Cache, *names: str) -> None:
    """Write builds that were used long ago."""
    for name in names:
        bin_dir = cache.builds / name / "bin"
        bin_dir.mkdir(parents=True)
        for program in ("postgres", "initdb"):
            (bin_dir / program).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 18.1'\n")
            (bin_dir / program).chmod(0o755)
        (bin_dir.parent / MARK).touch()
        os.utime(bin_dir.parent / MARK, (0, 0))


def test_a_build_that_a_study_uses_is_not_pruned_whatever_its_age(tmp_path: Path) -> None:
    cache = Cache.at(tmp_path / "cache", OURSELVES)
    write_builds(cache, "made", "unused", "used")
    resolve_all([str(cache.builds / "used")], store=cache.store(), installed=[])
    assert [one.name for one in items(cache) if one.used_unix_s > 0] == ["used"]
    os.utime(cache.builds / "used" / MARK, (0, 0))
    assert [(one.name, one.in_use) for one in items(cache)] == [
        ("made", False),
        ("unused", False),
        ("used", True),
    ]
    with locked(cache.builds / ".made.lock"):
        assert [one.name for one in prune(cache, older_than_s=60.0)] == ["unused"]
    assert [path.name for path in sorted(cache.builds.glob("[!.]*"))] == ["made", "used"]


def test_an_interrupted_deletion_leaves_no_part_of_a_build_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache.at(tmp_path / "cache", OURSELVES)
    write_builds(cache, "old")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", interrupted)
        prune(cache, older_than_s=60.0)
    assert [path.suffix for path in cache.builds.iterdir() if path.is_dir()] == [".gone"]
    assert not [one for one in items(cache) if one.kind == "build"]


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with locked_if_free(tmp_path / "l") as first, locked_if_free(tmp_path / "l") as second:
        assert (first, second) == (True, False)
    with locked_if_free(tmp_path / "l") as third:
        assert third


def test_a_signal_ends_the_wait_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "since_s", 0.0)
    monkeypatch.setattr(stopping, "grace_s", 0.0)
    with locked(tmp_path / "l"), pytest.raises(KeyboardInterrupt), locked(tmp_path / "l"):
        pass
    with locked(tmp_path / "l", shared=True), locked(tmp_path / "l", shared=True):
        assert stopping.is_over(0.0), "a free lock is taken also then"


def write_control(data_dir: Path, state: int) -> None:
    (data_dir / "global").mkdir(exist_ok=True)
    (data_dir / "global" / "pg_control").write_bytes(
        struct.pack("=QIIi", 7, 1800, 2025, state) + b"\0" * 8168
    )


def test_the_state_of_a_data_directory_is_read(tmp_path: Path) -> None:
    write_control(tmp_path, 1)
    require_clean(tmp_path)
    write_control(tmp_path, 6)
    assert state_of(tmp_path) is ClusterState.IN_PRODUCTION
    with pytest.raises(DatasetError, match="not shut down cleanly"):
        require_clean(tmp_path)
    write_control(tmp_path, 99)
    with pytest.raises(DatasetError, match="not a valid control file"):
        state_of(tmp_path)
    (tmp_path / "global" / "pg_control").write_bytes(b"short")
    with pytest.raises(DatasetError, match="not a valid control file"):
        state_of(tmp_path)


@pytest.mark.parametrize(
    ("device", "rotational", "kind"),
    [
        ("sda", "1", "rotational"),
        ("sda", "0", "ssd"),
        ("nvme0n1", "0", "nvme"),
        ("vda", "1", "ssd"),
        ("md0", None, "ssd"),
    ],
)
def test_the_kind_of_disk_comes_from_the_kernel_except_for_virtual_ones(
    tmp_path: Path, device: str, rotational: str | None, kind: str
) -> None:
    queue = tmp_path / "devices" / device / "queue"
    queue.mkdir(parents=True)
    if rotational is not None:
        (queue / "rotational").write_text(f"{rotational}\n")
    number = tmp_path.stat().st_dev
    links = tmp_path / "dev" / "block"
    links.mkdir(parents=True)
    (links / f"{os.major(number)}:{os.minor(number)}").symlink_to(queue.parent)
    assert disk_kind(tmp_path / "not" / "yet", sys=tmp_path) == kind


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@db.example/bench?sslpassword=hunter2",
        "host=db.example user=me password=hunter2 dbname=bench",
        "host=db.example password='hunter2'",
    ],
)
def test_a_password_is_never_shown(text: str) -> None:
    dsn = Dsn(text)
    assert "hunter2" in dsn.conninfo
    for shown in (str(dsn), repr(dsn), f"{dsn}", dsn.shown, repr([dsn])):
        assert "hunter2" not in shown
        assert "db.example" in shown
    assert dsn.masked("FATAL: hunter2 is wrong") == "FATAL: *** is wrong"


def test_a_malformed_connection_string_is_rejected_without_quoting_it() -> None:
    with pytest.raises(UsageError) as raised:
        Dsn("password=hunter2 nonsense")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_only_socket_directories_of_dead_processes_are_removed(
    server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(server_dir))
    dead, alive = SocketDirectory.create(OURSELVES), SocketDirectory.create(OURSELVES)
    os.close(dead.lock)  # as the kernel does when its creator exits
    (dead.path / ".s.PGSQL.5432.lock").touch()
    (server_dir / "pgdyno-of-somebody-else").mkdir()
    link = server_dir / f"{SOCKET_PREFIX}link"
    link.symlink_to(server_dir / "pgdyno-of-somebody-else")
    assert sweep(STRANGER) == []
    assert sweep(OURSELVES) == [dead.path]
    assert {path.name for path in server_dir.iterdir()} == {
        alive.path.name,
        link.name,
        "pgdyno-of-somebody-else",
    }
    alive.remove()
    alive.remove()
    assert not alive.path.exists()


def test_an_old_unnamed_socket_directory_of_a_killed_process_is_removed(
    monkeypatch: pytest.MonkeyPatch, server_dir: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(server_dir))
    old, fresh, held = (server_dir / f".{SOCKET_PREFIX}{name}" for name in ("old", "fresh", "held"))
    for path in (old, fresh, held):
        path.mkdir()
    for path in (old, held):
        os.utime(path, (0, 0))
    descriptor = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert sweep(replace(OURSELVES, uid=OURSELVES.uid + 1)) == [old]  # not yet owned by the servers' user
    finally:
        os.close(descriptor)
    assert sorted(server_dir.iterdir()) == [fresh, held]
