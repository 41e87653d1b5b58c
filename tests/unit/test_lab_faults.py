"""What makes a trial fail, and only that trial."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from pgdyno.drive.run import Run
from pgdyno.errors import ConnectError, DatasetError, DiskFullError
from pgdyno.evidence.records import Outcome, TrialStatus
from pgdyno.lab import block
from pgdyno.lab.block import Lab, Trial

LAB = cast(Lab, SimpleNamespace(study=SimpleNamespace(clients=2)))
ARM = cast(Any, SimpleNamespace(name="a", log=lambda: "its last words"))


def judged(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Outcome:
    def judge(*_: object, **__: object) -> Outcome:
        raise error

    monkeypatch.setattr(block, "judge", judge)
    return block._judged(LAB, Trial(ARM, 1), Outcome(TrialStatus.OK, 1.0), Run(), 0)


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


def test_a_full_disk_ends_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiskFullError):
        judged(monkeypatch, DiskFullError("the disk is full"))
