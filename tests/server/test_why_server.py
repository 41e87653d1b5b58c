"""Causes created in real servers (a sleep in a statement, locks, a checkpoint): each must be found."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from small_study import run_small, small_study

from ok_trial import ok_trial
from pgdyno.analysis.time_breakdown import TimeBreakdown
from pgdyno.cli.report import read_report
from pgdyno.features.dips.findings import Event, events_of, find_dips, rates_of
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import drive_specification, interval_from, run_drive
from pgdyno.measure.sampler import Sampler, Target, monotonic_of, sample, sample_waits
from pgdyno.report.answer import Report
from pgdyno.results.reader import concatenated
from pgdyno.results.records import Executed, Interval, SampleSeries, StudyEnd
from pgdyno.server.builds import Build
from pgdyno.server.engine import Event as Said
from pgdyno.server.processes import Server
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

pytestmark = pytest.mark.server

READ = "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\n"
CLIENTS, BLOCKS = 2, 3


def reading(more: str = "") -> Driving:
    script = Script(name="read", text=READ + more)
    return Driving(workload=PgbenchParameters(scale=1, scripts=(script,)), clients=CLIENTS, discard_s=0.02)


@pytest.fixture(scope="module")
def slept(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A study in which the second arm sleeps 3 ms in a separate statement."""
    plain, slow = reading(), reading("SELECT pg_sleep(0.003);\n")
    arms = [f"A={build.bin_dir}", f"B={build.bin_dir},work_mem=5MB"]
    probed = {"probes": ("statements", "waits", "host"), "slice_s": 0.4, "blocks_max": BLOCKS, "aa": False}
    study = small_study(arms, drivings=(plain, slow), workload=plain.workload, **probed)
    path = tmp_path_factory.mktemp("why") / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    report = read_report(path).only
    assert report is not None
    return report


def why_of(report: Report) -> TimeBreakdown:
    (one,) = report.why
    return one.why


def test_a_sleep_in_a_statement_is_a_part_of_its_arm(slept: Report) -> None:
    by_statement = why_of(slept).by_statement
    assert by_statement is not None
    parts = {part.key: part for part in by_statement.parts}
    sleep = parts["statement:SELECT pg_sleep($1)"]
    assert sleep.a_us == 0 and sleep.b_us > 0
    assert parts["statement:SELECT abalance FROM pgbench_accounts WHERE aid = $1"].a_us > 0


def test_parts_of_a_real_results_file_add_up_in_every_block(slept: Report) -> None:
    why = why_of(slept)
    for waterfall in (why.by_statement, why.by_resource):
        assert waterfall is not None
        assert len(waterfall.total.by_block) == BLOCKS
        for block, difference in waterfall.total.by_block.items():
            assert sum(part.by_block[block] for part in waterfall.parts) == pytest.approx(difference)


def test_kernel_times_and_wait_samples_are_those_of_the_arms_own_slices(slept: Report) -> None:
    """An arm that sleeps 3 ms in a transaction is sampled nearly always, one that only reads never.

    A trial may have no sample if the machine stalls.
    """
    times = slept.findings.telemetry.by_trial
    sleeping: dict[int, list[float]] = {0: [], 1: []}
    for trial in slept.findings.trials:
        time_of = times[trial.trial].time
        assert not time_of.cpu_is_of_all
        assert time_of.on_cpu_us is not None and time_of.on_cpu_us > 0
        if time_of.wait_samples is not None:
            sleeping[trial.arm].append(time_of.wait_samples.backends.get("sleep", 0.0))
    assert not any(sleeping[0])
    assert any(sleeping[1]) and max(sleeping[1]) <= CLIENTS


INTERVAL_S = 0.15
INTERVALS = 200
PLANTED = {16: "", **dict.fromkeys((50, 83, 116, 150, 183), "CHECKPOINT; ")}
"""Interval of the locks, and the statement while the lock is held.

They are frequent enough to exclude chance even if a checkpoint takes long, as on a busy machine.
"""
HELD_S = 0.5
PARTS = 6
"""Parts of the series that count as trials, each with a lock. A single one has too few points to name a
cause.
"""


@pytest.mark.long
def test_locks_and_checkpoints_that_stop_the_clients_are_the_causes_of_the_dips(
    running_server: Server,
) -> None:
    """On a fast disk a checkpoint alone may not stop any client: here each runs while a lock stops all.

    Long, because it needs half a minute of a machine that does not stall. test_throughput_dips.py has the
    statistics, and test_probe_server.py the samples of locks and checkpoints.
    """
    with running_server.connect() as connection:
        connection.execute("create database planted")
    with running_server.connect("planted") as connection:
        connection.execute("create table pgbench_accounts as select 1 as aid, 0 as abalance")
        connection.execute(
            "checkpoint"
        )  # completes the server's own checkpoint, and delays the next one by minutes
    seen, series = driven(running_server, "planted")
    roles, from_s, to_s, n = zip(
        *((one.role, one.from_s, one.to_s, sum(c.executed for c in one.kinds.values())) for one in seen),
        strict=True,
    )
    measured = [role is Role.MEASURE for role in roles]
    events = events_of(series, {}, CLIENTS)
    parts = zip(*(np.array_split(np.array(one), PARTS) for one in (measured, from_s, to_s, n)), strict=True)
    rates = {block: rates_of(Executed(*part)) for block, part in enumerate(parts)}
    trials = [ok_trial(trial=block) for block in rates]
    found = find_dips(trials, rates, dict.fromkeys(rates, events))[0]
    causes = {one.event for one in found.coincidences if one.is_cause}
    assert {Event.LOCKS, Event.CHECKPOINT} <= causes, found
    assert len(found.of(Event.LOCKS)) >= len(PLANTED)
    assert len(found.of(Event.CHECKPOINT)) >= len(PLANTED) - 1
    lone = min(found.of(Event.LOCKS), key=lambda dip: dip.from_s)
    assert Event.CHECKPOINT not in lone.causes


def driven(server: Server, database: str) -> tuple[list[Interval], dict[str, SampleSeries]]:
    """Events of the driver during the causes, and the samples."""
    seen: list[Interval] = []
    planted: list[threading.Thread] = []
    samplers: list[Sampler] = []

    def plant(also: str) -> None:
        with server.connect(database) as connection:
            connection.execute(
                f"BEGIN; LOCK TABLE pgbench_accounts; {also}SELECT pg_sleep({HELD_S}); COMMIT".encode()
            )

    def on_event(event: Said) -> None:
        if event["event"] == "started":
            zero_s = monotonic_of(event["epoch_unix_ns"] / 1e9)
            target = Target(0, lambda: server.connect(database), sample, sample_waits, each_look=True)
            samplers.append(Sampler([target], dict, zero_s, step_s=INTERVAL_S))
            samplers[0].start()
        if event["event"] == "interval":
            seen.append(interval_from(event))
            if len(seen) in PLANTED:
                planted.append(threading.Thread(target=plant, args=[PLANTED[len(seen)]]))
                planted[-1].start()

    slices = [PlannedSlice(0, "measure", INTERVALS * INTERVAL_S, 0)]
    specification = drive_specification(
        reading(), 1, slices, [("planted", server.conninfo(database))], interval_s=INTERVAL_S
    )
    with Interruption() as interruption:
        run = run_drive(specification, interruption, on_event)
    for thread in planted:
        thread.join()
    samplers[0].stop()
    assert run.complete
    chunks: dict[str, list[SampleSeries]] = {}
    for chunk in samplers[0].drain():
        assert not chunk.reason
        chunks.setdefault(chunk.probe, []).append(SampleSeries(chunk.probe, chunk.columns, chunk.points))
    return seen, {probe: concatenated(probe, of) for probe, of in chunks.items()}
