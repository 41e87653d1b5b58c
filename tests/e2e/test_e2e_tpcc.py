"""tpcc workload, end to end: mixes, calls, schedules, paces and dialects, verified in the results file."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from program import SLICES, SMALLEST, Ended, Program, write_study

from pgdyno.results.reader import Evidence
from pgdyno.results.records import Measure, Trial
from pgdyno.study.schedule import block_of

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a duet needs two cores")


def compared(program: Program, evidence: Path, *arguments: str) -> tuple[Ended, list[Trial]]:
    """Return the end of a comparison with one block, and its trials, which must have passed their checks."""
    return measured(program, evidence, "compare", *SMALLEST, "--blocks", "1", *arguments)


def measured(program: Program, evidence: Path, *arguments: str | Path) -> tuple[Ended, list[Trial]]:
    """Return the end of a command that measures, and its trials, which must have passed their checks."""
    ended = program.succeed(*arguments, "--evidence", evidence, "--json")
    with Evidence(evidence) as opened:
        trials = opened.trials()
    assert {trial.status for trial in trials} == {"ok"}
    assert all(check.passed for trial in trials for check in trial.checks)
    return ended, trials


def due_when_counted(evidence: Path, trial: Trial) -> int:
    """Return the number of ok and skipped transactions that were due in the counted part of a slice."""
    with Evidence(evidence) as opened:
        found = [h.n for m in (Measure.LATENCY, Measure.SKIPPED) for h in opened.histograms(trial.trial, m)]
    return sum(found)


def kinds(found: Ended) -> list[str]:
    return [caveat["parameters"].get("kind") for caveat in found.case["caveats"]]


def test_a_mix_without_new_orders_is_measured_one_arm_at_a_time(
    program: Program, server: str, tmp_path: Path
) -> None:
    study = write_study(
        tmp_path / "mix.toml",
        [server, server],
        workload={"kind": "tpcc", "warehouses": 1, "mix": "payment=9,order-status=1"},
        drive={"clients": 2},
        run={"schedule": "blocks", "warmup": "0.1s", "transactions": 100, "repeats": 1},
    )
    found, trials = measured(program, tmp_path / "e.sqlite", "run", study)
    for trial in trials:
        assert not any(check.skipped for check in trial.checks)
        ran = {kind for piece in trial.measured for kind, n in piece.kinds.items() if n.executed}
        assert "payment" in ran and ran <= {"payment", "order_status"}
        assert "mix" in {check.name for check in trial.checks}
        assert len(trial.measured) == 1
    first, second = sorted(trials, key=lambda trial: trial.started_unix_s)
    assert first.ended_unix_s is not None
    assert first.ended_unix_s <= second.started_unix_s
    effects = found.case["comparisons"][0]["effects"]
    assert "tpm" in effects and "nopm" not in effects
    (sentence,) = [one["sentence"] for one in found.json()["caveats"] if "mix" in one["condition"]]
    assert "payment=9,order-status=1" in sentence


@needs_two_cores
def test_a_duet_drives_both_arms_at_the_same_time_with_pipelined_calls(
    program: Program, server: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    calls = {"calls": "statements", "pipeline": True, "isolation": "serializable"}
    duet = write_study(
        tmp_path / "duet.toml",
        [server, server],
        workload={"kind": "tpcc", "warehouses": 1, **calls},
        drive={"clients": 4},
        run={"schedule": "duet", "slice": "0.1s", "warmup": "0.2s", "window": "0.8s", "repeats": 1},
    )
    found, trials = measured(program, evidence, "run", duet)
    with Evidence(evidence) as opened:
        study, block = opened.study().plan, opened.blocks()[0]
    assert (study.schedule, study.rounds, study.slice_s) == ("duet", 8, 0.1)
    times = [[(s.opened_s, s.counted_from_s, s.closed_s) for s in trial.measured] for trial in trials]
    assert times[0] == times[1]
    assert len(times[0]) == 8
    for trial in trials:
        assert sum(n.executed for piece in trial.measured for n in piece.kinds.values()) > 0
    # The results file alone contains the partition of each arm.
    assert study.cpu_partition is not None
    assert study.cpu_partition.all <= os.sched_getaffinity(0)
    partitions = [
        s.cpu_partition for s in block_of(study, block.block).slices if s.role == "measure" and s.arm == 0
    ]
    assert sorted(partitions) == [0] * 4 + [1] * 4
    assert "duet" in kinds(found)
    report = program.succeed("report", evidence, "--md")
    assert "both arms run at the same time" in report.out
    assert "The CPU partitions are cores" in report.out


def test_arms_can_differ_in_their_dialect_and_their_deviations_and_have_the_rate_of_an_open_loop(
    program: Program, server: str, tmp_path: Path
) -> None:
    evidence, rate = tmp_path / "e.sqlite", 300.0
    names = ["dialect=spec", "dialect=hammerdb", "deviate=no-rollback"]
    arms = [f"{server},{name}" for name in names]
    load = (*SLICES, "--slice", "0.2s", "--window", "1.2s", "--rate", str(rate))
    found, trials = compared(program, evidence, *load, *arms)
    assert [of["arm"]["name"] for of in found.case["arms"]] == names
    assert [len(of["deviations"]) for of in found.case["arms"]] == [0, 20, 1]
    assert kinds(found).count("tpcc-deviations") == 2
    skipped = {trial.arm: {check.name for check in trial.checks if check.skipped} for trial in trials}
    assert skipped == {0: set(), 1: {"condition 10", "condition 12", "constant of last names"}, 2: set()}
    # The histograms hold the arrivals due in the counted part of a slice, whenever they end. The schedule of
    # arrivals also runs while transactions in flight at the close end, at most until the slice is drained.
    for trial in trials:
        shortest = rate * sum(piece.counted_s for piece in trial.measured)
        longest = rate * sum(piece.drained_s - piece.counted_from_s for piece in trial.measured)
        arrivals = due_when_counted(evidence, trial)
        # Poisson arrivals with six standard deviations, without the 1% of new orders that are rolled back.
        assert 0.99 * shortest - 6 * math.sqrt(shortest) <= arrivals <= longest + 6 * math.sqrt(longest)
    full = program.run("report", evidence, "--full")
    assert "Deviations from TPC-C" in full.out and "2.4.1.4" in full.out
