"""Restores of real data directories: complete, incremental, verified."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.errors import DatasetError
from pgdyno.measure.dataset_loading import load_settings
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, InitOptions, Server
from pgdyno.server.snapshots import DatasetKey, Datasets, Snapshot, restore, take, walk

pytestmark = pytest.mark.server


def test_a_directory_with_a_running_server_is_neither_snapshotted_nor_restored(
    cluster: Cluster, account: Account
) -> None:
    snapshot = take(cluster.data_dir)
    with cluster.start():
        with pytest.raises(DatasetError, match="is a server running on it"):
            restore(snapshot, cluster.data_dir, account)
        with pytest.raises(DatasetError, match="in_production"):
            take(cluster.data_dir)


def test_a_process_id_that_another_program_has_now_does_not_prevent_a_restore(
    cluster: Cluster, empty_cluster: Cluster, account: Account
) -> None:
    for pid in (os.getpid(), 1):
        (cluster.data_dir / "postmaster.pid").write_text(f"{pid}\n")
        restore(take(empty_cluster.data_dir), cluster.data_dir, account, sync=False)
        assert not (cluster.data_dir / "postmaster.pid").exists()


def test_a_tablespace_is_rejected(cluster: Cluster, account: Account, server_dir: Path) -> None:
    place = server_dir / "space"
    place.mkdir(mode=0o700)
    account.own(place)
    with cluster.start() as server:
        run(server, f"create tablespace elsewhere location '{place}'")
    with pytest.raises(DatasetError, match="tablespaces"):
        take(cluster.data_dir)


POPULATION = """
    create table settled as select n, repeat('x', 200) as filler from generate_series(1, 10000) n;
    create table hinted as table settled;
    create table vacuumed as table settled;
    create table cut as table settled;
    create unlogged table brief as table settled;
    create table indexed as
        select n, n % 100 as m, point(n % 97, n % 89) as at, array[n % 7, n % 11] as many, 'k' || n as word
        from generate_series(1, 10000) n;
    create index on brief (n);
    create index on indexed using btree (n);
    create index on indexed using hash (m);
    create index on indexed using gist (at);
    create index on indexed using gin (many);
    create index on indexed using spgist (word);
    create index on indexed using brin (m);
    create sequence counted;
    vacuum freeze settled;
    checkpoint;
    update hinted set n = n + 1 where n % 3 = 0;
    update vacuumed set n = n + 1 where n % 3 = 0;
"""
"""The last statements leave rows without hint bits. As in the lab, the tables are loaded without WAL."""

USES = {
    "reads that set hint bits": "select count(*) from hinted",
    "an update": "update settled set n = -n where n % 500 = 0",
    "an update that is rolled back": "begin; update settled set n = -n where n % 500 = 0; rollback",
    "a vacuum": "vacuum (freeze, analyze) vacuumed",
    "a file that grows": "insert into cut select n, 'y' from generate_series(1, 25000) n",
    "a file that shrinks": "delete from cut where n > 4500; vacuum (truncate) cut",
    "a file that shrinks and grows": "delete from cut where n > 4500; vacuum (truncate) cut;"
    " insert into cut select n, repeat('z', 200) from generate_series(1, 15000) n",
    "a truncation": "truncate cut; insert into cut select n, 'y' from generate_series(1, 500) n",
    "a new index": "create index on settled (n); reindex table indexed; cluster indexed using indexed_n_idx",
    "an unlogged table": "update brief set n = -n where n % 500 = 0",
    "indexes": "insert into indexed select n, 1, point(n % 50, 1), array[3], 'q' || n"
    " from generate_series(1, 3000) n; delete from indexed where n % 400 = 0; vacuum indexed;"
    " set enable_seqscan = off; select count(*) from indexed where m = 1",
    "a sequence": "select nextval('counted') from generate_series(1, 100)",
}
"""Every fourth of them is on other tables."""


Populated = tuple[Snapshot, Cluster, dict[str, str]]
"""A snapshot, a live directory restored from it, and the digests of their files."""


@pytest.fixture(scope="module")
def populated_with(build: Build, account: Account, module_dir: Path) -> Callable[[bool], Populated]:
    """Return a function that makes a snapshot with or without data checksums. Each test leaves the live
    directory as it was.
    """

    @functools.cache
    def make(checksums: bool) -> Populated:
        place = module_dir / f"checksums-{checksums}"
        origin = Cluster(build, place / "origin", account)
        origin.initdb(InitOptions(checksums=checksums, sync=False))
        place.chmod(0o755)
        with origin.start({**load_settings(build), "shared_buffers": "64MB"}) as server:
            run(server, POPULATION)
        snapshot = take(origin.data_dir)
        restore(snapshot, place / "live", account, sync=False)
        expected = contents(origin.data_dir)
        assert contents(place / "live") == expected
        return snapshot, Cluster(build, place / "live", account), expected

    return make


def run(server: Server, statements: str) -> None:
    with server.connect() as connection:
        for statement in statements.split(";"):
            if statement.strip():
                connection.execute(statement.encode())


def contents(data_dir: Path) -> dict[str, str]:
    """Return the digest of every file in a snapshot."""
    return {
        path: hashlib.sha256((data_dir / path).read_bytes()).hexdigest()
        for path, found in walk(data_dir)
        if stat.S_ISREG(found.st_mode)
    }


@pytest.mark.parametrize(
    ("checksums", "uses"),
    [
        *((True, [*USES][first::4]) for first in range(4)),
        # Without checksums, hint bits are set in pages without WAL.
        (False, ["reads that set hint bits", "an update", "a vacuum"]),
    ],
)
def test_a_restored_directory_equals_its_snapshot_byte_for_byte_after(
    populated_with: Callable[[bool], Populated], account: Account, checksums: bool, uses: list[str]
) -> None:
    snapshot, live, expected = populated_with(checksums)
    with live.start({"autovacuum": "off"}) as server:
        for use in uses:
            run(server, USES[use])
    used = contents(live.data_dir)
    assert {path for path in expected if path.startswith("base/") and used.get(path) != expected[path]}
    done = restore(snapshot, live.data_dir, account, sync=False)
    assert contents(live.data_dir) == expected
    assert done.files_kept > 900
    assert take(live.data_dir).entries == snapshot.entries


def test_after_a_crash_and_its_recovery_a_restored_directory_equals_its_snapshot(
    populated_with: Callable[[bool], Populated], account: Account
) -> None:
    snapshot, live, expected = populated_with(True)
    server = live.start({"shared_buffers": "1MB", "autovacuum": "off"})
    run(server, USES["indexes"] + ";" + USES["an update"] + ";" + USES["an unlogged table"])
    server.stop("immediate")
    with live.start() as server:
        run(server, USES["a vacuum"])
    server = live.start()
    run(server, USES["a file that shrinks and grows"])
    server.stop("immediate")
    restore(snapshot, live.data_dir, account, sync=False)
    assert contents(live.data_dir) == expected


@pytest.fixture
def datasets(account: Account, server_dir: Path) -> Datasets:
    (server_dir / "datasets").mkdir()
    return Datasets(server_dir / "datasets", account)


@pytest.fixture
def key(build: Build) -> DatasetKey:
    return DatasetKey(build.build_id, InitOptions(), "nothing", {"rows": 1}, seed=1, format="1")


@pytest.fixture
def make(empty_cluster: Cluster) -> Callable[[Path], None]:
    """Return a function that makes what a snapshot needs of a data directory."""

    def copy(data_dir: Path) -> None:
        (data_dir / "global").mkdir(parents=True)
        for name in ("PG_VERSION", "global/pg_control"):
            shutil.copy(empty_cluster.data_dir / name, data_dir / name)

    return copy


def test_a_dataset_is_created_once_and_then_reused(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    with datasets.hold(key, make) as first:
        assert first.snapshot.entries.keys() > {"global/pg_control"}
    with datasets.hold(key, lambda _: pytest.fail("made twice")) as second:
        assert second.snapshot.entries == first.snapshot.entries
        assert not datasets.remove(key.name), "a dataset in use was removed"
    assert datasets.remove(key.name)
    assert datasets.names() == []


def test_an_interrupted_load_leaves_no_complete_dataset(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    def interrupted(data_dir: Path) -> None:
        make(data_dir)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), datasets.hold(key, interrupted):
        pytest.fail("there is no dataset to hold")
    assert datasets.names() == []


def test_remains_of_a_dead_process_are_removed(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    left = datasets.directory / f".{key.name}.part"
    make_left = left / "data"
    left.mkdir()
    make(make_left)
    with datasets.hold(DatasetKey("other", InitOptions(), "nothing", {}, 1, "1"), make):
        assert datasets.sweep() == [key.name]
    assert not left.exists()


def test_a_damaged_dataset_is_rebuilt(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    with datasets.hold(key, make) as dataset:
        version_file = dataset.snapshot.data_dir / "PG_VERSION"
    version_file.write_text("9.6 or so")
    with datasets.hold(key, make):
        assert version_file.read_text() != "9.6 or so"


def test_a_dataset_damaged_while_locked_is_an_error_and_not_a_deadlock(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    with datasets.hold(key, make) as dataset:
        (dataset.snapshot.data_dir / "PG_VERSION").write_text("9.6 or so")
        with pytest.raises(DatasetError, match="was changed while"), datasets.hold(key, make):
            pytest.fail("there is nothing to hold")
    with datasets.hold(key, make) as again:
        assert (again.snapshot.data_dir / "PG_VERSION").read_text() != "9.6 or so"
