"""Blocks of a study: its budget, causes that make a trial fail, and the arm that they are attributed to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_study import Synthetic, arms_of, study_of

from example_studies import make_study
from pgdyno.analysis.comparison_caveats import comparison_caveats
from pgdyno.cli.execution import why_no_valid_block
from pgdyno.errors import (
    ConnectError,
    DatasetError,
    DiskFullError,
    EngineError,
    ServerError,
    StartError,
    WorkloadError,
)
from pgdyno.measure import block, drive
from pgdyno.measure.block import rate_of_trial, require_working_kinds, run_block
from pgdyno.measure.engine_runs import EngineRun
from pgdyno.measure.progress import Warned
from pgdyno.measure.study_runner import Budget
from pgdyno.measure.trial import Lab, RunningTrial, judge_trial, trial_outcome
from pgdyno.results.reader import Evidence
from pgdyno.results.records import (
    ENGINE,
    BlockStatus,
    CapacitySearch,
    Check,
    DriverFacts,
    Failure,
    TrialOutcome,
    TrialStatus,
)
from pgdyno.results.writer import Writer
from pgdyno.server.engine import DriveFailure, DriveResult, TargetResult
from pgdyno.study.plan import Study
from pgdyno.study.schedule import PlannedBlock
from pgdyno.study.values import SearchStep

WHY = "18.4 (embedded) did not start: FATAL: WAL streaming requires wal_level"
NAMES = ("17", "18")


class Arm:
    """An arm whose start is simulated."""

    shares_server = False

    def __init__(self, index: int) -> None:
        self.index, self.name = index, NAMES[index]

    def is_restored(self) -> bool:
        return True

    def restore(self, _block: int) -> None:
        pass

    def stop(self) -> None:
        pass

    def log(self) -> str | None:
        return f"the log of {self.name}"


def run_failing(
    path: Path, arms: Sequence[Arm], schedule: str = "slices", order: tuple[int, int] = (0, 1)
) -> list[str]:
    """Run a block, which must fail, and return its warnings."""
    told: list[str] = []
    with Writer.create(path, study_of(Synthetic()), arms_of(Synthetic())) as writer:
        lab = Lab(
            make_study(schedule=schedule),
            cast(Any, arms),
            writer,
            lambda event: told.append(event.text) if isinstance(event, Warned) else None,
            cast(Any, SimpleNamespace(requested=False)),
        )
        assert run_block(lab, PlannedBlock(0, 1, order, ())) is BlockStatus.FAILED
    return told


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("schedule", ["slices", "blocks"])
def test_a_server_that_does_not_start_is_attributed_to_its_arm(
    order: tuple[int, int], schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_server(trial: RunningTrial, _: Study) -> None:
        if trial.arm.name == "18":
            raise StartError(WHY)
        if schedule == "blocks":
            raise StartError("of its own")

    monkeypatch.setattr(block, "start_server", start_server)
    path = tmp_path / "e"
    told = run_failing(path, [Arm(0), Arm(1)], schedule, order)
    with Evidence(path) as evidence:
        found = {NAMES[trial.arm]: trial for trial in evidence.trials()}
        assert (found["18"].reason, found["18"].driver) == (WHY, DriverFacts())
        assert evidence.server_log(found["18"].trial) == "the log of 18"
        if schedule == "slices":
            assert found["17"].reason == f"the block stopped because of 18: {WHY}"
            assert found["17"].driver == DriverFacts(stopped_by="18")
        else:
            assert (found["17"].reason, found["17"].driver) == ("of its own", DriverFacts())
        told_of = comparison_caveats(evidence.study(), evidence.arms(), evidence.trials(), [], {})
    caveats = [caveat for caveat in told_of if caveat.kind == "trials-failed"]
    blamed = [caveat.parameters["arm"] for caveat in caveats]
    assert blamed == (["18"] if schedule == "slices" else ["17", "18"])
    assert f"block 1, 18: failed: {WHY}" in told
    if schedule == "slices":
        assert why_no_valid_block(path) == f"18: {WHY}"


def test_arms_start_at_the_same_time_after_the_restores_of_all(tmp_path: Path) -> None:
    restored: list[int] = []
    starting = threading.Barrier(2)

    class Starting(Arm):
        def restore(self, _block: int) -> None:
            restored.append(self.index)

        def start(self) -> None:
            assert sorted(restored) == [0, 1]
            starting.wait(60.0)  # broken after this time, unless the other arm starts as well
            raise StartError(WHY)

    run_failing(tmp_path / "e", [Starting(0), Starting(1)])
    with Evidence(tmp_path / "e") as evidence:
        assert evidence.trials()[0].reason == WHY


def test_a_driver_stopped_by_one_arm_is_not_a_failure_of_the_other() -> None:
    run = EngineRun(failure=DriveFailure("connect", "refused", "18"))
    own, other = (trial_outcome(run, target, name, None, None) for target, name in ((1, "18"), (0, "17")))
    assert (own.reason, own.driver) == ("connect: refused", DriverFacts())
    reason = "the driver stopped because of 18: connect: refused"
    assert (other.reason, other.driver) == (reason, DriverFacts(stopped_by="18"))
    without_an_arm = trial_outcome(EngineRun(failure=DriveFailure("start", "no")), 0, "17", None, None)
    assert without_an_arm.driver == DriverFacts(stopped_by=ENGINE)


@pytest.mark.parametrize(
    ("error", "stopped_by"),
    [(EngineError("the engine was killed"), ENGINE), (ServerError("it is gone"), None)],
)
def test_a_failure_of_our_engine_is_charged_to_no_arm(
    error: Exception, stopped_by: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(*_: object) -> None:
        raise error

    monkeypatch.setattr(block, "_carry_out", carry_out)
    run_failing(tmp_path / "e", [Arm(0), Arm(1)])
    with Evidence(tmp_path / "e") as evidence:
        trials = evidence.trials()
        caveats = comparison_caveats(evidence.study(), evidence.arms(), trials, [], {})
    assert [trial.driver.stopped_by for trial in trials] == [stopped_by] * 2
    assert [trial.failed_by_itself for trial in trials] == [stopped_by is None] * 2
    assert [of.parameters["arm"] for of in caveats if of.kind == "trials-failed"] == ["17", "18"]


@pytest.mark.parametrize(("target", "expected"), [("18", ServerError), (None, EngineError)])
def test_a_server_that_fails_in_its_warm_up_is_not_a_failure_of_the_engine(
    target: str | None, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = DriveFailure("connect", "refused", target)
    monkeypatch.setattr(drive, "drive_specification", lambda *_, **__: {})
    monkeypatch.setattr(drive, "run_drive", lambda *_, **__: EngineRun(failure=failure))
    study = make_study().model_copy(update={"warmup_workload": make_study().workload})
    lab = cast(
        Any, SimpleNamespace(study=study, watch=lambda _: None, interruption=None, engine_of=lambda _: None)
    )
    with pytest.raises(expected, match="warm-up failed: refused"):
        drive._warm_up(lab, PlannedBlock(0, 1, (0, 1), ()), (), (), (2, 2), None)


CRASH_DETECTOR = cast(Any, SimpleNamespace(execute=lambda _: None))
ARM = cast(Any, SimpleNamespace(name="a", log=lambda: "its last words"))
CHECKS = cast(Any, SimpleNamespace())


def judged(monkeypatch: pytest.MonkeyPatch, error: Exception) -> TrialOutcome:
    def judge(*_: object, **__: object) -> TrialOutcome:
        raise error

    monkeypatch.setattr(block, "judge_trial", judge)
    return block._judged(
        RunningTrial(ARM, 1, CHECKS, crash_detector=CRASH_DETECTOR),
        TrialOutcome(TrialStatus.OK, 1.0),
        EngineRun(),
        0,
    )


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection\n\tThis means that it ended"),
        ConnectError("no connection / it ended"),
        DatasetError("no warehouses"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_server_lost_during_the_checks_fails_its_trial_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    outcome = judged(monkeypatch, error)
    assert outcome.status is TrialStatus.FAILED
    assert outcome.server_log == "its last words"
    assert outcome.reason and "\n" not in outcome.reason
    with pytest.raises(DiskFullError):
        judged(monkeypatch, DiskFullError("the disk is full"))


DONE = DriveResult("done", None, [], {"memory_peak_bytes": 1})
LOST = replace(DONE, stopped="server-lost", lost="a")
STOPPED = replace(DONE, stopped="stop")
WAS_LOST = "the server was lost in the middle of the trial"


@pytest.mark.parametrize(
    ("ended", "connections_lost", "outcomes"),
    [
        (DONE, 0, [("ok", "")] * 2),
        (DONE, 2, [("failed", "connections to the server were lost: 2"), ("ok", "")]),
        (LOST, 2, [("failed", WAS_LOST), ("failed", f"the driver stopped because of a: {WAS_LOST}")]),
        (STOPPED, 1, [("interrupted", "stopped before its last slice")] * 2),
    ],
)
def test_a_lost_server_is_attributed_to_its_arm(
    ended: DriveResult, connections_lost: int, outcomes: list[tuple[str, str]]
) -> None:
    found = [trial_outcome(run_of(ended, connections_lost), i, "ab"[i], None, None) for i in (0, 1)]
    assert [(outcome.status, outcome.reason) for outcome in found] == outcomes


def test_counts_of_an_interrupted_search_do_not_belong_to_the_trial() -> None:
    run = replace(run_of(STOPPED, 0), before="while searching for the capacity: ", epoch_unix_s=1e9)
    outcome = trial_outcome(run, 0, "a", 0.5, 0.25)
    assert outcome.status is TrialStatus.INTERRUPTED
    assert outcome.reason == "while searching for the capacity: stopped before its last slice"
    assert (outcome.restore_s, outcome.start_s) == (0.5, 0.25)
    assert (outcome.epoch_unix_s, outcome.transactions, outcome.driver) == (None, None, DriverFacts())


def test_the_log_of_a_search_is_not_held_against_the_trial_after_it() -> None:
    def end(_connect: object, _result: object, log: str) -> list[Check]:
        return [Check("server log", False, detail=log)]

    arm = cast(Any, SimpleNamespace(connect=None, log=lambda: "sought found", effective=dict))
    checks = cast(Any, SimpleNamespace(end=end))
    outcome = judge_trial(TrialOutcome(TrialStatus.OK, 1.0), arm, run_of(DONE, 0), 0, checks, len("sought "))
    assert [check.detail for check in outcome.checks] == ["found"]


def run_of(ended: DriveResult, connections_lost: int) -> EngineRun:
    """A run of the arms a and b, in which a lost connections."""
    targets = [TargetResult({}, {}, {"new_orders": 1}, {}, n) for n in (connections_lost, 0)]
    return EngineRun(result=replace(ended, targets=targets))


FULL = "2026-11-22 13:00:00.000 UTC [7] PANIC:  could not write to file: No space left on device\n"


@pytest.mark.parametrize(
    ("status", "check", "is_told"),
    [
        (TrialStatus.FAILED, None, True),
        (TrialStatus.EXCLUDED, "server log", True),
        (TrialStatus.EXCLUDED, "condition 1", False),
        (TrialStatus.OK, None, False),
    ],
)
def test_a_trial_that_failed_because_of_its_server_contains_its_log(
    status: TrialStatus, check: str | None, is_told: bool
) -> None:
    checks = [] if check is None else [Check(check, False)]
    outcome = block.with_log_error_of_server(
        TrialOutcome(status, 1.0, reason="it", checks=checks, server_log=FULL)
    )
    words = "PANIC: could not write to file: No space left on device (run pgdyno cache prune"
    assert outcome.log_error.startswith(words) == is_told
    assert is_told or outcome.log_error == ""


MISSING = Failure("pay", "42P01", 70, 'relation "x" does not exist (SQLSTATE 42P01)')


def test_a_kind_that_never_succeeds_is_an_error_with_its_message() -> None:
    with pytest.raises(
        WorkloadError, match=r'pay failed on 18 \(SQLSTATE 42P01: relation "x" does not exist\)'
    ):
        require_working_kinds("18", {"read": 5}, [MISSING])


def test_conflicts_lost_connections_and_a_few_failures_may_end() -> None:
    for sqlstate in ("40001", "40P01", "57P01", "53300", "connection", "abandoned"):
        require_working_kinds("18", {}, [Failure("pay", sqlstate, 70)])
    require_working_kinds("18", {"pay": 1}, [MISSING])
    require_working_kinds("18", {}, [Failure("pay", "42P01", 3)])


def test_the_progress_shows_the_capacity_that_was_found_and_not_the_rate_of_the_window() -> None:
    study, ok = make_study(), Counter({"new_order": 500})
    assert rate_of_trial(study, 0, ok, 10.0, DriverFacts()) == study.workload.pace.of(ok, 10.0)
    seeking = study.model_copy(update={"capacity": "p99 < 20ms"})
    tried = [SearchStep(100.0, 5.0), SearchStep(110.0, 80.0)]
    found = rate_of_trial(
        seeking, 0, ok, 10.0, DriverFacts(capacity=CapacitySearch("p99 < 20ms", 200.0, tried))
    )
    assert found == pytest.approx(105, abs=1)
    assert rate_of_trial(seeking, 0, ok, 10.0, DriverFacts()) is None


@given(budget_s=st.floats(10, 1e5), blocks=st.lists(st.floats(1, 100), min_size=1, max_size=500))
def test_the_budget_is_kept_within_half_a_block(budget_s: float, blocks: list[float]) -> None:
    budget = Budget(budget_s, spent_s=0.0)
    ran = 0
    for block_s in blocks:
        if not budget.allows_another():
            break
        budget.spend(block_s)
        ran += 1
    # The first block runs regardless of the budget. A later one starts if half of the previous block still
    # fits, so the overrun is at most half of that one plus the excess of its own duration.
    if ran > 1:
        before_s, last_s = blocks[ran - 2], blocks[ran - 1]
        assert budget.spent_s <= budget_s + last_s - before_s / 2 + 1e-6


def test_time_spent_before_a_resume_counts() -> None:
    assert not Budget(budget_s=100, spent_s=105).allows_another()
    budget = Budget(budget_s=100, spent_s=90)
    assert budget.allows_another()
    budget.spend(12)
    assert not budget.allows_another()
    assert budget.passes_expected(7) == 8  # the running block is included


def test_the_number_of_blocks_is_guessed_from_the_last() -> None:
    budget = Budget(budget_s=100, spent_s=0)
    assert budget.passes_expected(0) is None
    budget.spend(20)
    assert budget.passes_expected(1) == 5
