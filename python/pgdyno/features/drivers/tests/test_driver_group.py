"""The group of engines: common starts, clocks, and faults, with scripted engines."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pgdyno.errors import EngineError, FleetError
from pgdyno.features.cluster.ray import GUARD_S, ClockOffset
from pgdyno.features.drivers import group as drivers_group
from pgdyno.features.drivers.group import LATE, NODE_LOST, OPEN_S_PER_NODE, DriverGroup, NodeUsage, own_usage
from pgdyno.features.drivers.nodes import CEILING_S, DriverActor, ceiling_per_s, gather_s, loss, rounds_of
from pgdyno.server.engine import Event

AHEAD_NS = 5_000_000_000


class ScriptedLink:
    """An engine that sends given events. None ends it, an exception fails it, a text waits for a command."""

    silence_s = 0.0

    def __init__(self, name: str, script: list[Event | Exception | str | None], ahead_ns: int = 0) -> None:
        self.name, self.script = name, script
        self.offset = ClockOffset(ahead_ns, 0)
        self.commands: queue.Queue[Event] = queue.Queue()
        self.sent: list[Event] = []
        self.is_closed = False

    def start(self, specification: Mapping[str, Any]) -> None:
        pass

    def events(self) -> Iterator[Event]:
        for item in self.script:
            if isinstance(item, str):
                while self.commands.get(timeout=30)["do"] != item:
                    pass
            elif isinstance(item, Exception):
                raise item
            elif item is not None:
                yield item

    def send(self, message: Event) -> None:
        self.sent.append(message)
        self.commands.put(message)

    def clock(self) -> ClockOffset:
        return self.offset

    def usage(self) -> NodeUsage:
        return own_usage()

    def close(self) -> None:
        self.is_closed = True

    def commanded(self, do: str) -> list[Event]:
        return [message for message in self.sent if message["do"] == do]


SLICES = [
    {"role": "warm-up", "duration_s": 1.0},
    {"role": "warm-up", "duration_s": 1.0},
    {"role": "measure", "duration_s": 1.0},
]
SPECIFICATION = {"slices": SLICES, "interval_s": 1.0, "drain_timeout_s": 1.0}


def started() -> Event:
    return {"event": "started", "epoch_monotonic_ns": 0, "threads": 1, "io": "epoll"}


def ready(number: int) -> Event:
    return {"event": "ready", "slice": number}


def group(*links: ScriptedLink) -> DriverGroup:
    return DriverGroup(links, [SPECIFICATION for _ in links])


def failure(text: str) -> Event:
    return {"event": "failed", "stage": "drive", "target": None, "message": text}


END = failure("end of the script")


def events_of(*links: ScriptedLink) -> list[Event]:
    with group(*links) as running:
        return list(running.events())


def test_a_slice_opens_on_all_nodes_at_one_instant_by_their_own_clocks() -> None:
    one = ScriptedLink("one", [started(), ready(0), "open", END])
    other = ScriptedLink("other", [started(), ready(0), "open", END], AHEAD_NS)
    events_of(one, other)
    [[mine], [theirs]] = one.commanded("open"), other.commanded("open")
    assert theirs["at_monotonic_ns"] - mine["at_monotonic_ns"] == AHEAD_NS
    assert one.is_closed and other.is_closed


def test_no_slice_opens_before_all_are_ready_for_the_same_one() -> None:
    one = ScriptedLink("one", [started(), ready(0), "stop", None])
    other = ScriptedLink("other", [started(), ready(1), "stop", None])
    with group(one, other) as running:
        events = running.events()
        assert next(events)["event"] == "started"
        running.stop()
        assert list(events) == []
    assert not one.commanded("open") and not other.commanded("open")


def test_a_warm_up_slice_does_not_open_after_the_end_of_the_warm_up() -> None:
    script = [started(), ready(1), "measure", ready(2), "open", END]
    links = [ScriptedLink(name, list(script)) for name in ("one", "other")]
    with group(*links) as running:
        events = running.events()
        assert next(events)["event"] == "started"
        running.measure()
        list(events)
    assert [len(link.commanded("open")) for link in links] == [1, 1]


REFUSED = {"event": "failed", "stage": "connect", "target": "17", "message": "refused"}


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        (FleetError("load generator one is lost: reason"), NODE_LOST),
        (EngineError("killed"), NODE_LOST),
        (failure("slice 0 opened 60 ms after the agreed instant"), NODE_LOST),
        (REFUSED, "connect"),  # of the server
    ],
)
def test_a_fault_of_a_node_ends_the_drive_with_its_name(fault: Exception | Event, stage: str) -> None:
    one = ScriptedLink("one", [started(), fault])
    other = ScriptedLink("other", [started(), "stop"])
    [*_, last] = events_of(one, other)
    assert (last["event"], last["stage"]) == ("failed", stage)
    assert last["target"] == ("17" if fault is REFUSED else None)
    assert last["message"].startswith("load generator one")
    assert last["message"].count("load generator") == 1
    assert other.is_closed
    other.commands.put({"do": "stop"})


def test_a_node_that_was_cut_off_ends_a_drive_that_is_measuring() -> None:
    def barrier(name: str) -> Event:
        return {"event": "barrier", "name": name, "at_ns": 0, "totals": []}

    late: Event = {"event": LATE, "late_s": 3.25}
    for name, reason in (("measure", "its network delayed an answer by 3.2 s"), ("end", "end of the script")):
        one = ScriptedLink("one", [started(), late, barrier(name), "continue", late, END])
        other = ScriptedLink("other", [started(), barrier(name), "stop"])
        with group(one, other) as running:
            events = running.events()
            assert [next(events)["event"] for _ in range(2)] == ["started", "barrier"]
            running.proceed()
            assert next(events)["message"] == f"load generator one: {reason}"
            running.stop()


def test_a_clock_that_is_too_inexact_is_refused() -> None:
    link = ScriptedLink("one", [started()])
    link.offset = ClockOffset(0, int(2 * GUARD_S * 1e9))
    with pytest.raises(FleetError, match=r"its clock is 200 ms \(limit 100 ms\)"):
        events_of(link)
    assert link.is_closed
    assert ClockOffset(0, 0).spread_s(ClockOffset(0, 0)) == 0


def test_at_most_a_third_of_the_nodes_measure_select_1_at_once() -> None:
    assert [len(rounds_of(range(n))) for n in (1, 2, 3, 5, 6, 8, 100, 1000)] == [1, 2, 3, 5, 3, 4, 4, 4]
    for n in (1, 2, 7, 100):
        rounds = rounds_of(range(n))
        assert [one for members in rounds for one in members] == list(range(n))
        assert all(len(members) <= max(1, n // 3) for members in rounds)


def test_a_lost_actor_is_reported_without_the_texts_of_ray() -> None:
    died = type("ActorDiedError", (Exception,), {})
    assert loss(died("The actor ad3c7b68b1 died: RPC error\nThe traceback")) == "its actor has ended"
    assert loss(OSError("Out of disk. Use less.\nFurther advice")) == "Out of disk. Use less."


def actor_of(*events: Event) -> DriverActor:
    actor = DriverActor()
    engine = SimpleNamespace(events=lambda: iter(events))
    actor._collect(engine, actor._events)  # type: ignore[arg-type]
    return actor


def test_events_that_others_wait_for_are_sent_at_once_with_those_before_them() -> None:
    interval, done = {"event": "interval"}, {"event": "slice"}
    actor = actor_of(started(), interval, interval, done, ready(1), interval)
    assert actor.read(60.0)[0] == [started()]
    assert actor.read(60.0)[0] == [interval, interval, done, ready(1)]
    assert actor.read(60.0)[0] == [interval, None], "the end of the engine"


def test_events_that_no_node_waits_for_are_gathered_until_the_time_is_over() -> None:
    interval = {"event": "interval"}
    actor = DriverActor()
    for _ in range(2):
        actor._events.put(interval)
    assert actor.read(0.01)[0] == [interval, interval]
    assert actor.read(0.01)[0] == []
    # for longer the more nodes there are, but not without limit
    assert [gather_s(nodes) for nodes in (1, 5, 50, 100, 1000)] == [1.0, 1.0, 10.0, 20.0, 20.0]


def test_a_silent_node_is_lost_only_after_the_time_to_gather_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers_group, "TICK_S", 0.01)
    monkeypatch.setattr(drivers_group, "SILENCE_S", -10.0)
    gathers, sends = ScriptedLink("gathers", [started(), "stop"]), ScriptedLink("sends", [started(), "stop"])
    gathers.silence_s = 3600.0
    for link in (gathers, sends):
        link.script[1:1] = [ready(0), "open"]
    [*_, last] = events_of(gathers, sends)
    assert last["stage"] == NODE_LOST and "load generator sends: no event" in last["message"]
    for link in (gathers, sends):
        link.commands.put({"do": "stop"})


def test_a_network_that_delays_the_end_of_a_ceiling_leaves_its_result() -> None:
    result: Event = {"event": "result", "targets": [{"kinds": {"select 1": {"counts": {"ok": 30}}}}]}
    link = ScriptedLink("one", [started(), result, {"event": LATE, "late_s": 3.25}])
    part: dict[str, Any] = {
        "targets": [{"name": "18", "conninfo": "host=server"}],
        **{"clients": 1, "threads": 1, "io": "epoll", "seed": 1},
        **{"connect_timeout_s": 1.0, "drain_timeout_s": 1.0},
    }
    assert ceiling_per_s(link, part) == 30 / CEILING_S
    assert link.is_closed


def test_more_nodes_have_more_time_until_a_slice_opens() -> None:
    def lead_ns(nodes: int) -> int:
        links = [ScriptedLink(str(number), [started(), ready(0), "open", END]) for number in range(nodes)]
        begun_ns = time.monotonic_ns()
        events_of(*links)
        return int(links[0].commanded("open")[0]["at_monotonic_ns"]) - begun_ns

    assert lead_ns(200) >= (GUARD_S + 200 * OPEN_S_PER_NODE) * 1e9
