"""Profile of a real server, and its inherited events with the kernel's CPU clock, which every machine has,
instead of instructions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from small_study import run_small, small_study

from pgdyno.analysis.telemetry.metrics import SERVER_CPU
from pgdyno.cli.report import read_report
from pgdyno.features.profiles.hardware_counters import EVENTS, SOFTWARE, HardwareCounters
from pgdyno.features.profiles.perf import Profiler
from pgdyno.measure.host_counters import ServerCpu, server_cpu
from pgdyno.measure.telemetry_collection import ProbeError
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account
from pgdyno.server.processes import Runs, Server
from pgdyno.study.schedule import Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

pytestmark = pytest.mark.server

TASK_CLOCK = 1  # PERF_COUNT_SW_TASK_CLOCK
CLOCKS = tuple(
    replace(event, type=SOFTWARE, config=TASK_CLOCK) for event in EVENTS if event.name == "instructions_user"
)
BUSY = "SELECT count(*) FROM generate_series(1, 1000000) AS i WHERE i % 7 = 3"


@pytest.fixture
def profiler(running_server: Server, tmp_path: Path, account: Account) -> Iterator[Profiler]:
    try:
        started = Profiler.start(running_server.postmaster_pid, 99, Runs(tmp_path, account))
    except ProbeError as error:
        pytest.skip(str(error))
    yield started
    assert started.process.poll() is not None
    assert not started.folder.exists()


def test_later_backends_are_sampled(running_server: Server, profiler: Profiler) -> None:
    with running_server.connect() as connection:
        for _ in range(2):
            connection.execute(BUSY)
    rows = profiler.stop()
    samples = int(rows[0]["samples"] or 0)
    assert samples > 0
    assert sum(int(row["n"] or 0) for row in rows[1:]) == samples


def test_an_abandoned_profile_leaves_nothing(profiler: Profiler) -> None:
    profiler.give_up()


@dataclass(frozen=True)
class Reading:
    """The CPU time of a server by both clocks, in s since some start, and an instant.

    The clock of the events goes on during interrupts, and while the hypervisor takes the CPU from a running
    process (steal). The kernel's CPU time of a process may not.
    """

    counted_s: float
    cpu: ServerCpu
    at_s: float


def reading(counters: HardwareCounters, pid: int) -> Reading:
    counted_s = int(counters.read()["instructions_user"] or 0) / 1e9
    return Reading(counted_s, server_cpu(pid), time.monotonic())


def counted_s_as_cpu_time(before: Reading, after: Reading) -> float:
    """Return the seconds counted, which must be at least the CPU time and at most the time of all CPUs."""
    counted_s, cpu = after.counted_s - before.counted_s, after.cpu.since(before.cpu)
    elapsed_s = after.at_s - before.at_s
    assert 0.8 * cpu.used_s - cpu.error_s <= counted_s <= elapsed_s * psutil.cpu_count()
    return counted_s


def test_backends_that_start_later_are_counted_while_they_run_and_after_their_end(
    running_server: Server,
) -> None:
    pid = running_server.postmaster_pid
    try:
        counters = HardwareCounters.open(pid, CLOCKS)
    except ProbeError as error:
        pytest.skip(str(error))
    start = reading(counters, pid)
    with running_server.connect() as connection:
        connection.execute(BUSY)
        connected_s = counted_s_as_cpu_time(start, reading(counters, pid))
        backend = connection.info.backend_pid
    assert connected_s > 0
    with running_server.connect() as connection:
        assert connection.info.backend_pid != backend
        connection.execute(BUSY)
    assert counted_s_as_cpu_time(start, reading(counters, pid)) > connected_s
    counters.close()


def test_a_server_that_runs_already_is_counted_with_its_backends(running_server: Server) -> None:
    pid = running_server.postmaster_pid
    with running_server.connect() as connection:
        try:
            counters = HardwareCounters.open(pid, CLOCKS)
        except ProbeError as error:
            pytest.skip(str(error))
        start = reading(counters, pid)
        connection.execute(BUSY)
        assert counted_s_as_cpu_time(start, reading(counters, pid)) > 0
    counters.close()


@pytest.mark.usefixtures("cache_of_studies")
def test_a_study_counts_each_arm_over_the_same_time_as_its_cpu(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric is then the CPU time in ns of the arm's server in its measured slices."""
    open_events = HardwareCounters.open
    monkeypatch.setattr(HardwareCounters, "open", lambda pid: open_events(pid, CLOCKS))
    busy = Script(name="busy", text=BUSY.replace("000000", "000") + ";\n")
    changes = {"probes": ("hardware",), "slice_s": 0.4, "blocks_max": 1, "aa": False}
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
    assert len(findings.trials) == 2
    for trial in findings.trials:
        cpu_us = SERVER_CPU.value(trial, trial.measured) or 0.0  # unknown after few transactions
        found = findings.telemetry.by_trial[trial.trial].values["hardware.user_instructions_per_tx"]
        measured = [piece for piece in trial.slices if piece.role is Role.MEASURE]
        elapsed_us = (measured[-1].drained_s - measured[0].opened_s) * 1e6 / trial.transactions
        assert 0.8 * cpu_us <= found / 1000 <= elapsed_us * psutil.cpu_count()
