"""Interruptions of pgdyno in the middle of a block: servers end, the results file is consistent, and a resume
works.
"""

from __future__ import annotations

import fcntl
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from program import Program, Running, measuring, without_slices

from pgdyno.results.reader import Evidence
from pgdyno.study.schedule import block_of

LONG = ("--window", "40s", "--slice", "0.5s", "--blocks", "1")
"""A block that takes longer than the test."""


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return tmp_path / "e.sqlite"


def unread_bytes(pid: int) -> int:
    """Return the number of bytes in a process's standard input, a pipe, that it has not read."""
    with Path(f"/proc/{pid}/fd/0").open("rb", buffering=0) as pipe:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped. A running one could still read input."""
    states = [path.read_text().rpartition(") ")[2] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.startswith("T") for state in states)


def caught_in_a_block(program: Program, server: str, evidence: Path) -> Running:
    running = program.start(
        "compare", "--warehouses", "1", "--clients", "2", "--warmup", "0.5s", *LONG, "--seed", "7",
        "--evidence", evidence, server, server,
    )  # fmt: skip
    running.until(lambda: measuring(evidence))
    assert len(program.postmasters()) == 2
    return running


def searching(program: Program, evidence: Path, nth: int) -> Callable[[], bool]:
    """Return whether this trial, counted from the start of the program, is past the first step of its search.

    Every step has a separate engine, and only the load after the search writes slices.
    """
    trials: set[int] = set()
    engines: set[int] = set()

    def is_so() -> bool:
        trials.update(begun := without_slices(evidence))
        if begun and len(trials) == nth:
            engines.update(engine.pid for engine in program.engines())
        return len(engines) > 2

    return is_so


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_ends_the_slice_and_keeps_the_measurements(
    program: Program, server: str, evidence: Path, loaded: Program, number: signal.Signals
) -> None:
    running = caught_in_a_block(program, server, evidence)
    running.signal(number)
    ended = running.ended()
    assert ended.status == 128 + number, ended.err
    assert f"interrupted; to continue: pgdyno compare --resume {evidence}" in ended.err
    assert program.survivors() == []
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "interrupted"
        assert [block.status for block in opened.blocks()] == ["interrupted"]
        trials = opened.trials()
        assert [trial.status for trial in trials] == ["interrupted"] * 2
        # Ended slices are complete: every slice has its drained time and its counts.
        assert all(slice.drained_s >= slice.closed_s > slice.opened_s for t in trials for slice in t.slices)
        assert sum(counts.ok for t in trials for s in t.measured for counts in s.kinds.values()) > 0
    assert evidence.with_suffix(".html").stat().st_size > 10_000
    assert not list(program.cache.glob("runs/run-*"))
    assert sorted(path.name for path in evidence.parent.glob("e.*")) == ["e.html", "e.sqlite"]


def test_a_second_signal_ends_it_at_once(
    program: Program, server: str, evidence: Path, loaded: Program
) -> None:
    running = caught_in_a_block(program, server, evidence)
    (engine,) = program.engines()
    # The engine is stopped, so the first signal cannot end the slice: only a second one can.
    engine.suspend()
    try:
        running.until(lambda: stands_still(engine.pid))
        running.signal(signal.SIGINT)
        running.until(lambda: unread_bytes(engine.pid))  # the stop command
        running.signal(signal.SIGTERM)
        ended = running.ended()
    finally:
        if engine.is_running():
            engine.resume()
    assert ended.status == 130
    assert ended.complaints == ["pgdyno: aborted; the results file keeps all completed measurements"]
    assert "Traceback" not in ended.err
    assert program.survivors() == []
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "interrupted"


def test_a_killed_pgdyno_leaves_no_server_and_its_study_resumes(
    program: Program, server: str, evidence: Path, loaded: Program
) -> None:
    sizes = ("--warehouses", "1", "--clients", "2", "--warmup", "0.2s", "--slice", "0.2s", "--window", "0.4s")
    running = program.start(
        "compare", *sizes, "--blocks", "2", "--seed", "11", "--evidence", evidence, server, server
    )
    running.until(lambda: measuring(evidence, block=1))
    running.signal(signal.SIGKILL)
    assert running.ended().status == -signal.SIGKILL
    assert program.survivors() == []
    assert len(list(program.sockets.iterdir())) == 2  # kill -9 leaves these; the next run removes them
    with Evidence(evidence) as before:
        study = before.study().plan
        assert before.study().ended_unix_s is None
        assert [block.status for block in before.blocks()] == ["done", "running"]
        first = before.trials()[0]

    ended = program.run("compare", "--resume", evidence, "--json")
    assert ended.status == 0, ended.err
    found = ended.json()
    assert found["comparisons"][0]["blocks"] == [0, 1]
    with Evidence(evidence) as opened:
        blocks, trials = opened.blocks(), opened.trials(all_attempts=True)
        assert opened.study().ended_because == "blocks"
    undisturbed = [block_of(study, index) for index in range(2)]
    assert [(b.block, b.seed, tuple(b.arm_order)) for b in blocks] == [
        (b.index, b.seed, b.order) for b in undisturbed
    ]
    assert [b.status for b in blocks] == ["done"] * 2
    # The broken attempt is kept next to the new one; earlier results are unchanged.
    assert sorted((t.block, t.attempt) for t in trials) == [
        (0, 1), (0, 1), (1, 1), (1, 1), (1, 2), (1, 2),
    ]  # fmt: skip
    assert first in trials
    assert not list(program.cache.glob("runs/run-*"))
    assert not list(program.sockets.iterdir())


@pytest.mark.long
def test_a_study_that_ended_in_a_search_for_the_capacity_searches_anew(
    program: Program, server: str, evidence: Path, loaded: Program
) -> None:
    # A loose limit of a low percentile: a step is short, and the machine hardly matters.
    sizes = ("--warehouses", "1", "--clients", "2", "--warmup", "0.2s", "--slice", "0.2s", "--window", "0.4s")
    running = program.start(
        "compare", *sizes, "--schedule", "blocks", "--blocks", "1", "--seed", "11", "--no-aa",
        "--capacity", "p50<10ms", "--evidence", evidence, server, server,
    )  # fmt: skip
    running.until(searching(program, evidence, nth=1))
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130, ended.err
    assert program.survivors() == []
    with Evidence(evidence) as opened:
        (trial,) = opened.trials()
        assert (trial.status, trial.slices) == ("interrupted", [])
        assert trial.reason.startswith("while searching for the capacity: ")
        first, second = opened.blocks()[0].arm_order

    running = program.start("compare", "--resume", evidence)
    running.until(searching(program, evidence, nth=2))  # of the other arm, after the first one's trial
    running.signal(signal.SIGKILL)
    assert running.ended().status == -signal.SIGKILL
    assert program.survivors() == []

    ended = program.run("compare", "--resume", evidence, "--json")
    assert ended.status == 0, ended.err
    assert ended.json()["comparisons"][0]["blocks"] == [0]
    with Evidence(evidence) as opened:
        assert [tuple(block.arm_order) for block in opened.blocks()] == [(first, second)]
        trials = opened.trials(all_attempts=True)
    # Its checks ignore messages of the search in the server log.
    assert {(t.arm, t.attempt): (t.status, t.driver.capacity is not None) for t in trials} == {
        (first, 1): ("interrupted", False),
        (first, 2): ("ok", True),
        (first, 3): ("ok", True),
        (second, 1): ("interrupted", False),
        (second, 2): ("ok", True),
    }
