"""A duet on real servers: both driven at once, each on its CPU partition, and unpinned afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from pydantic import TypeAdapter

from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import EngineRun, Pinning, drive_specification, run_drive
from pgdyno.results.records import DriverFacts, facts_from
from pgdyno.server.engine import Event
from pgdyno.server.processes import Server
from pgdyno.server.settings import usable_cores
from pgdyno.study.defaults import Partition, partition_of
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a duet needs two cores"),
]

SELECT = {"name": "one", "text": "select 1;", "effect": "none"}
DRIVING = Driving(
    workload=PgbenchParameters.model_validate({"scale": 1, "scripts": [SELECT]}), clients=2, discard_s=0.01
)


@pytest.fixture(scope="module")
def servers(new_server: Callable[[], AbstractContextManager[Server]]) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(new_server()) for _ in range(2)]


@dataclass
class Seen:
    """``cores``: at each barrier, of the processes of either server and of the driver's threads for it."""

    engine_pid: int = 0
    cores: list[list[set[frozenset[int]]]] = field(default_factory=list)
    threads: list[list[frozenset[int]]] = field(default_factory=list)
    slices: list[Event] = field(default_factory=list)


def cores_of_server(server: Server) -> set[frozenset[int]]:
    """Cores of the postmaster and all its children: backends in pg_stat_activity and others such as the
    logger.
    """
    processes = [
        server.postmaster_pid,
        *(child.pid for child in psutil.Process(server.postmaster_pid).children()),
    ]
    found = []
    for pid in processes:
        # An autovacuum worker, or a session's backend, may have ended since it was found.
        with contextlib.suppress(ProcessLookupError):
            found.append(frozenset(os.sched_getaffinity(pid)))
    assert len(found) > 4
    return set(found)


def threads_of_driver(pid: int) -> list[frozenset[int]]:
    """Cores of the driver's threads, found by their name."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    named = {(task / "comm").read_text().strip(): int(task.name) for task in tasks}
    drivers = sorted(name for name in named if name.startswith("driver "))
    return [frozenset(os.sched_getaffinity(named[name])) for name in drivers]


def play(servers: list[Server], halves: Partition, slices: list[PlannedSlice]) -> tuple[EngineRun, Seen]:
    seen = Seen()

    def start(pid: int) -> None:
        seen.engine_pid = pid

    def at_barrier() -> None:
        seen.cores.append([cores_of_server(server) for server in servers])
        seen.threads.append(threads_of_driver(seen.engine_pid))

    def note(event: Event) -> None:
        if event["event"] == "slice":
            seen.slices.append(event)

    targets = [(f"server {number}", server.conninfo()) for number, server in enumerate(servers)]
    pinning = Pinning(halves.cores, [server.postmaster_pid for server in servers])
    asked = drive_specification(DRIVING, 1, slices, targets, pinning=pinning)
    return run_drive(asked, Interruption(), note, at_barrier, start), seen


def rounds(*first: int) -> list[PlannedSlice]:
    """Return the partition of the first arm in each round: one round of warm-up, then measured ones."""
    roles = ["warm-up", *["measure"] * len(first)]
    return [
        PlannedSlice(arm, roles[number], 0.15, number, cpu_partition=half if arm == 0 else 1 - half)
        for number, half in enumerate(first)
        for arm in (0, 1)
    ]


def test_both_arms_are_driven_at_once_on_cpu_partitions_that_are_swapped_and_released(
    servers: list[Server],
) -> None:
    halves = partition_of(usable_cores())
    before = [cores_of_server(server) for server in servers]
    run, seen = play(servers, halves, rounds(0, 0, 1))
    assert run.complete
    one, two = (frozenset(half) for half in halves.cores)
    # At a barrier the affinity of the last slice still applies: of the warm-up, or of the last measured one.
    assert seen.cores == [[{one}, {two}], [{two}, {one}]]
    assert seen.threads == [[one, two], [two, one]]
    assert [cores_of_server(server) for server in servers] == before
    assert run.result is not None
    of_slices = sum(sum(event["driver_cpu_ns"].values()) for event in seen.slices)
    assert of_slices <= sum(run.result.driver["cpu_ns"].values())
    facts = facts_from(DriverFacts, run.result.driver)
    assert TypeAdapter(DriverFacts).dump_python(facts) == run.result.driver
    for arm in (0, 1):
        assert sum(event["kinds"]["one"]["ok"] for event in seen.slices if event["target"] == arm) > 0
    pairs = [[event for event in seen.slices if event["slice"] == number] for number in range(3)]
    for pair in pairs:
        assert [event["target"] for event in pair] == [0, 1]
        for key in ("opened_ns", "counted_from_ns", "closed_ns"):
            assert pair[0][key] == pair[1][key]
        for event in pair:
            assert sum(event["driver_cpu_ns"].values()) > 0
            assert event["swap_ns"] > 0


def test_cores_that_are_not_there_fail_the_run_with_a_sentence(servers: list[Server]) -> None:
    before = [cores_of_server(server) for server in servers]
    there = partition_of(usable_cores())
    run, _ = play(servers, Partition(cores=((1001,), there.cores[1])), rounds(0, 1))
    assert run.failure is not None
    assert "cores" in run.failure.message
    assert [cores_of_server(server) for server in servers] == before


def test_a_server_that_is_gone_fails_the_run_with_its_name(servers: list[Server]) -> None:
    gone = Pinning(partition_of(usable_cores()).cores, [servers[0].postmaster_pid, 2**22])
    targets = [(f"server {number}", server.conninfo()) for number, server in enumerate(servers)]
    asked = drive_specification(DRIVING, 1, rounds(0, 1), targets, pinning=gone)
    run = run_drive(asked, Interruption(), lambda _: None)
    assert run.failure is not None
    assert (run.failure.stage, run.failure.target) == ("prepare", "server 1")
    assert str(2**22) in run.failure.message
