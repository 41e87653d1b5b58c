"""Interrupted loads and full disks: no incomplete dataset appears complete."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import TINY, Program

from pgdyno.server.builds import Build
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, InitOptions, Server

LARGE = (*TINY, "--scale", "50")
"""Data of 800 MB."""


def in_cache(program: Program) -> set[Path]:
    """Return the datasets, complete or not, and what belongs to a running study."""
    cache = program.cache
    datasets = {path for path in cache.glob("datasets/*") if path.is_dir()}
    return datasets.union(cache.glob("runs/run-*"), program.sockets.iterdir())


def test_an_interrupted_load_leaves_nothing(program: Program, server: str, tmp_path: Path) -> None:
    evidence, before = tmp_path / "e.sqlite", in_cache(program)
    running = program.start("compare", *LARGE, "--evidence", evidence, server, server)
    running.until(lambda: ": copy" in running.err.read_text())
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130
    assert ended.complaints == ["pgdyno: the load was interrupted; no incomplete data are left"]
    assert program.survivors() == []
    assert in_cache(program) <= before
    assert not list(tmp_path.glob("e.*"))


@pytest.fixture
def small_disk(server_dir: Path) -> Iterator[Path]:
    """A file system of 150 MB: enough for an empty cluster, not for the large data."""
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
    ended = program.refuse("compare", *LARGE, "--evidence", evidence, server, server)
    assert "need about" in ended.complaint
    assert f"are free on the disk of the cache {small_disk}: " in ended.complaint
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


def test_a_running_server_without_disk_space_gets_no_row_copy_or_incomplete_database(
    program: Program, cramped: Server, small_disk: Path
) -> None:
    dsn, named, templates = cramped.conninfo(), cramped.conninfo("named"), databases(cramped)
    load = ("load", "--workload", "pgbench", "--scale", "50")
    for words in (("compare", *LARGE, dsn, dsn), (*load, named)):
        complaint = program.refuse(*words).complaint
        assert "are free on the disk of" in complaint
        assert databases(cramped) == templates

    # A role that may not read the server's data directory cannot be warned: the disk fills up.
    with closing(cramped.connect()) as connection:
        connection.execute("create role humble login createdb")
    humble = f"{dsn} user=humble"
    for words in (("compare", *LARGE, humble, humble), (*load, f"{named} user=humble")):
        ended = program.refuse(*words)
        assert "the server's disk is full" in ended.complaint
        assert "free disk space of the server is unknown" in ended.err
        assert databases(cramped) == templates
    assert program.survivors() == []

    resize(small_disk, "1g")
    ended = program.succeed("compare", *TINY, humble, humble)
    assert ended.err.count("free disk space of the server is unknown") == 1  # for both arms
    # The smallest size that holds the existing data and 16 MB: too small for the copies.
    resize(small_disk, f"{(shutil.disk_usage(small_disk).used >> 10) + (16 << 10)}k")
    before = databases(cramped)
    complaint = program.refuse("compare", *TINY, dsn, dsn).complaint
    assert "2 copies of the dataset need about" in complaint
    assert "are free on the disk of" in complaint
    assert databases(cramped) == before


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def databases(server: Server) -> set[str]:
    with closing(server.connect()) as connection:
        return {name for (name,) in connection.execute("select datname from pg_database").fetchall()}
