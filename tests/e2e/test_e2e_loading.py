"""Interrupted, killed and concurrent loads, and full disks: no incomplete dataset appears complete."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import SMALLEST, Program, Running

from pgdyno.lab.dataset_loading import dataset_database_name
from pgdyno.results.reader import Evidence
from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.running import Server
from pgdyno.server.server_account import Account
from pgdyno.study.tpcc_parameters import TpccParameters

PRISTINE = dataset_database_name(TpccParameters(warehouses=1))


@pytest.fixture
def fresh(server_dir: Path, tmp_path: Path) -> Iterator[Program]:
    """pgdyno with an empty cache."""
    (server_dir / "sockets").mkdir(mode=0o755)
    program = Program(server_dir, tmp_path)
    yield program
    program.end()
    assert program.survivors() == []


def loading(program: Program, server: str, evidence: Path) -> Running:
    """Start a load and return while rows are copied."""
    running = program.start("compare", *SMALLEST, "--blocks", "1", "--evidence", evidence, server, server)
    running.until(lambda: ": copy" in running.err.read_text())
    return running


def test_an_interrupted_load_leaves_nothing(fresh: Program, server: str, tmp_path: Path) -> None:
    running = loading(fresh, server, tmp_path / "e.sqlite")
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130
    assert ended.complaints == ["pgdyno: the load was interrupted; no incomplete data are left"]
    assert fresh.survivors() == []
    assert not [path for path in (fresh.cache / "datasets").iterdir() if path.is_dir()]
    assert not list((fresh.cache / "runs").glob("run-*"))
    assert not list(fresh.sockets.iterdir())
    assert not list(tmp_path.glob("e.*"))


def test_after_a_killed_load_two_at_once_load_it_anew_and_once(
    fresh: Program, server: str, tmp_path: Path
) -> None:
    killed = loading(fresh, server, tmp_path / "killed.sqlite")
    killed.signal(signal.SIGKILL)
    killed.ended()
    assert fresh.survivors() == []
    assert [path.suffix for path in (fresh.cache / "datasets").iterdir() if path.is_dir()] == [".part"]

    files = [tmp_path / "one.sqlite", tmp_path / "two.sqlite"]
    both = [
        fresh.start("compare", *SMALLEST, "--blocks", "1", "--evidence", path, server, server)
        for path in files
    ]
    ended = [running.ended() for running in both]
    assert [one.status for one in ended] == [0, 0], [one.err for one in ended]
    assert sum(one.err.count(": copy") for one in ended) == 1
    (dataset,) = [path for path in (fresh.cache / "datasets").iterdir() if path.is_dir()]
    assert not dataset.name.startswith(".")
    for path in files:
        with Evidence(path) as opened:
            # All checks pass: the twelve conditions hold for the loaded data.
            assert [trial.status for trial in opened.trials()] == ["ok", "ok"]
    assert not list((fresh.cache / "runs").glob("run-*"))


@pytest.fixture
def small_disk(server_dir: Path) -> Iterator[Path]:
    """A file system of 150 MB: enough for an empty cluster, not for a warehouse."""
    place = server_dir / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("NO SMALL DISK: only root may mount one; loading onto a full disk was not tried")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=150m,mode=0755", "pgdyno-test", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"NO SMALL DISK: {done.stderr.strip()}; loading onto a full disk was not tried")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_cache_too_small_for_the_data_is_rejected_before_a_row_is_sent(
    small_disk: Path, server: str, tmp_path: Path
) -> None:
    (small_disk / "sockets").mkdir(mode=0o755)
    program = Program(small_disk, tmp_path)
    evidence = tmp_path / "e.sqlite"
    ended = program.compare(server, server, "--blocks", "1", "--evidence", evidence)
    assert ended.status == 1
    (complaint,) = ended.complaints
    assert "need about" in complaint
    assert f"are free on the disk of the cache {small_disk}: " in complaint
    assert ": copy" not in ended.err
    assert program.survivors() == []
    assert not [path for path in (small_disk / "datasets").iterdir() if path.is_dir()]
    assert not evidence.exists()


@pytest.fixture
def cramped(small_disk: Path, build: Build, account: Account) -> Iterator[Server]:
    """A running server with its data on the small disk."""
    cluster = Cluster(build, small_disk / "data", account)
    cluster.initdb(InitOptions(sync=False))
    # The copied data is not WAL-logged: if WAL itself cannot grow, PostgreSQL exits.
    settings = {"max_wal_size": "32MB", "wal_level": "minimal", "max_wal_senders": "0"}
    with cluster.start(settings) as server:
        yield server


def test_a_disk_that_fills_up_during_a_load_leaves_no_complete_dataset(
    program: Program, cramped: Server
) -> None:
    # A role that may not read the server's data directory cannot be warned.
    with closing(cramped.connect()) as connection:
        connection.execute("create role humble login createdb")
    dsn = f"{cramped.conninfo()} user=humble"
    ended = program.run("compare", *SMALLEST, dsn, dsn)
    assert ended.status == 1
    (complaint,) = ended.complaints
    assert "the server's disk is full" in complaint
    assert "free disk space of the server is unknown" in ended.err
    ended = program.run("load", f"{cramped.conninfo('named')} user=humble")
    assert ended.status == 1
    assert "the server's disk is full" in ended.complaints[0]
    assert "free disk space of the server is unknown" in ended.err
    assert program.survivors() == []
    assert databases(cramped) == {"postgres", "template0", "template1"}


def test_whether_a_disk_that_is_not_seen_will_do_is_wondered_about_only_before_a_load(
    program: Program, cramped: Server, small_disk: Path
) -> None:
    resize(small_disk, "1g")
    with closing(cramped.connect()) as connection:
        connection.execute("create role humble login createdb")
    dsn = f"{cramped.conninfo()} user=humble"
    for loads in (1, 0):  # two arms with the same data; the second study loads nothing
        ended = program.compare(dsn, dsn, "--blocks", "1")
        assert ended.status == 0, ended.err
        assert ended.err.count("free disk space of the server is unknown") == loads


def test_a_running_server_without_disk_space_is_rejected_before_a_row_is_sent(
    program: Program, cramped: Server
) -> None:
    dsn = cramped.conninfo()
    for words in (("compare", *SMALLEST, dsn, dsn), ("load", cramped.conninfo("named"))):
        ended = program.run(*words)
        assert ended.status == 1
        (complaint,) = ended.complaints
        assert "are free on the disk of" in complaint
        assert databases(cramped) == {"postgres", "template0", "template1"}


def test_a_disk_without_space_for_a_copy_is_rejected_before_the_copy(
    program: Program, cramped: Server, small_disk: Path
) -> None:
    resize(small_disk, "1g")
    dsn = cramped.conninfo()
    ended = program.compare(dsn, dsn, "--blocks", "1")
    assert ended.status == 0, ended.err
    # The smallest size that holds the existing data and 16 MB.
    resize(small_disk, f"{(shutil.disk_usage(small_disk).used >> 10) + (16 << 10)}k")
    before = databases(cramped)
    ended = program.compare(dsn, dsn, "--blocks", "1")
    assert ended.status == 1
    (complaint,) = ended.complaints
    assert "2 copies of the dataset need about" in complaint
    assert "are free on the disk of" in complaint
    assert databases(cramped) == before


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def databases(server: Server) -> set[str]:
    with closing(server.connect()) as connection:
        return {name for (name,) in connection.execute("select datname from pg_database").fetchall()}
