"""Telemetry of real servers, from reading to value: the result is the work done between two readings."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import pytest
from server_of_major import OLDEST_MIDDLE_NEWEST, build_of

from ok_trial import ok_trial
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry, telemetry_of_trial
from pgdyno.measure.server_probes import PROBES, read_probe
from pgdyno.results.records import Moment, Slice, StoredReading, Trial
from pgdyno.server.builds import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, Connection, Server
from pgdyno.study.schedule import Role

pytestmark = pytest.mark.server

SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "autovacuum": "off",  # these tests count only their own work
    "track_io_timing": "on",
    "fsync": "off",  # no test depends on durability
}
PATIENCE_S, PAUSE_S = 60.0, 0.05
"""Time limit for statistics that arrive within a second, and the pause between two readings."""

UPDATES, ROWS = 40, 2000
UPDATE = "UPDATE accounts SET balance = balance + $1 WHERE id = $2"


@pytest.fixture(scope="module", params=OLDEST_MIDDLE_NEWEST)
def cluster(
    request: pytest.FixtureRequest, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Cluster]:
    with new_cluster(build_of(Cache.open(), request.param)) as made:
        yield made


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    """A server of both tests. The last one stops it."""
    with cluster.start(SETTINGS) as running:
        with running.connect() as connection:
            connection.execute("create extension pg_stat_statements")
            connection.execute("create extension pgstattuple")
            connection.execute(
                "create table accounts (id int primary key, balance int, filler text) with (fillfactor = 50)"
            )
            connection.execute(
                f"insert into accounts select i, 0, repeat('x', 100) from generate_series(1, {ROWS}) i"
            )
            connection.execute("vacuum analyze accounts")
        yield running


def read_all(server: Server, moment: Moment, at_s: float) -> list[StoredReading]:
    """Read from a new connection: sessions report their statistics at the latest when they end."""
    with server.connect() as connection:
        read_now = [read_probe(connection, probe) for probe in PROBES]
    return [StoredReading(one.probe, moment, at_s, one.took_s, one.rows, one.reason) for one in read_now]


def told(
    server: Server,
    work: Callable[[Connection], None],
    transactions: int,
    arrived: Callable[[TrialTelemetry], bool],
) -> TrialTelemetry:
    """Return the values of the probes for this work, once its statistics have arrived.

    A backend reports its statistics at the latest when it ends. Before version 15 the statistics collector
    receives them, and readers accept a file that is half a second old.
    """
    begin = read_all(server, Moment.BEGIN, 0.0)
    with server.connect() as connection:
        backend = os.pidfd_open(connection.info.backend_pid)
        work(connection)
    ended, _, _ = select.select([backend], [], [], PATIENCE_S)
    os.close(backend)
    assert ended, "the backend did not end with its connection"

    def now() -> TrialTelemetry:
        return telemetry_of_trial(trial(transactions), [*begin, *read_all(server, Moment.END, 2.0)])

    deadline_s, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not arrived(found := now()):
        assert time.monotonic() < deadline_s, f"it never arrived: {found}"
        pause.wait(PAUSE_S)
    # Statistics that arrived while the probes were read one by one may be missing from the first ones.
    return now()


def trial(transactions: int, slices: Sequence[Slice] = ()) -> Trial:
    piece = Slice(0, Role.MEASURE, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0, {})
    return ok_trial(transactions=transactions, slices=slices or [piece])


def update(connection: Connection) -> None:
    for i in range(1, UPDATES + 1):
        connection.execute(f"UPDATE accounts SET balance = balance + 1 WHERE id = {i}")


def test_values_are_the_work_between_the_readings(server: Server) -> None:
    per_tx = "relation.updates_per_tx:accounts"
    # The probes are read one by one: the work must have arrived in all of them.
    found = told(
        server, update, UPDATES, lambda of: of.values[per_tx] >= 1 and "database.hit_share" in of.values
    )
    values, major = found.values, server.build.version.major
    assert values[f"statement.calls:{UPDATE}"] == UPDATES
    assert values[f"statement.rows_per_call:{UPDATE}"] == 1
    assert values[f"statement.mean_ms:{UPDATE}"] > 0
    assert 0 < values[f"statement.share_of_time:{UPDATE}"] <= 100 + 1e-9
    assert values["relation.updates_per_tx:accounts"] == 1
    # Half of each page is free, and the balance is not indexed: all new versions stay on their page.
    assert values["relation.hot_share:accounts"] == values["relations.hot_share"] == 100
    assert 0 <= values["relation.dead_tuples:accounts"] <= UPDATES  # some are pruned immediately
    assert values["relation.autovacuums:accounts"] == 0
    assert values["relation.growth:accounts"] == 0
    assert values["relation.indexes_bytes:accounts"] == values["relation.bytes:accounts_pkey"] > 0
    assert 60 < values["relation.tuple_percent:accounts"] + values["relation.free_percent:accounts"] < 100
    assert values["relation.leaf_density:accounts_pkey"] > 80
    # Every change writes at least a record with the tuple, and the first change of a page a full-page image.
    assert values["wal.bytes_per_tx"] > 120
    assert values["wal.bytes_per_s"] == pytest.approx(values["wal.bytes"] / 2)
    assert values["wraparound.xids_per_tx"] >= 1
    assert values["database.deadlocks"] == 0 and values["database.temp_files"] == 0
    assert 50 < values["database.hit_share"] <= 100
    assert ("wal.fpi_per_tx" in values) == (major >= 14)
    assert ("io.read_bytes_per_tx" in values) == (major >= 16)
    missing = {"io"} if major < 16 else set()
    assert set(found.missing) == missing


def test_after_a_crash_under_the_probe_there_are_no_negative_numbers(
    server: Server, cluster: Cluster
) -> None:
    with server.connect() as connection:
        update(connection)
    begin = read_all(server, Moment.BEGIN, 0.0)
    server.stop("immediate")
    with cluster.start(SETTINGS) as again:
        with again.connect() as connection:
            update(connection)
        found = telemetry_of_trial(trial(UPDATES), [*begin, *read_all(again, Moment.END, 2.0)])
    shrinkable = ("growth", "age")
    assert not [key for key, n in found.values.items() if n < 0 and not any(w in key for w in shrinkable)]
    assert found.reset
