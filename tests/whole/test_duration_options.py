"""Lengths of warm-up and window: bounds, checkpoint cycles, and budgets that are too short."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from example_studies import make_file, make_study
from pgdyno.cli.options import require_time_for_block, shortage, time_text, window_text
from pgdyno.errors import UsageError
from pgdyno.features.fitting.fit import FitMachine, Fitted, fit_study
from pgdyno.study.arm_spec import ArmSpec, parse_arms
from pgdyno.study.cases import cases_of, window_of
from pgdyno.study.defaults import MachineSize, WarmUpLimits, adaptive_warm_up, fit_block_layout
from pgdyno.study.plan import block_targets
from pgdyno.study.schedule import likely_timeout_s, rounds_for, with_window
from pgdyno.study.study_file import Run, StudyFile
from pgdyno.study.study_file_reader import errors_of
from pgdyno.study.values import parse_window

SMALL = MachineSize(2, 8 << 30)
ARMS = parse_arms(["17", "18,checkpoint_timeout=10min", "18,checkpoint_timeout=30"])


def test_a_warm_up_too_short_to_tell_anything_takes_its_time() -> None:
    assert adaptive_warm_up(8.0, 8.0, 1.0) == WarmUpLimits(8.0, 2.0)
    assert adaptive_warm_up(4.0, 4.0, 1.0) == WarmUpLimits(4.0)
    assert adaptive_warm_up(4.0, 4.0, 0.5) == WarmUpLimits(4.0, 2.0)


@pytest.mark.parametrize(
    ("study", "text"),
    [
        ({"budget_s": 300.0}, "5 min in all"),
        ({"budget_s": 300.0, "blocks_max": 1000}, "5 min in all"),
        (
            {"budget_s": 300.0, "blocks_max": 2, "rounds": 6, "slice_s": 1.0, "warmup_s": 1.0},
            "2 blocks, about",
        ),
        ({"budget_s": 5.0, "rounds": 60, "slice_s": 1.0}, "one block, "),
    ],
)
def test_the_time_is_that_of_the_budget_or_of_the_blocks(study: dict[str, Any], text: str) -> None:
    found = time_text(make_study(**study)).removeprefix("at most ")
    assert found.startswith(text)
    if "blocks" in text:
        seconds = float(found.split()[3])
        assert 2 * 2 * 7 < seconds < 60  # two arms, and what a block takes beside its load


def test_a_window_of_checkpoints_is_as_long_as_the_longest_timeout_and_one_piece() -> None:
    run = Run.model_construct(**parse_window("checkpoints:2"))
    assert window_of(run, 1.0, "slices", ARMS) == (1203, 1.0)
    study = make_study(checkpoints=2, rounds=1203, slice_s=1.0, schedule="blocks")
    assert window_text(study) == "2 checkpoint cycles"
    assert rounds_for(1000, 3600.0) == (9973, 361.0)  # no more than a study may have


def test_a_window_is_longer_than_nothing() -> None:
    with pytest.raises(UsageError, match="must be greater than 0"):
        parse_window("0s")


def test_a_window_has_at_most_10000_slices() -> None:
    longest, longer = (
        window_of(Run.model_construct(**parse_window(text)), 1.0, "slices", ARMS)[0]
        for text in ("10000s", "10002s")
    )
    assert longest == 10_000 and make_study(rounds=longest, slice_s=1.0).rounds == 10_000
    with pytest.raises(ValidationError, match=r"--window must be at most 2 h 47 min, 10000 slices of 1 s"):
        make_study(rounds=longer, slice_s=1.0)


def test_a_budget_of_fewer_than_five_blocks_is_reported_before_the_start() -> None:
    cycles = make_study(checkpoints=2, rounds=603, slice_s=1.0, schedule="blocks", budget_s=300.0)
    assert "5 min gives about 1" in shortage(cycles, SMALL)
    # A block of two arms takes 2 · (2 s + 4 s), plus about 6 s for restore and checks.
    assert " 5 blocks" not in shortage(make_study(budget_s=90.0, slice_s=1.0), SMALL)
    assert shortage(make_study(budget_s=60.0, slice_s=1.0), SMALL).startswith(
        "2 arms need about 2 min for 5 blocks, the minimum for a verdict; 1 min gives about 3: use --minutes "
    )
    assert shortage(make_study(budget_s=60.0, slice_s=1.0, blocks_max=4), SMALL) == ""
    assert "in 3 cases need about 5 min" in shortage(make_study(budget_s=60.0, slice_s=1.0), SMALL, cases=3)


@pytest.mark.parametrize(
    ("design", "told"),
    [
        ({"budget_s": 270.0}, ""),
        ({}, "2 arms need about 5 min for 15 blocks, the minimum for the verdict same; 4 min gives about 13"),
        ({"blocks_max": 14}, "at most 14 blocks are too few for the verdict same, which needs 15 unless"),
        ({"blocks_max": 15}, "2 arms need about 5 min for 15 blocks"),
        ({"blocks_max": 5}, ""),  # one analysis, as with --stop budget
        ({"blocks_max": 14, "stop": "budget"}, ""),
    ],
)
def test_blocks_too_few_for_the_verdict_same_are_reported_before_the_start(
    design: dict[str, Any], told: str
) -> None:
    found = shortage(make_study(**{"budget_s": 240.0, "slice_s": 1.0, **design}), SMALL)
    assert found.startswith(told) and bool(found) == bool(told)


def test_a_shortage_counts_the_searches_for_capacities() -> None:
    study = make_study(budget_s=300.0, slice_s=1.0)
    assert shortage(study, SMALL) == ""
    told = shortage(study.model_copy(update={"capacity": "p99 < 20ms"}), SMALL)
    assert told.startswith("2 arms with searches of about ")
    assert "5 min gives about" in told


def test_several_arms_in_few_minutes_have_five_blocks_or_the_minutes_that_they_need() -> None:
    for arms, minutes in itertools.product(range(2, 9), range(1, 11)):
        layout = fit_block_layout(60.0 * minutes, arms, 0.5, "slices", block_targets())
        study = make_study(
            arms=parse_arms(["18"] * arms),
            budget_s=60.0 * minutes,
            slice_s=0.5,
            rounds=layout.rounds,
            warmup_s=layout.warmup_s,
            warmup_min_s=2.0,
        )
        if " 5 blocks" in shortage(study, SMALL):
            assert (layout.rounds, layout.warmup_s) == (4, 3)  # nothing remains to be shortened
            assert 60 * minutes < 5 * (arms * (2 + 2) + 6 + 4 * (arms - 2))


def test_a_budget_far_below_one_block_is_rejected_with_a_sufficient_one() -> None:
    # A block of two arms is 2 · (2 s + 4 s).
    require_time_for_block(make_study(budget_s=6.0, slice_s=1.0))
    with pytest.raises(
        UsageError, match=r"^--minutes 0.0833 is too short.* at least 12 s: use at least 0.2 \(1 for"
    ):
        require_time_for_block(make_study(budget_s=5.0, slice_s=1.0))
    require_time_for_block(make_study(budget_s=5.0, blocks_max=1))
    require_time_for_block(make_study(budget_s=5.0, schedule="blocks", transactions=9))
    require_time_for_block(make_study(budget_s=5.0, schedule="blocks", checkpoints=1))


def test_the_servers_own_timeouts_apply_also_in_a_resumed_study() -> None:
    asked = make_study(schedule="blocks", checkpoints=2)
    found = with_window(asked, [300.0, None, 30.0])
    assert found.rounds * found.slice_s == 603
    again = type(found).model_validate(found.model_dump())
    assert with_window(again, [30.0, 300.0]) == found
    assert with_window(make_study(), [300.0]) == make_study()
    assert likely_timeout_s([ArmSpec(server="17", name="17")]) == 300.0


def file_of(**run: Any) -> StudyFile:
    return make_file(settings={"checkpoint_timeout": "1min"}, run={"repeats": 5, **run})


def test_a_study_file_without_a_warm_up_leaves_it_to_the_evidence() -> None:
    (case,) = cases_of(file_of(window="30s"))
    assert (case.study.warmup_s, case.study.warmup_min_s) == (10, 2.5)
    (case,) = cases_of(file_of(window="30s", warmup="10s"))
    assert (case.study.warmup_s, case.study.warmup_min_s) == (10, None)
    (case,) = cases_of(file_of(window="30s", warmup="60s", warmup_min="5s"))
    assert (case.study.warmup_s, case.study.warmup_min_s) == (60, 5)


def test_a_window_replaces_cycles_that_do_not_fit_and_the_schedule_is_kept() -> None:
    machine = FitMachine(2, 24 * 2**30, 50 * 2**30)
    fitted = fit_study(file_of(checkpoints=2, schedule="blocks"), machine, 6)
    run = fitted.file.run
    assert (run.checkpoints, run.schedule) == (None, "blocks") and run.window_s is not None
    assert {change.key for change in fitted.changes} >= {"run.checkpoints", "run.window"}
    assert list(errors_of(fitted.file)) == []
    assert fit_study(fitted.file, machine, 6) == Fitted(fitted.file, ())
    assert fit_study(file_of(checkpoints=2, schedule="blocks"), machine, 600).file.run.checkpoints == 2
