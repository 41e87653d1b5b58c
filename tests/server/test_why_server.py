"""Causes created in real servers (a sleep in a statement, locks, a checkpoint): each must be found."""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from small_study import run_small, small_study

from ok_trial import ok_trial
from pgdyno.analysis.time_breakdown import TimeBreakdown
from pgdyno.cli.report import read_report
from pgdyno.features.dips.findings import Event, events_of, find_dips, rates_of
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import drive_specification, interval_from, run_drive
from pgdyno.measure.sampler import Sample, Sampler, Target, monotonic_of, sample, sample_waits
from pgdyno.report.answer import Report
from pgdyno.results.reader import concatenated
from pgdyno.results.records import Executed, Interval, SampleSeries, StudyEnd
from pgdyno.server.builds import Build
from pgdyno.server.engine import Event as Said
from pgdyno.server.processes import Connection, Server
from pgdyno.study.plan import Driving, Rate
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("cache_of_studies")]

READ = "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\n"
CLIENTS, BLOCKS = 2, 2


def reading(more: str = "") -> Driving:
    script = Script(name="read", text=READ + more)
    return Driving(workload=PgbenchParameters(scale=1, scripts=(script,)), clients=CLIENTS, discard_s=0.02)


@pytest.fixture(scope="module")
def slept(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A study in which the second arm sleeps 3 ms in a separate statement."""
    plain, slow = reading(), reading("SELECT pg_sleep(0.003);\n")
    arms = [f"A={build.bin_dir}", f"B={build.bin_dir},work_mem=5MB"]
    probed = {
        "probes": ("statements", "waits", "host", "wal", "io", "database"),
        "slice_s": 0.4,
        "blocks_max": BLOCKS,
        "aa": False,
    }
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


INTERVAL_S = 0.25
RATE_PER_S = 120.0
POINTS_MIN, POINTS_PER_HELD = 24, 8
"""Number of intervals with transactions around a lock: at least, and for each interval in which it is held.
So a checkpoint that takes long is a small part of the series, too.
"""

PLANTED = ("", *["CHECKPOINT"] * 5)
"""Statements while each lock is held. Each lock is in a part of the series that counts as a trial: a single
part has too few points to name a cause.
"""
PATIENCE_S = 60.0
"""Time limit of the wait for an interval or a sample."""


@pytest.mark.long
def test_locks_and_checkpoints_that_stop_the_clients_are_the_causes_of_the_dips(
    running_server: Server,
) -> None:
    """On a fast disk a checkpoint alone may not stop any client: here each runs while a lock stops all.

    Long, because it takes most of a minute. test_throughput_dips.py has the statistics, and
    test_probe_server.py the samples of locks and checkpoints.
    """
    with running_server.connect() as connection:
        connection.execute("create database planted")
    with running_server.connect("planted") as connection:
        connection.execute("create table pgbench_accounts as select 1 as aid, 0 as abalance")
        # Completes the server's own checkpoint, and delays the next one by minutes.
        connection.execute("checkpoint")
    seen, series, cuts = driven(running_server, "planted")
    events = events_of(series, {}, CLIENTS)
    roles, from_s, to_s, n = zip(
        *((one.role, one.from_s, one.to_s, executed_in(one)) for one in seen), strict=True
    )
    measured = [role is Role.MEASURE for role in roles]
    parts = zip(*(np.split(np.array(one), cuts) for one in (measured, from_s, to_s, n)), strict=True)
    rates = {block: rates_of(Executed(*part)) for block, part in enumerate(parts)}
    trials = [ok_trial(trial=block) for block in rates]
    found = find_dips(trials, rates, dict.fromkeys(rates, events))[0]
    dips_of = {event: dips for event, _, dips in found.groups}
    assert {Event.LOCKS, Event.CHECKPOINT} <= dips_of.keys(), found
    assert len(dips_of[Event.LOCKS]) >= len(PLANTED)
    assert len(dips_of[Event.CHECKPOINT]) >= len(PLANTED) - 1
    lone = min(dips_of[Event.LOCKS], key=lambda dip: dip.from_s)
    assert Event.CHECKPOINT not in lone.causes


def executed_in(interval: Interval) -> int:
    return sum(counts.executed for counts in interval.kinds.values())


@dataclass
class Planter:
    """Holds each lock until an interval and the samples of it show that it stops the clients.

    So a lock is seen however long a process is stopped, and lasts no longer than necessary.
    """

    server: Server
    database: str
    zero_s: float = 0.0
    intervals: queue.SimpleQueue[Interval] = field(default_factory=queue.SimpleQueue)
    samples: queue.SimpleQueue[tuple[float, Mapping[str, float]]] = field(default_factory=queue.SimpleQueue)
    waits: queue.SimpleQueue[tuple[float, Mapping[str, float]]] = field(default_factory=queue.SimpleQueue)
    read: int = 0  # number of intervals
    cuts: list[int] = field(default_factory=list)  # number of intervals before each part but the first

    def plant(self) -> None:
        with self.server.connect(self.database) as connection:
            for number, statement in enumerate(PLANTED):
                if number:
                    self.cuts.append(self.read)
                self.see_transactions(POINTS_MIN // 2)
                connection.execute("BEGIN; LOCK TABLE pgbench_accounts")
                before_lock = self.read
                self.see_no_transaction()
                if statement:
                    before = self.next(self.samples)["num_requested"]
                    connection.execute(statement.encode())
                    while self.next(self.samples)["num_requested"] == before:
                        pass
                for _ in range(2):
                    while not any(name.startswith("Lock/") for name in self.next(self.waits)):
                        pass
                self.see_no_transaction()
                held = self.read - before_lock
                connection.execute("COMMIT")
                self.see_transactions(max(POINTS_MIN // 2, POINTS_PER_HELD * held))

    def see_transactions(self, missing: int) -> None:
        while missing:
            missing -= executed_in(self.next_interval()) > 0

    def see_no_transaction(self) -> None:
        """Wait for a whole interval from now on without a transaction."""
        now_s = self.now_s()
        while (one := self.next_interval()).from_s < now_s or executed_in(one):
            pass

    def next_interval(self) -> Interval:
        self.read += 1
        return self.intervals.get(timeout=PATIENCE_S)

    def next(self, samples: queue.SimpleQueue[tuple[float, Mapping[str, float]]]) -> Mapping[str, float]:
        """Return the next sample that begins from now on."""
        now_s = self.now_s()
        while (found := samples.get(timeout=PATIENCE_S))[0] < now_s:
            pass
        return found[1]

    def now_s(self) -> float:
        return time.monotonic() - self.zero_s

    def queued(self, samples: queue.SimpleQueue[tuple[float, Mapping[str, float]]], take: Sample) -> Sample:
        def taken(connection: Connection) -> Mapping[str, float]:
            begun_s = self.now_s()
            samples.put((begun_s, found := take(connection)))
            return found

        return taken


def driven(server: Server, database: str) -> tuple[list[Interval], dict[str, SampleSeries], list[int]]:
    """Events of the driver during the causes, the samples, and the first intervals of parts but the first."""
    seen: list[Interval] = []
    samplers: list[Sampler] = []
    planter = Planter(server, database)

    def on_event(event: Said) -> None:
        if event["event"] == "started":
            planter.zero_s = monotonic_of(event["epoch_unix_ns"] / 1e9)
            server_sample = planter.queued(planter.samples, sample)
            waits_sample = planter.queued(planter.waits, sample_waits)
            target = Target(0, lambda: server.connect(database), server_sample, waits_sample, each_look=True)
            samplers.append(Sampler([target], dict, planter.zero_s, step_s=INTERVAL_S))
            samplers[0].start()
        if event["event"] == "interval":
            seen.append(interval_from(event))
            planter.intervals.put(seen[-1])
        if planted.done() and not interruption.requested:
            signal.raise_signal(signal.SIGINT)

    driving = reading().model_copy(update={"rate": Rate(per_s=RATE_PER_S, arrivals="constant")})
    slices = [PlannedSlice(0, "measure", 600.0, 0)]
    specification = drive_specification(
        driving, 1, slices, [("planted", server.conninfo(database))], interval_s=INTERVAL_S
    )
    with ThreadPoolExecutor(1) as pool, Interruption() as interruption:
        planted = pool.submit(planter.plant)
        assert run_drive(specification, interruption, on_event).result is not None
        planted.result()
    samplers[0].stop()
    chunks: dict[str, list[SampleSeries]] = {}
    for chunk in samplers[0].drain():
        assert not chunk.reason
        chunks.setdefault(chunk.probe, []).append(SampleSeries(chunk.probe, chunk.columns, chunk.points))
    return seen, {probe: concatenated(probe, of) for probe, of in chunks.items()}, planter.cuts
