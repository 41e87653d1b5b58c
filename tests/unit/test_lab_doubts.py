"""Caveats that only the lab can find."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pgdyno.caveats import Code
from pgdyno.drive.run import Run
from pgdyno.lab.arm import LabArm
from pgdyno.lab.doubts import Surroundings, doubts_of_trial
from pgdyno.probe.cpu import MachineCpu
from pgdyno.study.arm import parse_arms
from pgdyno.study.plan import Study, TpccParameters


class Silent:
    """An arm that says nothing."""

    name = "18"

    def log(self) -> str | None:
        return None


def study(schedule: str) -> Study:
    fields: dict[str, Any] = {"schedule": schedule, "warmup_s": 1, "rounds": 2, "budget_s": 60, "seed": 1}
    arms = tuple(parse_arms(["17", "18"]))
    workload = TpccParameters(warehouses=1)
    return Study.model_validate({**fields, "title": "t", "arms": arms, "workload": workload, "clients": 1})


def codes(schedule: str, before: Surroundings, after: Surroundings) -> dict[Code, dict[str, Any]]:
    seen = {"measure": before, "end": after}
    found = doubts_of_trial(study(schedule), 1, cast(LabArm, Silent()), Run(), 0, seen)
    return {caveat.code: dict(caveat.parameters) for caveat in found}


@pytest.mark.parametrize(
    ("schedule", "runs", "told"),
    [
        ("slices", (3, 5), 2),
        ("slices", (3, 3), None),
        ("blocks", (3, 5), None),
        ("slices", (None, 5), None),
        ("slices", (3, None), None),
    ],
)
def test_autovacuum_between_slices_is_told(
    schedule: str, runs: tuple[int | None, int | None], told: int | None
) -> None:
    before, after = (Surroundings(MachineCpu(s, 0.0), [n]) for s, n in zip((1.0, 2.0), runs, strict=True))
    found = codes(schedule, before, after).get(Code.AUTOVACUUM_IN_SLICES)
    assert found == (None if told is None else {"arm": "18", "n": told})


def test_time_that_the_hypervisor_took_is_told() -> None:
    stolen = codes(
        "slices", Surroundings(MachineCpu(10.0, 0.0), [0]), Surroundings(MachineCpu(20.0, 1.0), [0])
    )
    assert stolen[Code.STEAL]["share"] == "10.0%"
    calm = codes("slices", Surroundings(MachineCpu(10.0, 0.0), [0]), Surroundings(MachineCpu(20.0, 0.4), [0]))
    assert Code.STEAL not in calm
