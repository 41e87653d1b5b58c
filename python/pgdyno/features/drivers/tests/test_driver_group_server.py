"""A drive by several engines on a real server sends the transactions of one engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from bench.drivers import LocalLink

from pgdyno.features.drivers.group import NODE_LOST, DriverGroup, split
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import EngineRun, drive_specification, run_drive
from pgdyno.results.records import DriverFacts, facts_from
from pgdyno.server.engine import Event
from pgdyno.server.processes import Server
from pgdyno.study.plan import Driving, Rate
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

pytestmark = pytest.mark.server

INSERT = {
    "name": "insert",
    "text": "\\set x random(1, 1000000000)\ninsert into sent values (:client_id, :x);",
    "effect": "none",
}
CLIENTS, THREADS = 6, 4


@pytest.fixture(scope="module")
def server(new_server: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    with new_server() as server:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("CREATE TABLE sent (client int, x int)")
        yield server


def driving(rate: Rate | None = None) -> Driving:
    workload = PgbenchParameters.model_validate({"scale": 1, "scripts": [INSERT]})
    return Driving(workload=workload, clients=CLIENTS, threads=THREADS, discard_s=0.05, rate=rate)


def play(
    server: Server,
    engines: int | None,
    slices: list[PlannedSlice],
    rate: Rate | None = None,
    on_link: Callable[[list[LocalLink], Event], None] = lambda *_: None,
) -> tuple[EngineRun, list[Event], list[tuple[Any, ...]]]:
    """Drive with one engine (None), or with a group. Return the run, its events, and the rows."""
    events: list[Event] = []
    links = [LocalLink(f"node{number}") for number in range(engines or 0)]

    def start(specification: Mapping[str, Any]) -> DriverGroup:
        return DriverGroup(links, split(specification, [2] * len(links)))

    def note(event: Event) -> None:
        events.append(event)
        on_link(links, event)

    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute("TRUNCATE sent")
        targets = [("a", server.conninfo()), ("b", server.conninfo())]
        asked = drive_specification(driving(rate), 1, slices, targets, interval_s=0.2)
        more = {} if engines is None else {"start": start}
        run = run_drive(asked, Interruption(), note, **more)  # type: ignore[arg-type]
        rows = connection.execute("SELECT client, x FROM sent ORDER BY 1, 2").fetchall()
    return run, events, rows


def limited(arm: int, role: Role, transactions: int) -> PlannedSlice:
    return PlannedSlice(arm, role, 60.0, 0, transactions=transactions)


def counts(run: EngineRun) -> list[Any]:
    assert run.result is not None
    return [{kind: of.counts for kind, of in target.kinds.items()} for target in run.result.targets]


ON_TIME = "a measured slice fails if one of several engines is 50 ms late for the agreed instant"
"""Why measured slices of several engines are in the long tests: a busy machine may stop an engine for longer.

Their warm-up slices, and measured slices of one engine, may open late. The merge of measured slices is in
test_driver_merge.py.
"""


@pytest.mark.parametrize(
    ("engines", "role"),
    [
        (1, Role.MEASURE),
        (3, Role.WARM_UP),
        pytest.param(3, Role.MEASURE, marks=pytest.mark.long),  # ON_TIME
    ],
)
def test_engines_together_send_the_transactions_of_one(server: Server, engines: int, role: Role) -> None:
    slices = [limited(0, Role.WARM_UP, 5), limited(0, role, 20), limited(1, role, 10)]
    one, _, expected = play(server, None, slices)
    run, events, rows = play(server, engines, slices)
    assert run.complete
    assert (len(rows), rows) == (CLIENTS * 35, expected)
    assert run.result is not None and one.result is not None
    assert [of.totals for of in run.result.targets] == [of.totals for of in one.result.targets]
    assert [of.totals["insert"]["ok"] for of in run.result.targets] == [CLIENTS * 25, CLIENTS * 10]
    assert counts(run) == counts(one)
    measured = [CLIENTS * 20, CLIENTS * 10] if role is Role.MEASURE else [None, None]
    assert [run.transactions(target) for target in (0, 1)] == measured
    for target in run.result.targets:
        latency = target.kinds["insert"].histograms["latency"]
        assert sum(n for _, n in latency) == target.kinds["insert"].counts["ok"]
    slices_driven = [event for event in events if event["event"] == "slice"]
    assert [event["kinds"]["insert"]["ok"] for event in slices_driven] == [CLIENTS * n for n in (5, 20, 10)]
    for before, after in itertools.pairwise(slices_driven):
        assert before["drained_ns"] < after["opened_ns"], "all engines are drained before the next arm"


def test_engines_together_have_the_arrivals_of_one(server: Server) -> None:
    slices = [PlannedSlice(arm, Role.WARM_UP, 0.5, 0) for arm in (0, 1)]  # not measured: ON_TIME
    rate = Rate(per_s=300.0)
    one, _, _ = play(server, None, slices, rate)
    run, events, _ = play(server, 2, slices, rate)
    for mine, theirs in zip(run.result.targets, one.result.targets, strict=True):  # type: ignore[union-attr]
        arrived = [sum(of.totals["insert"][k] for k in ("ok", "failed", "skipped")) for of in (mine, theirs)]
        assert arrived[0] == arrived[1] > 0
    intervals = [event for event in events if event["event"] == "interval"]
    for target in (0, 1):
        every = sum(e["kinds"]["insert"]["ok"] for e in intervals if e["target"] == target)
        assert every == run.result.targets[target].totals["insert"]["ok"]  # type: ignore[union-attr]


@pytest.mark.long  # ON_TIME
def test_each_node_has_its_evidence(server: Server) -> None:
    run, _, _ = play(server, 2, [limited(0, Role.MEASURE, 20), limited(1, Role.MEASURE, 20)])
    assert run.result is not None
    nodes = facts_from(DriverFacts, run.result.driver).nodes
    assert nodes is not None
    assert [node.name for node in nodes] == ["node0", "node1"]
    assert sum(node.clients for node in nodes) == CLIENTS
    assert all(node.clock_spread_s == 0 and node.executed_per_s > 0 for node in nodes)


def test_an_engine_that_is_killed_ends_the_drive_and_is_named(server: Server) -> None:
    def kill(links: list[LocalLink], event: Event) -> None:
        if event["event"] == "interval":
            links[1].kill_engine()

    slices = [PlannedSlice(0, Role.WARM_UP, 60.0, 0), PlannedSlice(1, Role.WARM_UP, 60.0, 0)]
    run, _, _ = play(server, 2, slices, on_link=kill)
    assert run.failure is not None and run.failure.stage == NODE_LOST
    assert "node1" in run.failure.message


def test_a_measure_command_ends_the_warm_up_of_all(server: Server) -> None:
    slices = [PlannedSlice(arm, Role.WARM_UP, 60.0, 0) for arm in (0, 1)]
    slices += [limited(arm, Role.MEASURE, 3) for arm in (0, 1)]
    ends: list[tuple[int, str]] = []

    def note(event: Event) -> None:
        if event["event"] == "slice" and event["role"] == "warm-up":
            ends.append((event["slice"], event["ended_by"]))

    links = [LocalLink(f"node{number}") for number in range(2)]
    asked = drive_specification(
        driving(), 1, slices, [("a", server.conninfo()), ("b", server.conninfo())], interval_s=0.2
    )
    run_drive(
        asked,
        Interruption(),
        note,
        ends_warm_up=lambda event: event["event"] == "interval" and event["role"] == "warm-up",
        start=lambda specification: DriverGroup(links, split(specification, [2, 2])),
    )
    assert ends == [(0, "measure")]
