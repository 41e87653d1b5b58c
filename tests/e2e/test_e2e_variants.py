"""Further schedules and load types: one short comparison each, verified in its results file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from program import Program

from pgdyno.results.reader import Evidence
from pgdyno.results.records import Trial
from pgdyno.study.arm_spec import parse_arms

VARIANTS = {
    "one arm at a time, a round trip a statement": "--schedule blocks --calls statements",
    "pipelined and serializable": "--calls statements --pipeline --isolation serializable --clients 8",
    "keying and thinking": "--pacing keying-and-thinking --clients 20 --slice 1s --warmup 1s --window 2s",
    "more clients than the default of connections": "--clients 200",
}


def compared(program: Program, tmp_path: Path, *arguments: str) -> tuple[dict[str, object], list[Trial]]:
    evidence = tmp_path / "e.sqlite"
    ended = program.compare("--blocks", "1", "--evidence", evidence, "--json", *arguments)
    assert ended.status == 0, ended.err
    with Evidence(evidence) as opened:
        return ended.json(), opened.trials()


def test_a_mix_without_new_orders_is_checked_by_its_weights_and_has_no_nopm(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    found, trials = compared(program, tmp_path, "--mix", "payment=9,order-status=1", server, server)
    assert [trial.status for trial in trials] == ["ok", "ok"]
    for trial in trials:
        ran = {kind for piece in trial.measured for kind, n in piece.kinds.items() if n.executed}
        assert "payment" in ran and ran <= {"payment", "order_status"}
        assert {check.name: check.passed for check in trial.checks}["mix"]
    comparisons, caveats = found["comparisons"], found["caveats"]
    assert isinstance(comparisons, list) and isinstance(caveats, list)
    assert "tpm" in comparisons[0]["effects"] and "nopm" not in comparisons[0]["effects"]
    (sentence,) = [one["sentence"] for one in caveats if one["code"] == "not-tpcc-mix"]
    assert "payment=9,order-status=1" in sentence


def executed(trial: Trial) -> int:
    return sum(counts.executed for piece in trial.measured for counts in piece.kinds.values())


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_each_way_to_drive_gives_trials_that_pass_their_checks(
    program: Program, server: str, loaded: Program, tmp_path: Path, options: str
) -> None:
    _, trials = compared(program, tmp_path, *options.split(), server, server)
    assert [trial.status for trial in trials] == ["ok", "ok"]
    assert all(check.passed for trial in trials for check in trial.checks)
    if "keying" not in options:  # in which a client starts a transaction every twenty seconds
        assert all(executed(trial) > 0 for trial in trials)
    if "200" in options:
        assert all(int(trial.settings["max_connections"]) > 200 for trial in trials)
    if "blocks" in options:
        first, second = sorted(trials, key=lambda trial: trial.started_unix_s)
        assert first.ended_unix_s is not None
        assert first.ended_unix_s <= second.started_unix_s
        assert all(len(trial.measured) == 1 for trial in trials)


def test_an_open_loop_schedules_its_rate(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    rate = 300.0
    _, trials = compared(program, tmp_path, "--rate", str(rate), "--window", "1.2s", server, server)
    for trial in trials:
        counts = [c for piece in trial.measured for c in piece.kinds.values()]
        arrivals = sum(c.executed + c.failed + c.skipped for c in counts)
        expected = rate * sum(piece.counted_s for piece in trial.measured)
        # Poisson arrivals with six standard deviations, and those in flight at the edge of a slice, which
        # count where they end: at most one for each of the two clients and six slices.
        assert abs(arrivals - expected) <= 6 * math.sqrt(expected) + 12
    assert [trial.status for trial in trials] == ["ok", "ok"]


def test_an_overloaded_arm_has_only_lower_bounds_of_its_latency(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    found, trials = compared(program, tmp_path, "--rate", "100000", "--window", "1.2s", server, server)
    assert [trial.status for trial in trials] == ["ok", "ok"]
    arms, caveats = found["arms"], found["caveats"]
    assert isinstance(arms, list) and isinstance(caveats, list)
    assert {"arrivals-skipped", "median-not-observed"} <= {one["code"] for one in caveats}
    for arm in arms:
        assert arm["levels"]["median_latency"] is None
        # Most arrivals of the window of 1.2 s were never sent.
        assert arm["lower_bounds"]["median_latency"] > 100


def test_three_arms_are_each_compared_with_the_first(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    arms = (server, server, f"{server},work_mem=8MB")
    first, again, other = (arm.name for arm in parse_arms(arms))
    found, trials = compared(program, tmp_path, *arms)
    assert [trial.status for trial in trials] == ["ok"] * 3
    assert found["verdict"] is None
    comparisons = found["comparisons"]
    assert isinstance(comparisons, list)
    assert [(c["baseline"], c["arm"]) for c in comparisons] == [
        (first, again),
        (first, other),
    ]
    assert {trial.arm: trial.settings["work_mem"] for trial in trials} == {0: "4MB", 1: "4MB", 2: "8MB"}


def test_the_budget_is_kept_within_a_block(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    # By the times in the results file. A block starts if half of the longest one so far still fits.
    evidence, budget_s = tmp_path / "e.sqlite", 6.0
    ended = program.compare("--minutes", str(budget_s / 60), "--evidence", evidence, server, server)
    assert ended.status == 0, ended.err
    with Evidence(evidence) as opened:
        spans = [(block.ended_unix_s or math.nan) - block.started_unix_s for block in opened.blocks()]
        assert opened.study().ended_because == "budget"
    spent_s = sum(spans)
    assert spent_s - spans[-1] <= budget_s
    assert spent_s > budget_s - max(spans) / 2
