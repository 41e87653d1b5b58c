"""The sampler with real servers: one that runs on, one that is restarted, one that is lost."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np
import psycopg
import pytest

from pgdyno.measure.host_counters import HostCounters
from pgdyno.measure.sampler import Chunk, Sampler, SeriesEnd, Target
from pgdyno.server.processes import Cluster, Connection, Server

pytestmark = pytest.mark.server

STEP_S = 0.02
PATIENCE_S = 60.0
"""Time limit, which is only reached after a failure."""


@pytest.fixture(autouse=True)
def _samples_end_before_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sample is cut when a machine stalls."""
    monkeypatch.setattr("pgdyno.measure.sampler.GRACE_S", PATIENCE_S)


class Watched:
    """Samples a server and passes each sample to the test."""

    def __init__(self) -> None:
        self.seen: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.locked = threading.Event()

    def sample(self, connection: Connection) -> Mapping[str, float]:
        row = connection.execute(
            "select xact_commit::float8, extract(epoch from pg_postmaster_start_time())::float8"
            " from pg_stat_database where datname = current_database()"
        ).fetchone()
        assert row is not None
        self.seen.put(row[1])
        return {"commits": row[0]}

    def waits(self, connection: Connection) -> Mapping[str, float]:
        row = connection.execute(
            "select count(*)::float8 from pg_stat_activity"
            " where wait_event_type = 'Lock' and pid <> pg_backend_pid()"
        ).fetchone()
        assert row is not None
        if not row[0]:
            return {}
        self.locked.set()
        return {"Lock": row[0]}

    def wait(self, n: int) -> None:
        """Wait until this number of further samples were taken."""
        for _ in range(n):
            self.seen.get(timeout=PATIENCE_S)

    def wait_for_another_than(self, started_s: float) -> None:
        while self.seen.get(timeout=PATIENCE_S) == started_s:
            pass


@pytest.fixture
def watched() -> Watched:
    return Watched()


def target(server: Server, watched: Watched) -> Target:
    return Target(5, server.connect, watched.sample, watched.waits, lambda: server.postmaster_pid)


@contextlib.contextmanager
def running(sampler: Sampler) -> Iterator[Sampler]:
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()


def of(chunks: list[Chunk], probe: str) -> list[Chunk]:
    return [chunk for chunk in chunks if chunk.probe == probe]


def test_counters_waits_and_host_are_sampled_of_a_real_server(
    running_server: Server, watched: Watched
) -> None:
    host_counters = HostCounters([running_server.data_dir])
    targets = [target(running_server, watched)]
    with running(Sampler(targets, host_counters.read, time.monotonic(), step_s=STEP_S)) as sampler:
        with running_server.connect() as holder, running_server.connect() as waiter:
            holder.execute("select pg_advisory_lock(4711)")
            waiting = threading.Thread(target=waiter.execute, args=("select pg_advisory_lock(4711)",))
            waiting.start()
            assert watched.locked.wait(PATIENCE_S)
            holder.execute("select pg_advisory_unlock(4711)")
            waiting.join()
        watched.wait(5)
    chunks = sampler.drain()
    assert {chunk.target for chunk in chunks} == {5}
    (counters,), (waits,), (host,) = (of(chunks, probe) for probe in ("server", "waits", "host"))
    at_s = counters.points[:, 0]
    assert (np.diff(at_s) > 0).all() and counters.columns[2:] == ("commits",)
    assert waits.points[:, waits.columns.index("Lock")].sum() >= 1
    server_cpu_s = host.points[:, host.columns.index("server_cpu_s")]
    assert (server_cpu_s > 0).all()
    assert {"cpu_busy_s", "memory_available_bytes", "pgdyno_cpu_s"} <= set(host.columns)


def test_a_restarted_server_ends_its_series_with_a_reason_and_starts_a_new_one(
    cluster: Cluster, watched: Watched
) -> None:
    started = [cluster.start()]
    host = HostCounters([cluster.data_dir])
    ours = Target(
        0,
        lambda: started[0].connect(),  # noqa: PLW0108
        watched.sample,
        watched.waits,
        lambda: started[0].postmaster_pid,
    )
    try:
        with running(Sampler([ours], host.read, time.monotonic(), step_s=STEP_S)) as sampler:
            started_s = watched.seen.get(timeout=PATIENCE_S)
            watched.wait(4)  # the last one may be lost with the server
            cost_before = sampler.mark().backends_s[0]
            started[0].stop()
            started[0] = cluster.start()
            watched.wait_for_another_than(started_s)
            watched.wait(4)
            cost_after = sampler.mark().backends_s[0]
    finally:
        started[0].abandon()
    chunks = sampler.drain()
    counters = of(chunks, "server")
    assert len(counters[0].points) >= 4
    assert counters[0].ending is SeriesEnd.SERVER_LOST and counters[0].reason
    assert {chunk.ending for chunk in counters[1:-1]} <= {SeriesEnd.NOT_CONNECTED}
    assert len(counters[-1].points) >= 4
    assert (counters[-1].ending, counters[-1].reason) == (None, "")
    assert [(chunk.ending, chunk.reason) for chunk in of(chunks, "waits")] == [
        (chunk.ending, chunk.reason) for chunk in counters
    ]
    assert cost_before is not None and cost_after is not None
    assert cost_before > 0 < cost_after  # the new backend adds to the old one
    # The machine was sampled all the time, the server's processes while there were any.
    (host_series,) = of(chunks, "host")
    assert np.isfinite(host_series.points[:, host_series.columns.index("cpu_busy_s")]).all()


def test_stopping_cuts_a_query_that_does_not_end(
    running_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgdyno.measure.sampler.GRACE_S", 0.0)
    entered: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def hang(connection: Connection) -> Mapping[str, float]:
        connection.execute("set statement_timeout = 0")
        entered.put(True)
        connection.execute("select pg_sleep(3600)")
        return {}

    targets = [Target(number, running_server.connect, hang) for number in range(2)]
    with running(Sampler(targets, dict, time.monotonic(), step_s=STEP_S)) as sampler:
        entered.get(timeout=PATIENCE_S)
    assert not sampler._thread.is_alive()
    chunks = of(sampler.drain(), "server")
    assert [chunk.target for chunk in chunks] == [0, 1]
    # The thread continued with the other server only after the first connection was closed.
    assert {chunk.ending for chunk in chunks} <= {SeriesEnd.SERVER_LOST, SeriesEnd.NOT_CONNECTED}
    assert all(chunk.reason for chunk in chunks)


def test_stopping_does_not_wait_for_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgdyno.measure.sampler.GRACE_S", 0.0)
    monkeypatch.setattr("pgdyno.measure.sampler.CUT_S", 0.0)
    entered = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        def connect() -> Connection:
            entered.set()
            return psycopg.connect(host="127.0.0.1", port=port, user="nobody", connect_timeout=3600)

        targets = [Target(0, connect, Watched().sample)]
        with running(Sampler(targets, dict, time.monotonic(), step_s=STEP_S)) as sampler:
            assert entered.wait(PATIENCE_S)
        assert sampler._thread.is_alive()
        assert sampler.drain() == []
    # The connection is rejected now: the sampler ends and reports the reason.
    sampler._thread.join(PATIENCE_S)
    assert not sampler._thread.is_alive()
    assert of(sampler.drain(), "server")[0].ending is SeriesEnd.NOT_CONNECTED
