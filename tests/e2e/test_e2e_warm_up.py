"""A warm-up that ends by evidence: before its time, for all arms alike, and told in the report."""

from __future__ import annotations

from pathlib import Path

from program import Program

from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import Role

BOUNDED = (
    *("--workload", "pgbench", "-b", "select-only", "--scale", "1", "--clients", "2", "--seed", "7"),
    *("--slice", "0.2s", "--warmup", "0.4s..15s", "--window", "0.4s", "--blocks", "1", "--json"),
)
LONGEST_S = 15.0


def test_the_warm_up_ends_when_all_arms_are_steady(program: Program, server: str, tmp_path: Path) -> None:
    evidence = tmp_path / "e.sqlite"
    ended = program.run("compare", *BOUNDED, "--evidence", evidence, server, server)
    assert ended.status == 0, ended.err
    assert "warm-up 400 ms to 15 s" in ended.err
    found = ended.json()
    assert "So it was in 2 of 2 trials" in found["method"][0]
    for arm in found["arms"]:
        warm_up = arm["steadiness"]["warm_up"]
        assert warm_up["by_evidence"] == 1 and 0.4 <= warm_up["shortest_s"] < LONGEST_S
    with Evidence(evidence) as opened:
        trials = opened.trials()
    whole = [
        sum(s.role is Role.WARM_UP and s.closed_s - s.opened_s > 0.19 for s in trial.slices)
        for trial in trials
    ]
    assert whole[0] == whole[1]
    assert [len(trial.measured) for trial in trials] == [2, 2]
    assert all(trial.driver["warm_up"]["by"] == "evidence" for trial in trials)
