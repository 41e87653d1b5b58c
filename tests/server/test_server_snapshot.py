"""Restores of real data directories: whole, incremental, checked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.errors import DatasetError
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.datasets import DatasetKey, Datasets
from pgdyno.server.restore import restore
from pgdyno.server.server_account import Account
from pgdyno.server.snapshot import take

pytestmark = pytest.mark.server


def fill(cluster: Cluster, statement: str = "create table t as select generate_series(1, 5000) as n") -> None:
    with cluster.start() as server, server.connect() as connection:
        connection.execute(statement)


def test_a_restored_directory_starts_without_recovery_and_holds_the_data(
    cluster: Cluster, account: Account, server_dir: Path
) -> None:
    fill(cluster)
    snapshot = take(cluster.data_dir)
    done = restore(snapshot, server_dir / "live", account)
    assert done.files_copied > 900
    assert done.bytes_copied == snapshot.size_bytes
    with (
        Cluster(cluster.build, server_dir / "live", account).start() as server,
        server.connect() as connection,
    ):
        assert connection.execute("select count(*) from t").fetchone() == (5000,)
        assert "database system was shut down at" in server.log()
        assert "interrupted" not in server.log()


def test_a_second_restore_copies_only_what_changed_and_undoes_all_of_it(
    cluster: Cluster, account: Account, server_dir: Path
) -> None:
    fill(cluster)
    snapshot = take(cluster.data_dir)
    first = restore(snapshot, server_dir / "live", account)
    live = Cluster(cluster.build, server_dir / "live", account)
    fill(live, "update t set n = -n; create table extra as select 1 as one")
    again = restore(snapshot, live.data_dir, account)
    assert 0 < again.files_copied < first.files_copied / 4
    assert again.files_copied + again.files_kept == first.files_copied
    assert again.files_removed > 0
    with live.start() as server, server.connect() as connection:
        assert connection.execute("select min(n) from t").fetchone() == (1,)
        assert connection.execute("select to_regclass('extra')").fetchone() == (None,)


def test_a_restore_after_a_crash_needs_no_recovery(
    cluster: Cluster, account: Account, server_dir: Path
) -> None:
    snapshot = take(cluster.data_dir)
    restore(snapshot, server_dir / "live", account)
    live = Cluster(cluster.build, server_dir / "live", account)
    server = live.start()
    os.kill(server.postmaster_pid, signal.SIGKILL)
    server.abandon()
    restore(snapshot, live.data_dir, account)
    with live.start() as server:
        assert "interrupted" not in server.log()


def test_a_directory_that_a_server_runs_on_is_neither_taken_nor_restored(
    cluster: Cluster, account: Account
) -> None:
    snapshot = take(cluster.data_dir)
    with cluster.start():
        with pytest.raises(DatasetError, match="may be a server running"):
            restore(snapshot, cluster.data_dir, account)
        with pytest.raises(DatasetError, match="in_production"):
            take(cluster.data_dir)


def test_a_tablespace_is_refused(cluster: Cluster, account: Account, server_dir: Path) -> None:
    place = server_dir / "space"
    place.mkdir(mode=0o700)
    account.own(place)
    fill(cluster, f"create tablespace elsewhere location '{place}'")
    with pytest.raises(DatasetError, match="tablespaces"):
        take(cluster.data_dir)


@pytest.fixture
def datasets(account: Account, server_dir: Path) -> Datasets:
    (server_dir / "datasets").mkdir()
    return Datasets(server_dir / "datasets", account)


@pytest.fixture
def key(cluster: Cluster) -> DatasetKey:
    return DatasetKey(cluster.build.build_id, InitOptions(), "nothing", {"rows": 1}, seed=1, format="1")


@pytest.fixture
def make(cluster: Cluster, account: Account) -> Callable[[Path], None]:
    def copy(data_dir: Path) -> None:
        restore(take(cluster.data_dir), data_dir, account, sync=False)

    return copy


def test_a_dataset_is_made_once_and_then_found(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    with datasets.hold(key, make) as first:
        assert first.snapshot.size_bytes > 20_000_000
    with datasets.hold(key, lambda _: pytest.fail("made twice")) as second:
        assert second.snapshot.entries == first.snapshot.entries
        assert not datasets.remove(key.name), "a dataset in use was removed"
    assert datasets.remove(key.name)
    assert datasets.names() == []


def test_an_interrupted_dataset_leaves_nothing_that_looks_whole(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    def interrupted(data_dir: Path) -> None:
        make(data_dir)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), datasets.hold(key, interrupted):
        pytest.fail("there is no dataset to hold")
    assert datasets.names() == []


def test_what_a_dead_maker_left_is_swept(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    left = datasets.directory / f".{key.name}.part"
    make_left = left / "data"
    left.mkdir()
    make(make_left)
    with datasets.hold(DatasetKey("other", InitOptions(), "nothing", {}, 1, "1"), make):
        assert datasets.sweep() == [key.name]
    assert not left.exists()


def test_a_damaged_dataset_is_made_again(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    with datasets.hold(key, make) as dataset:
        version_file = dataset.snapshot.data_dir / "PG_VERSION"
    version_file.write_text("9.6 or so")
    with datasets.hold(key, make):
        assert version_file.read_text() != "9.6 or so"


def test_a_dataset_that_is_damaged_while_we_hold_it_is_an_error_and_not_a_wait_for_ourselves(
    key: DatasetKey, make: Callable[[Path], None], datasets: Datasets
) -> None:
    with datasets.hold(key, make) as dataset:
        (dataset.snapshot.data_dir / "PG_VERSION").write_text("9.6 or so")
        with pytest.raises(DatasetError, match="was changed while"), datasets.hold(key, make):
            pytest.fail("there is nothing to hold")
    with datasets.hold(key, make) as again:
        assert (again.snapshot.data_dir / "PG_VERSION").read_text() != "9.6 or so"
