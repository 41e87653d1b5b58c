"""The coordinator of a fleet study, with hosts that answer by a script."""

from __future__ import annotations

import itertools
from collections import deque
from pathlib import Path

import pytest

from fake_fleet import FakeHost, FakeLinks, Step, collects, ends, falls_silent, is_lost
from pgdyno.errors import UsageError
from pgdyno.features.fleet.coordinator import (
    COLLECTIONS_MAX,
    POLLS_PER_S_MAX,
    Coordinator,
    new_works,
    resumed,
    task_of,
)
from pgdyno.features.fleet.host import HostStatus, HostTask
from pgdyno.features.hosts.fleet_record import FleetRecord, HostState, HostWork, StudyChoices, read_fleet
from pgdyno.interruption import Interruption


class Watch:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.warnings: list[str] = []

    def show(self, work: HostWork, status: HostStatus) -> None:
        self.shown.append((work.host, f"{work.state} {status.step}"))

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(256)) * 10_000)
    return path


def record_of(hosts: list[str], cases: tuple[str, ...] = ()) -> FleetRecord:
    works, choices = new_works(hosts, "s", cases), StudyChoices()
    return FleetRecord(title="t", study="s.toml", text="", choices=choices, command="", works=works)


def run(
    tmp_path: Path,
    record: FleetRecord,
    watch: Watch | None = None,
    interruption: Interruption | None = None,
    **steps: list[Step] | FakeHost,
) -> tuple[dict[str, HostWork], FakeLinks]:
    links = FakeLinks(
        {name: of if isinstance(of, FakeHost) else FakeHost(steps=deque(of)) for name, of in steps.items()}
    )

    def task(work: HostWork) -> HostTask:
        return task_of(work, record, is_resumed=False, more_minutes=None)

    path, clock, stop = tmp_path / "s.fleet.json", itertools.count(step=1.0), interruption or Interruption()
    found = Coordinator(links, path, record, task, watch or Watch(), stop, clock.__next__).run()
    assert read_fleet(tmp_path / "s.fleet.json") == found
    assert not list(tmp_path.glob(".*"))
    return {work.file.removesuffix(".sqlite").removeprefix("s-"): work for work in found.works}, links


def test_results_of_all_hosts_are_collected(tmp_path: Path, evidence: Path) -> None:
    steps = {"a": [collects(evidence), ends()], "b": [collects(evidence), ends("budget")]}
    watch = Watch()
    works, links = run(tmp_path, record_of(["a", "b"]), watch, **steps)
    assert {work.state for work in works.values()} == {HostState.DONE}
    assert ("a", f"{HostState.MEASURING} copying the results file") in watch.shown
    for name in "ab":
        assert (tmp_path / f"s-{name}.sqlite").read_bytes() == evidence.read_bytes()
        assert links.hosts[name].removed == [True]


def test_a_lost_host_keeps_what_was_collected_and_the_others_go_on(tmp_path: Path, evidence: Path) -> None:
    watch = Watch()
    works, links = run(
        tmp_path,
        record_of(["a", "b", "c"]),
        watch,
        a=[collects(evidence), is_lost()],
        b=[is_lost("its agent was killed")],
        c=[collects(evidence), ends()],
    )
    assert [works[name].state for name in "abc"] == [HostState.LOST, HostState.LOST, HostState.DONE]
    assert [works[name].is_collected for name in "abc"] == [True, False, True]
    assert (tmp_path / "s-a.sqlite").exists()
    assert not (tmp_path / "s-b.sqlite").exists()
    assert links.hosts["a"].removed == [False]
    assert "b lost: its agent was killed" in watch.warnings


@pytest.mark.parametrize(
    ("host", "state", "reason"),
    [
        (FakeHost(steps=deque([falls_silent])), HostState.LOST, "no answer within"),
        (FakeHost(is_silent=True), HostState.LOST, "another study may have claimed it"),
        (FakeHost(begin_error="it cannot begin"), HostState.FAILED, "it cannot begin"),
        (FakeHost(steps=deque([ends("", "it has an error")])), HostState.FAILED, "it has an error"),
    ],
    ids=["silent", "never started", "not begun", "error"],
)
def test_a_host_without_a_result_has_a_reason_and_the_others_go_on(
    tmp_path: Path, evidence: Path, host: FakeHost, state: HostState, reason: str
) -> None:
    works, _ = run(tmp_path, record_of(["a", "b"]), a=host, b=[collects(evidence), ends()])
    assert works["a"].state is state and reason in works["a"].reason
    assert works["b"].state is HostState.DONE


@pytest.mark.parametrize("times", [COLLECTIONS_MAX - 1, COLLECTIONS_MAX])
def test_damaged_chunks_are_sent_again_a_few_times(tmp_path: Path, evidence: Path, times: int) -> None:
    host = FakeHost(steps=deque([collects(evidence), ends()]), damage=times)
    works, links = run(tmp_path, record_of(["a"]), a=host)
    is_whole = times < COLLECTIONS_MAX
    assert works["a"].state is (HostState.DONE if is_whole else HostState.FAILED)
    assert works["a"].is_collected == is_whole and links.hosts["a"].removed == [is_whole]
    assert not is_whole or (tmp_path / "s-a.sqlite").read_bytes() == evidence.read_bytes()


def test_ctrl_c_stops_every_host_and_one_that_cannot_send_its_last_blocks_keeps_its_files(
    tmp_path: Path, evidence: Path
) -> None:
    interruption = Interruption()
    interruption.requested = True
    steps = {"a": [collects(evidence)], "b": [collects(evidence), ends("", "no snapshot")]}
    works, links = run(tmp_path, record_of(["a", "b"]), interruption=interruption, **steps)
    assert [work.state for work in works.values()] == [HostState.INTERRUPTED] * 2
    assert [(host.stops, host.removed) for host in links.hosts.values()] == [(1, [True]), (1, [False])]
    assert works["b"].reason == "no snapshot" and works["b"].is_collected
    assert all((tmp_path / f"s-{name}.sqlite").exists() for name in "ab")


def test_a_resume_continues_unfinished_hosts_with_their_files(tmp_path: Path, evidence: Path) -> None:
    record, whole = record_of(["a", "b"]), [collects(evidence), ends()]
    run(tmp_path, record, a=[collects(evidence), is_lost()], b=list(whole))
    left = read_fleet(tmp_path / "s.fleet.json")
    with pytest.raises(UsageError, match="--node-name a"):
        resumed(left, ["b"], None)
    works, links = run(tmp_path, resumed(left, ["a", "b"], None), a=whole, b=FakeHost())
    assert works["a"].state is HostState.DONE
    assert links.hosts["a"].received == [tmp_path / "s-a.sqlite"]
    assert not links.hosts["b"].tasks


def test_the_cases_of_a_lost_host_are_measured_by_another_from_the_beginning(
    tmp_path: Path, evidence: Path
) -> None:
    record = record_of(["a", "b"], ("x", "y", "z"))
    assert [work.cases for work in record.works] == [("x", "z"), ("y",)]
    steps = [collects(evidence), ends()]
    works, links = run(tmp_path, record, a=[collects(evidence), is_lost()], b=[*steps, *steps])
    assert works["a"].is_moved
    assert works["b-2"].cases == ("x", "z")
    assert works["b-2"].state is HostState.DONE
    assert [task.cases for task in links.hosts["b"].tasks] == [("y",), ("x", "z")]


def test_a_resume_continues_only_works_that_have_begun(tmp_path: Path, evidence: Path) -> None:
    """Otherwise a host would continue the file of an earlier study with the same name."""
    (tmp_path / "s-b-2.sqlite").write_bytes(b"of another study")
    steps = [collects(evidence), ends()]
    refused = FakeHost(begin_error="an earlier study")
    works, _ = run(tmp_path, record_of(["a", "b"], ("x", "y")), a=refused, b=[falls_silent])
    assert [works[name].has_begun for name in "ab"] == [False, True]
    left = resumed(read_fleet(tmp_path / "s.fleet.json"), ["a", "b"], None)
    tasks = {work.host: task_of(work, left, is_resumed=True, more_minutes=None) for work in left.works}
    assert [tasks[name].is_resumed for name in "ab"] == [False, True]
    works, _ = run(tmp_path, left, a=[is_lost()], b=[*steps, *steps])
    assert [(work.file, work.has_begun) for work in works.values()][-1] == ("s-b-3.sqlite", True)
    assert (tmp_path / "s-b-2.sqlite").read_bytes() == b"of another study"


def test_more_hosts_than_cases_leave_hosts_without_work() -> None:
    assert [work.host for work in new_works(["a", "b", "c"], "s", ("x", "y"))] == ["a", "b"]


def test_polls_have_a_fixed_total_rate(tmp_path: Path) -> None:
    evidence = tmp_path / "source"
    evidence.write_bytes(b"small")
    many = {f"h{n}": [collects(evidence), ends()] for n in range(4 * POLLS_PER_S_MAX)}
    _, links = run(tmp_path, record_of(list(many)), **many)
    assert max(links.waits_s) == 4.0
    _, links = run(tmp_path, record_of(["a"]), a=[collects(evidence), ends()])
    assert set(links.waits_s) == {1.0}
