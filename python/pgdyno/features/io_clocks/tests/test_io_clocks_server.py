"""I/O times of real servers: those of EXPLAIN are the oracle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from server_of_major import build_of
from small_study import run_small, small_study

from ok_trial import ok_trial
from pgdyno.analysis.telemetry.trial_telemetry import telemetry_of_trial
from pgdyno.cli.report import read_report
from pgdyno.features.io_clocks.timing import TIMING
from pgdyno.measure.server_probes import read_probe
from pgdyno.results.records import Moment, SampleSeries, Slice, StoredReading, StudyEnd
from pgdyno.server.builds import NEWEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, Server
from pgdyno.study.schedule import Role

pytestmark = pytest.mark.server

SETTINGS = {
    "autovacuum": "off",
    "track_io_timing": "on",
    "shared_buffers": "128kB",  # the table is read from the page cache
    "max_parallel_workers_per_gather": "0",
    "fsync": "off",  # the test does not depend on durability
}
PATIENCE_S, PAUSE_S = 60.0, 0.05
"""Time limit for statistics that arrive within a second, and the pause between two readings."""

FILL = "create table t as select i, repeat('x', 200) from generate_series(1, 60000) i"
EXPLAIN = "explain (analyze, buffers, format json) select count(*) from t"
TRANSACTIONS = 1000
OF_DATABASE = "select blk_read_time + blk_write_time from pg_stat_database where datname = current_database()"
OF_CLIENTS = (
    "select sum(coalesce(read_time, 0) + coalesce(write_time, 0) + coalesce(writeback_time, 0)"
    " + coalesce(extend_time, 0) + coalesce(fsync_time, 0)) from pg_stat_io"
    " where backend_type = 'client backend' and object <> 'wal'"
)
"""I/O time in ms that the server has counted; from 16 on that of clients alone."""
SEEN = SampleSeries(
    "waits",
    ("at_s", "late_s", "samples", "IO/DataFileRead", "background io"),
    np.array([[at_s, 0.0, 1.0, 0.1, 0.0] for at_s in range(1, 9)]),
)


def read(server: Server, moment: Moment, at_s: float) -> list[StoredReading]:
    """Read from a new connection: sessions report their statistics at the latest when they end."""
    with server.connect() as connection:
        found = [read_probe(connection, probe) for probe in ("io", "database")]
    return [StoredReading(one.probe, moment, at_s, one.took_s, one.rows, one.reason) for one in found]


def counted_ms(server: Server) -> float:
    with server.connect() as connection:
        row = connection.execute(OF_CLIENTS if server.build.version.major >= 16 else OF_DATABASE).fetchone()
    assert row is not None
    return float(row[0])


@pytest.mark.parametrize("major", [15, NEWEST_MAJOR])
def test_the_time_of_data_io_is_that_of_explain(cluster_of: Callable[[Build], Cluster], major: int) -> None:
    cluster = cluster_of(build_of(Cache.open(), major))
    with cluster.start(SETTINGS) as server:
        with server.connect() as connection:
            connection.execute(FILL)
            connection.execute("vacuum t")
        counted_before_ms = counted_ms(server)
        begin = read(server, Moment.BEGIN, 0.0)
        with server.connect() as connection:
            row = connection.execute(EXPLAIN).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        explained_ms = plan.get("Shared I/O Read Time", plan.get("I/O Read Time"))
        assert explained_ms > 0
        own = Slice(0, Role.MEASURE, 0.0, 0.0, 10.0, 10.0, 0.0, 0.0, {})
        trial = ok_trial(transactions=TRANSACTIONS, slices=[own], settings=dict(server.effective))

        def clocked_ms() -> float:
            readings = [*begin, *read(server, Moment.END, 10.0)]
            per_transaction_us = telemetry_of_trial(trial, readings, {"waits": SEEN}).time.clocked["io"].us
            return per_transaction_us * TRANSACTIONS / 1000

        deadline_s, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while clocked_ms() < 0.999 * explained_ms:
            assert time.monotonic() < deadline_s, "the statistics never arrived"
            pause.wait(PAUSE_S)
        # The session and the probes also read pages of the catalogs, for which a busy disk may take long.
        clocked = clocked_ms()
        assert clocked <= 1.001 * (counted_ms(server) - counted_before_ms)


@pytest.mark.usefixtures("cache_of_studies")
def test_a_study_times_the_io_of_all_its_arms(build: Build, tmp_path: Path) -> None:
    arms = [f"A={build.bin_dir}", f"B={build.bin_dir},work_mem=5MB"]
    probes = ("waits", "host", "wal", "io", "database")
    study = small_study(arms, probes=probes, slice_s=0.4, blocks_max=2, aa=False)
    assert run_small(tmp_path / "e.sqlite", study) is StudyEnd.BLOCKS
    report = read_report(tmp_path / "e.sqlite").only
    assert report is not None
    trials = report.findings.trials
    assert len(trials) == 4
    for setting in TIMING:
        assert {trial.settings[setting] for trial in trials} == {"on"}
    assert report.why[0].why.clocks == ["wal", "io"]
