"""A warm-up that ends when steady, or at its maximum: for all arms, and reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program

from pgdyno.results.reader import Evidence
from pgdyno.study.schedule import Role

BOUNDED = (
    *("--workload", "pgbench", "-b", "select-only", "--scale", "1", "--clients", "2", "--seed", "7"),
    *("--slice", "0.2s", "--warmup", "0.4s..3s", "--window", "0.4s", "--blocks", "1", "--json"),
)
LONGEST_S = 3.0
SLICE_S = 0.2


def test_a_warm_up_between_bounds_is_the_same_for_all_arms(
    program: Program, server: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    ended = program.run("compare", *BOUNDED, "--evidence", evidence, server, server)
    assert ended.status == 0, ended.err
    assert "warm-up 400 ms to 3 s" in ended.err
    found = ended.json()
    with Evidence(evidence) as opened:
        trials = opened.trials()
    told = [end for trial in trials if (end := trial.driver.warm_up)]
    # The time of the end depends on the machine. The test checks that it is the same for both and reported
    # correctly.
    assert told[0].by == told[1].by and told[0].looks == told[1].looks > 0
    by_evidence = told[0].by == "evidence"
    assert f"This was so in {2 * by_evidence} of 2 trials" in found["method"][0]
    for arm in found["arms"]:
        assert arm["steady_state"]["warm_up"]["ended_steady"] == by_evidence
    whole = [
        [s for s in trial.slices if s.role is Role.WARM_UP and s.closed_s - s.opened_s > 0.9 * SLICE_S]
        for trial in trials
    ]
    assert len(whole[0]) == len(whole[1])
    planned = pytest.approx(LONGEST_S / SLICE_S, abs=1)
    assert by_evidence or len(whole[0]) == planned
    assert len(whole[0]) * SLICE_S * 1.1 >= LONGEST_S / 3
    assert [len(trial.measured) for trial in trials] == [2, 2]
