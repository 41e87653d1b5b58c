"""Attribution of a failed block to an arm, and the arm named in messages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from synthetic_study import Synthetic, arms_of, study_of

from example_studies import make_study
from pgdyno.analysis.comparison_caveats import comparison_caveats
from pgdyno.caveats import Code
from pgdyno.cli.execution import why_no_valid_block
from pgdyno.errors import EngineError, ServerError, StartError
from pgdyno.measure import block as lab_block
from pgdyno.measure import drive
from pgdyno.measure.block import run_block
from pgdyno.measure.engine_runs import EngineRun
from pgdyno.measure.progress import Warned
from pgdyno.measure.trial import Lab, RunningTrial, trial_outcome
from pgdyno.results.reader import Evidence
from pgdyno.results.records import ENGINE, BlockStatus, DriverFacts
from pgdyno.results.writer import Writer
from pgdyno.server.engine import DriveFailure
from pgdyno.study.schedule import PlannedBlock

WHY = "18.4 (embedded) did not start: FATAL: WAL streaming requires wal_level"
NAMES = ("17", "18")


class Arm:
    """An arm that is never started; ``bring_up`` is simulated."""

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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("schedule", ["slices", "blocks"])
def test_a_server_that_does_not_start_is_attributed_to_its_arm(
    order: tuple[int, int], schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring_up(_lab: Lab, trial: RunningTrial) -> None:
        if trial.arm.name == "18":
            raise StartError(WHY)
        if schedule == "blocks":
            raise StartError("of its own")

    monkeypatch.setattr(lab_block, "bring_up", bring_up)
    told: list[str] = []
    arms = cast(Any, [Arm(0), Arm(1)])
    path = tmp_path / "e"
    with Writer.create(path, study_of(Synthetic()), arms_of(Synthetic())) as writer:
        lab = Lab(
            make_study(schedule=schedule),
            arms,
            writer,
            lambda event: told.append(event.text) if isinstance(event, Warned) else None,
            cast(Any, SimpleNamespace(requested=False)),
        )
        assert run_block(lab, PlannedBlock(0, 1, order, ())) is BlockStatus.FAILED
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
    caveats = [caveat for caveat in told_of if caveat.code == Code.TRIALS_FAILED]
    blamed = [caveat.parameters["arm"] for caveat in caveats]
    assert blamed == (["18"] if schedule == "slices" else ["17", "18"])
    assert f"block 1, 18: failed: {WHY}" in told
    if schedule == "slices":
        assert why_no_valid_block(path) == f"18: {WHY}"


def test_a_driver_stopped_by_one_arm_is_not_a_failure_of_the_other() -> None:
    run = EngineRun(failure=DriveFailure("connect", "refused", "18"))
    own, other = (trial_outcome(run, target, name, None, None) for target, name in ((1, "18"), (0, "17")))
    assert (own.reason, own.driver) == ("connect: refused", DriverFacts())
    assert (other.reason, other.driver) == (
        "the driver stopped because of 18: connect: refused",
        DriverFacts(stopped_by="18"),
    )


@pytest.mark.parametrize(
    ("error", "stopped_by"),
    [(EngineError("the engine was killed"), ENGINE), (ServerError("it is gone"), None)],
)
def test_a_failure_of_our_engine_is_charged_to_no_arm(
    error: Exception, stopped_by: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(*_: object) -> None:
        raise error

    monkeypatch.setattr(lab_block, "_carry_out", carry_out)
    with Writer.create(tmp_path / "e", study_of(Synthetic()), arms_of(Synthetic())) as writer:
        arms, never = cast(Any, [Arm(0), Arm(1)]), cast(Any, SimpleNamespace(requested=False))
        lab = Lab(make_study(), arms, writer, lambda _: None, never)
        assert run_block(lab, PlannedBlock(0, 1, (0, 1), ())) is BlockStatus.FAILED
    with Evidence(tmp_path / "e") as evidence:
        trials = evidence.trials()
        caveats = comparison_caveats(evidence.study(), evidence.arms(), trials, [], {})
    assert [trial.driver.stopped_by for trial in trials] == [stopped_by] * 2
    assert [trial.failed_by_itself for trial in trials] == [stopped_by is None] * 2
    assert [of.parameters["arm"] for of in caveats if of.code == Code.TRIALS_FAILED] == ["17", "18"]


def test_an_engine_failure_without_an_arm_is_attributed_to_none() -> None:
    outcome = trial_outcome(EngineRun(failure=DriveFailure("start", "no")), 0, "17", None, None)
    assert outcome.driver == DriverFacts(stopped_by=ENGINE)


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
