"""Inherited events of a real server, with the kernel's CPU clock, which every machine has, instead of
instructions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_study import run_small, small_study

from pgdyno.analysis.telemetry.metrics import SERVER_CPU
from pgdyno.cli.report import read_report
from pgdyno.measure.hardware_counters import EVENTS, SOFTWARE, CountersError, HardwareCounters
from pgdyno.measure.host_counters import server_cpu
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import Build
from pgdyno.server.processes import Server
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

TASK_CLOCK = 1  # PERF_COUNT_SW_TASK_CLOCK
CLOCKS = tuple(
    replace(event, type=SOFTWARE, config=TASK_CLOCK) for event in EVENTS if event.name == "instructions_user"
)
BUSY = "SELECT count(*) FROM generate_series(1, 1000000) AS i WHERE i % 7 = 3"


def ns(counters: HardwareCounters) -> int:
    return int(counters.read()["instructions_user"] or 0)


def test_backends_that_start_later_are_counted_while_they_run_and_after_their_end(
    running_server: Server,
) -> None:
    pid = running_server.postmaster_pid
    try:
        counters = HardwareCounters.open(pid, CLOCKS)
    except CountersError as error:
        pytest.skip(str(error))
    counted_ns, cpu_s = ns(counters), server_cpu(pid).total_s
    with running_server.connect() as connection:
        connection.execute(BUSY)
        while_connected_ns, while_connected_s = ns(counters) - counted_ns, server_cpu(pid).total_s - cpu_s
        backend = connection.info.backend_pid
    assert while_connected_s > 0.02
    assert while_connected_ns / 1e9 == pytest.approx(while_connected_s, rel=0.2)
    with running_server.connect() as connection:
        assert connection.info.backend_pid != backend
        connection.execute(BUSY)
    after_ns, after_s = ns(counters) - counted_ns, server_cpu(pid).total_s - cpu_s
    counters.close()
    assert after_ns > 1.5 * while_connected_ns
    assert after_ns / 1e9 == pytest.approx(
        after_s, rel=0.2, abs=0.03
    )  # the time of reaped children is in ticks


def test_a_server_that_runs_already_is_counted_with_its_backends(running_server: Server) -> None:
    with running_server.connect() as connection:
        try:
            counters = HardwareCounters.open(running_server.postmaster_pid, CLOCKS)
        except CountersError as error:
            pytest.skip(str(error))
        cpu_s = server_cpu(running_server.postmaster_pid).total_s
        connection.execute(BUSY)
        # An autovacuum worker may end in between. The time of reaped children is in ticks.
        assert ns(counters) / 1e9 == pytest.approx(
            server_cpu(running_server.postmaster_pid).total_s - cpu_s, rel=0.2, abs=0.03
        )
    counters.close()


def test_a_study_counts_each_arm_over_the_same_time_as_its_cpu(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric is then the CPU time in ns of the arm's server in the measured slices only."""
    open_events = HardwareCounters.open
    monkeypatch.setattr(HardwareCounters, "open", lambda pid: open_events(pid, CLOCKS))
    busy = Script(name="busy", text=BUSY.replace("000000", "000") + ";\n")
    changes = {"probes": ("hardware",), "slice_s": 0.4, "blocks_max": 2, "aa": False}
    study = small_study(
        [f"A={build.bin_dir}", f"B={build.bin_dir},work_mem=5MB"],
        workload=PgbenchParameters(scale=1, scripts=(busy,)),
        **changes,
    )
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    findings = read_report(path).findings.first
    if missing := findings.telemetry.by_trial[findings.trials[0].trial].missing:
        pytest.skip(missing["hardware"].reason)
    assert len(findings.trials) == 4
    for trial in findings.trials:
        cpu_us = SERVER_CPU.value(trial, trial.measured)
        found = findings.telemetry.by_trial[trial.trial].values["hardware.user_instructions_per_tx"]
        assert found / 1000 == pytest.approx(cpu_us, rel=0.2)
