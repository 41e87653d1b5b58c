"""A drive by several engines on a real server sends the transactions of one engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
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

pytestmark = pytest.mark.server

CLIENTS = 6  # of ``driving``

Play = Callable[..., tuple[EngineRun, list[Event], list[tuple[Any, ...]]]]


@pytest.fixture
def play(server: Server, driving: Driving) -> Play:
    """Return a function that drives with one engine (None), or with a group.

    It returns the run, its events, and the rows.
    """

    def play(
        engines: int | None,
        slices: list[PlannedSlice],
        rate: Rate | None = None,
        on_link: Callable[[list[LocalLink], Event], None] = lambda *_: None,
        **more: Any,
    ) -> tuple[EngineRun, list[Event], list[tuple[Any, ...]]]:
        events: list[Event] = []
        links = [LocalLink(f"node{number}") for number in range(engines or 0)]

        def note(event: Event) -> None:
            events.append(event)
            on_link(links, event)

        if engines is not None:
            more["start"] = lambda specification: DriverGroup(links, split(specification, [2] * engines))
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("TRUNCATE sent")
            targets = [("a", server.conninfo()), ("b", server.conninfo())]
            load = driving.model_copy(update={"rate": rate})
            asked = drive_specification(load, 1, slices, targets, interval_s=0.2)
            run = run_drive(asked, Interruption(), note, **more)
            rows = connection.execute("SELECT client, x FROM sent ORDER BY 1, 2").fetchall()
        return run, events, rows

    return play


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
def test_engines_together_send_the_transactions_of_one(play: Play, engines: int, role: Role) -> None:
    slices = [limited(0, Role.WARM_UP, 5), limited(0, role, 20), limited(1, role, 10)]
    one, _, expected = play(None, slices)
    run, events, rows = play(engines, slices)
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


def test_engines_together_have_the_arrivals_of_one(play: Play) -> None:
    slices = [PlannedSlice(arm, Role.WARM_UP, 0.5, 0) for arm in (0, 1)]  # not measured: ON_TIME
    rate = Rate(per_s=300.0)
    one, _, _ = play(None, slices, rate)
    run, events, _ = play(2, slices, rate)
    for mine, theirs in zip(run.result.targets, one.result.targets, strict=True):  # type: ignore[union-attr]
        arrived = [sum(of.totals["insert"][k] for k in ("ok", "failed", "skipped")) for of in (mine, theirs)]
        assert arrived[0] == arrived[1] > 0
    intervals = [event for event in events if event["event"] == "interval"]
    for target in (0, 1):
        every = sum(e["kinds"]["insert"]["ok"] for e in intervals if e["target"] == target)
        assert every == run.result.targets[target].totals["insert"]["ok"]  # type: ignore[union-attr]


@pytest.mark.long  # ON_TIME
def test_each_node_has_its_record(play: Play) -> None:
    run, _, _ = play(2, [limited(0, Role.MEASURE, 20), limited(1, Role.MEASURE, 20)])
    assert run.result is not None
    nodes = facts_from(DriverFacts, run.result.driver).nodes
    assert nodes is not None
    assert [node.name for node in nodes] == ["node0", "node1"]
    assert sum(node.clients for node in nodes) == CLIENTS
    assert all(node.clock_spread_s == 0 and node.executed_per_s > 0 for node in nodes)


def test_an_engine_that_is_killed_ends_the_drive_and_is_named(play: Play) -> None:
    def kill(links: list[LocalLink], event: Event) -> None:
        if event["event"] == "interval":
            links[1].kill_engine()

    slices = [PlannedSlice(0, Role.WARM_UP, 60.0, 0), PlannedSlice(1, Role.WARM_UP, 60.0, 0)]
    run, _, _ = play(2, slices, on_link=kill)
    assert run.failure is not None and run.failure.stage == NODE_LOST
    assert "node1" in run.failure.message


def test_a_measure_command_ends_the_warm_up_of_all(play: Play) -> None:
    slices = [PlannedSlice(arm, Role.WARM_UP, 60.0, 0) for arm in (0, 1)]
    slices += [limited(arm, Role.MEASURE, 3) for arm in (0, 1)]

    def ends(event: Event) -> bool:
        return bool(event["event"] == "interval" and event["role"] == "warm-up")

    _, events, _ = play(2, slices, ends_warm_up=ends)
    warm_up = [event for event in events if event["event"] == "slice" and event["role"] == "warm-up"]
    assert [(event["slice"], event["ended_by"]) for event in warm_up] == [(0, "measure")]
