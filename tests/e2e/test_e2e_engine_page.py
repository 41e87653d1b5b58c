"""docs/reference/engine-protocol.md lists exactly the keys that the engine sends and accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgdyno.measure.dataset_loading import Place, load_specification
from pgdyno.measure.engine_runs import drive_specification
from pgdyno.server.engine import Engine, Event, build_info
from pgdyno.server.processes import Connection, Server
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice
from pgdyno.workloads.tpcc.parameters import TpccParameters

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "engine-protocol.md").read_text()
DRIVING = Driving(workload=TpccParameters(warehouses=1), clients=2)
SLICES = [PlannedSlice(0, "warm-up", 0.2, 0), PlannedSlice(0, "measure", 0.4, 0)]
NESTED = re.compile(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]")


def flat(text: str) -> str:
    """Return the text without nested braces and parentheses."""
    while (shorter := NESTED.sub("", text)) != text:
        text = shorter
    return text


def keys(text: str) -> set[str]:
    """Return the names at the front of each part: ``a``, ``b`` {…} of c, and ``d`` → a, b, d."""
    parts = (re.match(r"\s*(?:and )?`?(\w+)`?", part) for part in flat(text).split(","))
    return {part[1] for part in parts if part}


def braces_after(name: str, text: str) -> str:
    """Return the contents of the braces after a name."""
    start = text.index("{", text.index(name)) + 1
    depth, end = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[start : end - 1]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str) -> dict[str, str]:
    """Return a table's last column by its first, one entry for each name in the first."""
    found = {}
    for line in section(title).splitlines():
        # A bar inside a cell is written \|.
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for name in re.findall(r"`(\w+)`", cells[0]) if cells else []:
            found[name] = cells[-1]
    return found


def line_after(words: str) -> str:
    """Return the rest of the paragraph with this start."""
    return " ".join(PAGE.split(words, 1)[1].split("\n\n", 1)[0].split())


def list_after(words: str) -> str:
    """Return the items of the list that follows, as one line with commas."""
    items = PAGE.split(f"{words}\n\n", 1)[1].split("\n\n", 1)[0]
    return ", ".join(item.removeprefix("- ") for item in items.splitlines())


def run(command: Any, specification: dict[str, Any]) -> list[Event]:
    found = []
    with Engine(command, specification) as engine:
        for event in engine.events():
            found.append(event)
            if event["event"] == "barrier":
                engine.proceed()
    return found


def _place(conninfo: str) -> Place:
    """Refuse a load that connects by itself: these tests never request a connection."""

    def connect() -> Connection:
        raise AssertionError("only the engine connects")

    return Place(conninfo, connect)


OF_A_MEASURED_LOAD = ("server_settings", "vacuum_connections")
"""Keys that features/load_time adds."""


@pytest.fixture(scope="module")
def database(running_server: Server) -> Iterator[str]:
    with running_server.connect() as connection:
        connection.execute("create database page")
    yield running_server.conninfo("page")
    with running_server.connect() as connection:
        connection.execute("drop database page")


@pytest.fixture(scope="module")
def loaded_events(database: str) -> list[Event]:
    return run("load", load_specification(_place(database), DRIVING.workload))


@pytest.fixture(scope="module")
def driven_events(database: str, loaded_events: list[Event]) -> list[Event]:
    assert loaded_events[-1]["event"] == "result", loaded_events[-1]
    return run("drive", drive_specification(DRIVING, 7, SLICES, [("a", database)]))


def test_the_page_names_every_key_of_a_specification() -> None:
    # The threads of an engine that drives a part of the run are added later.
    one = set(drive_specification(DRIVING, 7, SLICES, []))
    assert one | {"part"} == set(rows("drive: specification"))
    # Only a measured load gives the last ones.
    asked = {*load_specification(_place(""), DRIVING.workload), *OF_A_MEASURED_LOAD}
    assert asked == set(re.findall(r'"(\w+)"', re.sub(r'"workload":\{.*?\}', '"workload"', _asked_of_load())))


def _asked_of_load() -> str:
    return section("load: specification and events").strip().split("`", 2)[1]


def test_the_page_names_every_key_of_the_events_of_a_drive(driven_events: list[Event]) -> None:
    page = rows("drive: events")
    assert driven_events[-1]["event"] == "result"
    sent: dict[str, set[str]] = {}
    for event in driven_events[:-1]:
        sent.setdefault(event["event"], set()).update(event.keys() - {"event"})
    assert {"started", "connected", "barrier", "interval", "slice"} <= sent.keys() <= page.keys()
    assert sent == {name: keys(page[name]) for name in sent}
    barrier = next(event for event in driven_events if event["event"] == "barrier")
    assert set(barrier["totals"][0]) == keys(braces_after("`totals`", page["barrier"]))
    interval = next(event for event in driven_events if event["event"] == "interval")
    assert set(interval["latency_ns"]) == keys(braces_after("`latency_ns`", page["interval"]))


def test_the_page_names_every_key_of_the_result_of_a_drive(driven_events: list[Event]) -> None:
    result = driven_events[-1]
    assert result.keys() - {"event"} == set(
        re.findall(r'"(stopped|lost|unfinished|left_out|targets|driver)":', line_after("`result`: "))
    )
    target = result["targets"][0]
    assert target.keys() == keys(list_after("Per target:"))
    kind = target["kinds"]["new_order"]
    about_kinds = braces_after("kind: ", list_after("Per target:"))
    assert set(kind) == keys(about_kinds)
    assert set(kind["histograms"]) == keys(braces_after("`histograms`", about_kinds))
    assert set(kind["counts"]) == set(re.findall(r'"(\w+)"', line_after("Counts: ").split("}")[0]))
    assert set(target["tally"]) == keys(list_after("The tally of `tpcc`:"))
    assert set(result["driver"]) == keys(line_after("Driver: "))


def test_the_page_names_every_key_of_a_failure(database: str) -> None:
    gone = drive_specification(DRIVING, 7, SLICES, [("a", f"{database} dbname=not_there")])
    failed = run("drive", gone)[-1]
    assert failed["event"] == "failed"
    assert failed.keys() - {"event"} <= keys(rows("drive: events")["failed"]) | {"result"}
    assert {"stage", "target", "message", "sqlstate"} <= failed.keys()
    unknown = run("drive", {**gone, "no_such_key": 1})[-1]
    assert unknown["stage"] == "specification"
    assert "no_such_key" in unknown["message"]


def test_the_page_names_every_key_of_the_events_of_a_load(loaded_events: list[Event]) -> None:
    page = section("load: specification and events").split("Events:\n", 1)[1]
    for name in ("started", "progress", "result"):
        sent = {key for event in loaded_events if event["event"] == name for key in event} - {"event"}
        assert sent == keys(braces_after(f"`{name}`", page)), name
    assert set(loaded_events[-1]["phases_s"]) == keys(braces_after("`phases_s`", page))


def test_the_page_names_the_keys_of_the_engines_version() -> None:
    assert set(build_info()) == keys(line_after("one JSON object: ").split(" pgdyno-engine drive")[0])
