"""Causes that make a single trial fail."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from pgdyno.errors import ConnectError, DatasetError, DiskFullError
from pgdyno.measure import block
from pgdyno.measure.engine_runs import EngineRun
from pgdyno.measure.trial import RunningTrial, judge_trial, trial_outcome
from pgdyno.results.records import Check, DriverFacts, TrialOutcome, TrialStatus
from pgdyno.server.engine import DriveResult, TargetResult

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
    assert outcome.reason
    assert "\n" not in outcome.reason


DONE = DriveResult("done", None, [], {"memory_peak_bytes": 1})
LOST = replace(DONE, stopped="server-lost", lost="a")
STOPPED = replace(DONE, stopped="stop")


@pytest.mark.parametrize(
    ("ended", "connections_lost", "status", "reasons"),
    [
        (DONE, 0, "ok", ["", ""]),
        (
            LOST,
            2,
            "failed",
            [
                "the server was lost in the middle of the trial",
                "the driver stopped because of a: the server was lost in the middle of the trial",
            ],
        ),
        (STOPPED, 1, "interrupted", ["stopped before its last slice"] * 2),
    ],
)
def test_a_lost_server_is_attributed_to_its_arm(
    ended: DriveResult, connections_lost: int, status: str, reasons: list[str]
) -> None:
    outcomes = [trial_outcome(run_of(ended, connections_lost), i, "ab"[i], None, None) for i in (0, 1)]
    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [
        (status, reason) for reason in reasons
    ]


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


def test_a_server_that_lost_connections_and_let_them_in_again_was_not_undisturbed() -> None:
    run = run_of(DONE, 2)
    a, b = (trial_outcome(run, i, "ab"[i], None, None) for i in (0, 1))
    assert (a.status, a.reason) == ("failed", "connections to the server were lost: 2")
    assert b.status == "ok"


def run_of(ended: DriveResult, connections_lost: int) -> EngineRun:
    """A run of the arms a and b, in which a lost connections."""
    targets = [TargetResult({}, {}, {"new_orders": 1}, {}, n) for n in (connections_lost, 0)]
    return EngineRun(result=replace(ended, targets=targets))


def test_a_full_disk_ends_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiskFullError):
        judged(monkeypatch, DiskFullError("the disk is full"))


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
