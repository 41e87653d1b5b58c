"""Dialects of tpcc by the command line: arms that differ in them, their trials and their reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program

from pgdyno.results.reader import Evidence


def test_arms_can_differ_in_their_dialect_and_their_deviations(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    arms = (f"{server},dialect=spec", f"{server},dialect=hammerdb", f"{server},deviate=no-rollback")
    ended = program.compare("--blocks", "1", "--evidence", evidence, "--json", *arms)
    assert ended.status == 0, ended.err
    found = ended.json()
    assert [arm["name"] for arm in found["arms"]] == [
        "dialect=spec",
        "dialect=hammerdb",
        "deviate=no-rollback",
    ]
    assert [len(arm["deviations"]) for arm in found["arms"]] == [0, 17, 1]
    assert [one["code"] for one in found["caveats"]].count("tpcc-deviations") == 2
    with Evidence(evidence) as opened:
        trials = {trial.arm: trial for trial in opened.trials()}
    assert {trial.status for trial in trials.values()} == {"ok"}
    skipped = {arm: {check.name for check in trial.checks if check.skipped} for arm, trial in trials.items()}
    assert skipped == {0: set(), 1: {"condition 10", "condition 12", "constant of last names"}, 2: set()}
    assert len({trial.arm for trial in trials.values()}) == 3
    full = program.run("report", evidence, "--full")
    assert "Deviations from TPC-C" in full.out and "2.4.1.4" in full.out


REFUSED = {
    "an unknown deviation": ("18,deviate=no-rolback", "unknown deviation"),
    "another workload": ("18,dialect=hammerdb --workload pgbench", "--dialect requires --workload tpcc"),
    "other calls": ("18,dialect=hammerdb --calls statements", "requires calls = procedures"),
    "a sweep": ("--sweep dialect=spec,hammerdb", "no setting of the server"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_before_anything_starts(program: Program, words: str, message: str) -> None:
    ended = program.run_inside("compare", "18", *words.split())
    assert ended.status == 2
    (complaint,) = ended.complaints
    assert message in complaint
