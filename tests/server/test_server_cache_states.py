"""Cold, prewarmed, recovered: the initial states of a trial, on a real server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from server_of_major import build_of
from small_study import COUNTED, run_small, small_study

from pgdyno.analysis.study_findings import find_study
from pgdyno.errors import ServerError
from pgdyno.measure.arms import BuildArm, Placement
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, Connection, LiveDirectory, Server
from pgdyno.server.snapshots import evict, prewarm, resident_share, take

pytestmark = pytest.mark.server

MEMORY_ONLY = "NO DISK: the temporary directory lies in memory, which nothing can be evicted from"


def value(connection: Connection, query: bytes) -> object:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_a_file_just_written_is_evicted_and_cached_again_when_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "dirty").write_bytes(b"x" * 3_000_001)
    (data / "empty").touch()
    elsewhere = tmp_path / "wal"
    elsewhere.mkdir()
    (elsewhere / "segment").write_bytes(b"y" * 1_000_000)
    (data / "pg_wal").symlink_to(elsewhere)
    assert resident_share(data) == 1.0
    if evict(data) == 1.0:
        pytest.skip(MEMORY_ONLY)
    assert resident_share(data) == 0.0
    assert resident_share(elsewhere) == 0.0
    (data / "dirty").read_bytes()
    assert 0.5 < resident_share(data) <= 1.0
    assert (elsewhere / "segment").read_bytes() == b"y" * 1_000_000


def test_a_directory_without_a_page_is_wholly_resident(tmp_path: Path) -> None:
    assert resident_share(tmp_path) == 1.0
    assert evict(tmp_path) == 1.0


@pytest.fixture
def filled(running_server: Server) -> Iterator[str]:
    """A database with a table of several blocks, its index and its TOAST table."""
    with running_server.connect() as connection:
        connection.execute("create database filled")
    with running_server.connect("filled") as connection:
        connection.execute(
            "create table t (n int primary key, long text);"
            " alter table t alter long set storage external;"
            " insert into t select n, repeat('x', 5000) from generate_series(1, 500) as n"
        )
        connection.execute("create role reader login; grant select on t to reader")
    yield "filled"
    with running_server.connect() as connection:
        connection.execute("drop database filled with (force)")
        connection.execute("drop role reader")


BUFFERED = b"""
    select count(distinct relfilenode) from pg_buffercache
    where reldatabase = (select oid from pg_database where datname = current_database())
      and relfilenode in (
        select pg_relation_filenode(oid) from pg_class
        where oid in ('t'::regclass, 't_pkey'::regclass)
           or oid = (select reltoastrelid from pg_class where oid = 't'::regclass))
"""


def test_the_extension_reads_tables_indexes_and_toast_into_shared_buffers(
    running_server: Server, filled: str
) -> None:
    with running_server.connect(filled) as connection:
        available = (
            "select count(*) from pg_available_extensions where name in ('pg_prewarm', 'pg_buffercache')"
        )
        if value(connection, available.encode()) != 2:
            pytest.skip("NO CONTRIB: this build has no pg_prewarm and pg_buffercache")
        assert prewarm(connection) == "pg_prewarm"
        connection.execute("create extension pg_buffercache")
        assert value(connection, BUFFERED) == 3


def as_reader(server: Server, database: str) -> Connection:
    return psycopg.connect(server.conninfo(database), user="reader", autocommit=True)


def test_without_the_extension_the_files_are_read_into_the_systems_cache(
    running_server: Server, filled: str
) -> None:
    with running_server.connect(filled) as connection:
        connection.execute("checkpoint")
        path = running_server.data_dir / str(value(connection, b"select pg_relation_filepath('t')"))
    with as_reader(running_server, filled) as connection:
        before = psutil.Process().io_counters().read_chars
        assert prewarm(connection, running_server.data_dir) == "files"
    assert psutil.Process().io_counters().read_chars - before > path.stat().st_size > 0


def test_a_server_with_inaccessible_files_is_scanned(
    running_server: Server, filled: str, tmp_path: Path
) -> None:
    with as_reader(running_server, filled) as connection:
        assert prewarm(connection) == prewarm(connection, tmp_path) == "scans"
        assert value(connection, b"show enable_indexscan") == "on"


@pytest.fixture
def arm(empty_cluster: Cluster, server_dir: Path) -> Iterator[BuildArm]:
    with arm_on(empty_cluster, server_dir) as arm:
        yield arm


@contextlib.contextmanager
def arm_on(cluster: Cluster, server_dir: Path) -> Iterator[BuildArm]:
    """An arm with the snapshot of a separate cluster, started."""
    run = LiveDirectory(server_dir / "run")
    run.path.mkdir()
    run.path.chmod(0o711)
    arm = BuildArm(
        index=0,
        name="a",
        build=cluster.build,
        database="postgres",
        settings={"shared_buffers": "40MB", "log_checkpoints": "on"},
        optional=(),
        snapshot=take(cluster.data_dir),
        placement=Placement("data", [run]),
        position=0,
        seed=1,
        account=cluster.account,
    )
    arm.restore(0)
    arm.start()
    try:
        yield arm
    finally:
        arm.stop()


def test_crash_recovery_replays_the_wal_since_the_checkpoint(arm: BuildArm) -> None:
    with arm.connect() as connection:
        connection.execute("create table t as select 1 as n from generate_series(1, 20000); checkpoint")
        connection.execute("update t set n = 2")
    recovery_s = arm.recover()
    log = arm.log() or ""
    assert "database system was not properly shut down" in log
    assert "redo done" in log
    assert log.count("starting PostgreSQL") == 1
    assert recovery_s == arm.running.ready_s > 0
    with arm.connect() as connection:
        assert value(connection, b"select sum(n) from t") == 40000
    assert arm.effective()["shared_buffers"] == "40MB"


@pytest.mark.parametrize("major", [OLDEST_MAJOR, NEWEST_MAJOR])
def test_the_oldest_and_the_newest_version_are_prewarmed_and_crashed(
    major: int, empty_cluster_of: Callable[[Build], Cluster], server_dir: Path
) -> None:
    with arm_on(empty_cluster_of(build_of(Cache.open(), major)), server_dir) as arm:
        with arm.connect() as connection:
            connection.execute("create table t as select 1 as n from generate_series(1, 20000); checkpoint")
            assert prewarm(connection, arm.run.data_dir) in ("pg_prewarm", "files")
            connection.execute("update t set n = 2")
        assert arm.recover() > 0
        assert "redo done" in (arm.log() or "")


def test_a_restart_in_order_replays_nothing(arm: BuildArm) -> None:
    with arm.connect() as connection:
        connection.execute("create table t as select 1 as n from generate_series(1, 20000)")
    restart_s = arm.restart()
    log = arm.log() or ""
    assert "database system was shut down at" in log
    assert "redo" not in log
    assert restart_s > arm.running.ready_s > 0
    with arm.connect() as connection:
        assert value(connection, b"select sum(n) from t") == 20000


@pytest.mark.parametrize(
    ("blocks", "recovery", "checkpointed", "recovered"), [(1, False, [0], []), (2, True, [1], [0])]
)
def test_a_trial_ends_with_a_checkpoint_or_a_recovery_and_a_restart(
    build: Build, tmp_path: Path, blocks: int, recovery: bool, checkpointed: list[int], recovered: list[int]
) -> None:
    ends = {"recovery": recovery, "checkpoint_after": True, "probes": ("wal",), **COUNTED}
    study = small_study([f"A={build.bin_dir}", f"B={build.bin_dir}"], blocks_max=blocks, aa=False, **ends)
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    with Evidence(path) as evidence:
        trials = evidence.trials()
        found = find_study(evidence).first
    with_checkpoint = [trial for trial in trials if (trial.driver.last_checkpoint_s or 0) > 0]
    assert sorted({trial.block for trial in with_checkpoint}) == checkpointed
    assert sorted({trial.block for trial in trials if (trial.recovery_s or 0) > 0}) == recovered
    assert all((trial.restart_s or 0) > 0 for trial in trials) and len(trials) == 2 * blocks
    values = found.telemetry.by_trial[with_checkpoint[0].trial].values
    assert values["trial.checkpoint_s"] == with_checkpoint[0].driver.last_checkpoint_s


def test_a_process_that_ended_before_its_kill_is_reported(arm: BuildArm) -> None:
    arm.running.stop("immediate")
    with pytest.raises(ServerError, match="exited unexpectedly"):
        arm.recover()
    arm.stop()
    with pytest.raises(ServerError, match="is not running"):
        arm.restart()


def test_an_arm_changes_its_directory_from_block_to_block_and_its_data_are_restored(
    arm: BuildArm, server_dir: Path
) -> None:
    arm.stop()
    other = LiveDirectory(server_dir / "other")
    other.path.mkdir()
    other.path.chmod(0o711)
    arm.placement.directories.append(other)
    used = []
    for block in range(4):
        arm.restore(block)
        used.append(arm.data_path())
        arm.start()
        with arm.connect() as connection:
            connection.execute("create table t()")  # fails unless the data is restored
        arm.stop()
    assert used[0] != used[1] and used[2] != used[3]
