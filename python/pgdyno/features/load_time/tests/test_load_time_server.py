"""Loads of real servers: the settings of the server apply, and a study compares their durations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from small_study import run_small, small_study

from pgdyno.cli.report import read_report
from pgdyno.features.load_time.drive import LoadDrive
from pgdyno.features.load_time.parameters import LoadParameters
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import Build
from pgdyno.server.processes import Cluster, Server

pytestmark = pytest.mark.server

TPCC = {"kind": "tpcc", "warehouses": 1}
SBTEST = {"kind": "sysbench", "script": {"name": "oltp_read_only"}, "tables": 4, "table_size": 40_000}

SMALL_LOAD = {
    "workload": LoadParameters.model_validate({"dataset": {"kind": "pgbench", "scale": 1}}),
    **{"schedule": "blocks", "transactions": 1, "warmup_s": 0.0, "aa": False},
}

LOGGED = {"log_statement": "all", "log_temp_files": "0"}
SMALL_MEMORY = {"maintenance_work_mem": "1MB", "max_parallel_maintenance_workers": "0"}


@pytest.fixture(scope="module")
def logging_server(
    build: Build, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    """A server with little memory, whose log has statements and temporary files."""
    with new_cluster(build) as cluster, cluster.start({**LOGGED, **SMALL_MEMORY}) as server:
        yield server


@pytest.fixture
def server(logging_server: Server) -> Server:
    """The server with an empty database."""
    with logging_server.connect() as connection:
        connection.execute("DROP DATABASE IF EXISTS load")
        connection.execute("CREATE DATABASE load")
    return logging_server


def drive_of(server: Server, clients: int, **given: Any) -> LoadDrive:
    own = LoadParameters.model_validate(given)
    target = {"name": "A", "conninfo": server.conninfo("load")}
    return LoadDrive({"targets": [target], "workload": own.to_drive(), "clients": clients})


def sessions_of(log: str, statement: str) -> set[str]:
    """Return the process IDs of the sessions that sent a statement."""
    return set(re.findall(rf"\[(\d+)\] LOG:  statement: {statement}", log))


def test_the_memory_and_the_commits_of_the_server_apply(server: Server) -> None:
    start = len(server.log())
    events = list(drive_of(server, 2, dataset=TPCC).events())
    names = [event["event"] for event in events]
    assert names == ["started", "barrier", "step", "slice", "barrier", "result"]
    (target,) = events[-1]["targets"]
    with server.connect("load") as connection:
        (lines,) = connection.execute("SELECT count(*) FROM order_line").fetchone() or (0,)
    assert target["counters"]["rows"] > lines > 250_000
    slice_ms = (events[3]["closed_ns"] - events[3]["opened_ns"]) / 1e6
    phases_ms = {name: n for name, n in target["counters"].items() if name.endswith("_ms")}
    assert {"copy_ms", "index_ms", "vacuum_ms", "analyze_ms", "checkpoint_ms"} <= set(phases_ms)
    assert sum(phases_ms.values()) - phases_ms["checkpoint_ms"] <= slice_ms + len(phases_ms)
    # With the 256 MB of other loads, the sorts of indexes would fit into memory.
    assert "temporary file" in server.log()[start:]


@pytest.mark.parametrize(("jobs", "sessions"), [(1, 1), (3, 3), (64, 4)])
def test_as_many_connections_as_vacuum_jobs_vacuum_at_most_one_per_table(
    server: Server, jobs: int, sessions: int
) -> None:
    start = len(server.log())
    events = list(drive_of(server, 2, dataset=SBTEST, vacuum_jobs=jobs).events())
    assert events[-1]["event"] == "result"
    log = server.log()[start:]
    assert len(sessions_of(log, "COPY")) == 2
    # And the control session.
    assert len(sessions_of(log, "SELECT pg_catalog.set_config")) - 1 == max(2, sessions)
    assert 1 <= len(sessions_of(log, "VACUUM")) <= sessions


def test_the_prepare_of_a_script_is_a_load_without_counted_rows(server: Server) -> None:
    own = {"kind": "sysbench", "script": {"name": "bulk_insert"}}
    last = list(drive_of(server, 2, dataset=own).events())[-1]
    (target,) = last["targets"]
    assert (target["counters"]["rows"], target["kinds"]["load"]["counts"]["ok"]) == (0, 1)
    assert {"prepare_ms", "vacuum_ms", "checkpoint_ms"} <= target["counters"].keys()
    with server.connect("load") as connection:
        connection.execute("SELECT count(*) FROM sbtest1")


def test_a_stopped_load_has_no_result(server: Server) -> None:
    drive = drive_of(server, 2, dataset=TPCC)
    drive.stop()
    assert [event["event"] for event in drive.events()] == ["started", "barrier", "step"]


def test_a_failed_load_names_its_server(server: Server) -> None:
    with server.connect("load") as connection:
        connection.execute("CREATE TABLE warehouse (a int)")
    last = list(drive_of(server, 2, dataset=TPCC).events())[-1]
    assert (last["event"], last["target"]) == ("failed", "A")
    assert "warehouse" in last["message"]


def test_a_recovery_replays_the_load_without_a_checkpoint_before(build: Build, tmp_path: Path) -> None:
    arms = [f"A={build.bin_dir}", f"B={build.bin_dir}"]
    study = small_study(arms, **SMALL_LOAD, blocks_max=1, recovery=True)
    path = tmp_path / "e.sqlite"
    run_small(path, study)
    with Evidence(path) as evidence:
        trials = evidence.trials()
        assert all(trial.recovery_s and "copy_ms" in trial.counters for trial in trials)
        assert not any("checkpoint_ms" in trial.counters for trial in trials)


def test_a_study_compares_the_load_times_of_its_arms(build: Build, tmp_path: Path) -> None:
    arms = [f"A={build.bin_dir}", f"B={build.bin_dir},maintenance_work_mem=1MB"]
    study = small_study(arms, **SMALL_LOAD, blocks_max=2, probes=("wal", "host"))
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    report = read_report(path)
    findings = report.findings.first
    (comparison,) = findings.comparisons
    assert comparison.primary is not None and comparison.primary.key == "load_s"
    assert (comparison.blocks, comparison.failed) == ([0, 1], [])
    assert comparison.primary.summary.low is not None
    levels = findings.arms[1].levels
    rows = levels["load_s"].value * levels["load_rows"].value
    assert rows == pytest.approx(100_011, rel=0.01)  # branches, tellers and accounts
    assert {"load.copy_s", "load.checkpoint_s", "wal.bytes_per_tx"} <= findings.telemetry.metrics.keys()
    # Its connections are not known before it begins: the CPU time is that of all processes, if long enough.
    times = [of.time for of in findings.telemetry.by_trial.values()]
    assert len(times) == 4 and all(of.cpu_is_of_all or of.on_cpu_us is None for of in times)
    with Evidence(path) as evidence:
        for trial in evidence.trials():
            assert {check.name for check in trial.checks} >= {"complete data", "server log"}
            assert all(check.passed for check in trial.checks)
    text = to_markdown(report)
    assert "load time" in text and "CHECKPOINT after the load" in text
