"""Duet from the command line: both arms at once, its output, and rejected cases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from program import Program

from pgdyno.results.reader import Evidence
from pgdyno.study.schedule import block_of

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a duet needs two cores")


@needs_two_cores
def test_both_arms_are_driven_at_the_same_time(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    ended = program.compare(
        *("--schedule", "duet", "--slice", "0.1s", "--window", "0.8s", "--blocks", "1"),
        *("--evidence", evidence, "--json", server, server),
    )
    assert ended.status == 0, ended.err
    with Evidence(evidence) as opened:
        study, trials, block = opened.study().plan, opened.trials(), opened.blocks()[0]
    assert [trial.status for trial in trials] == ["ok", "ok"]
    assert (study.schedule, study.rounds, study.slice_s) == ("duet", 8, 0.1)
    times = [[(s.opened_s, s.counted_from_s, s.closed_s) for s in trial.measured] for trial in trials]
    assert times[0] == times[1]
    assert len(times[0]) == 8
    assert all(piece.kinds for trial in trials for piece in trial.measured)
    # The results file alone contains the partition of each arm.
    assert study.cpu_partition is not None
    assert study.cpu_partition.all <= os.sched_getaffinity(0)
    partitions = [
        s.cpu_partition for s in block_of(study, block.block).slices if s.role == "measure" and s.arm == 0
    ]
    assert sorted(partitions) == [0] * 4 + [1] * 4
    found = ended.json()
    assert "duet" in {caveat["code"] for caveat in found["caveats"]}
    report = program.run("report", evidence, "--md")
    assert report.status == 0, report.err
    assert "both arms run at the same time" in report.out
    assert "The CPU partitions are cores" in report.out


def test_an_invalid_duet_is_rejected_with_the_remedy(program: Program) -> None:
    ended = program.run("compare", "--schedule", "duet", "18", "host=/nowhere")
    assert ended.status == 2
    assert "a running server" in ended.err
    assert "use the schedule slices" in " ".join(ended.err.split())


@needs_two_cores
def test_one_core_is_rejected_with_the_remedy(program: Program, server: str) -> None:
    ours = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(ours)})
        ended = program.run("compare", "--schedule", "duet", server, server)
    finally:
        os.sched_setaffinity(0, ours)
    assert ended.status == 2
    assert "at least 2 cores, half of them for each server (got 1): use the schedule slices" in " ".join(
        ended.err.split()
    )
