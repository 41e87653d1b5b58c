"""Specification for the engine: a target contains only what differs from the run."""

from __future__ import annotations

import pytest

from pgdyno.measure.engine_runs import drive_specification
from pgdyno.study.plan import Driving, Rate
from pgdyno.study.schedule import PlannedSlice
from pgdyno.workloads.tpcc.parameters import TpccParameters

COMMON = Driving(workload=TpccParameters(warehouses=1), clients=2, rate=Rate(per_s=10))
TARGETS = [("a", "host=a"), ("b", "host=b")]


def test_targets_with_the_same_load_have_no_overrides() -> None:
    specification = drive_specification(COMMON, 1, [], TARGETS)
    assert specification["targets"] == [
        {"name": "a", "conninfo": "host=a"},
        {"name": "b", "conninfo": "host=b"},
    ]
    assert specification == drive_specification(COMMON, 1, [], TARGETS, [COMMON, COMMON])


def test_a_target_contains_only_differences_and_an_explicit_closed_loop() -> None:
    workload = TpccParameters(warehouses=1, isolation="serializable")
    other = COMMON.model_copy(update={"workload": workload, "clients": 5, "rate": None, "retries_max": 3})
    specification = drive_specification(COMMON, 1, [], TARGETS, [COMMON, other])
    assert specification["targets"] == [
        {"name": "a", "conninfo": "host=a"},
        {
            "name": "b",
            "conninfo": "host=b",
            "workload": workload.to_drive(),
            "clients": 5,
            "rate": None,
            "retries_max": 3,
        },
    ]
    assert (specification["clients"], specification["rate"]["per_s"]) == (2, 10)


def test_a_target_may_set_its_threads_or_use_the_default() -> None:
    three = COMMON.model_copy(update={"threads": 3})
    for first, second in ((COMMON, three), (three, COMMON)):
        specification = drive_specification(first, 1, [], TARGETS, [first, second])
        assert specification["threads"] is None
        assert [target.get("threads") for target in specification["targets"]] == [
            first.threads,
            second.threads,
        ]
    alike = drive_specification(three, 1, [], TARGETS, [three, three])
    assert alike["threads"] == 3
    assert not any("threads" in target for target in alike["targets"])


def test_options_of_the_whole_run_cannot_differ() -> None:
    other = COMMON.model_copy(update={"discard_s": 0.5})
    with pytest.raises(ValueError, match="discard_s"):
        drive_specification(COMMON, 1, [], TARGETS, [COMMON, other])


def test_each_target_has_its_driving() -> None:
    with pytest.raises(ValueError, match="argument"):
        drive_specification(COMMON, 1, [PlannedSlice(0, "measure", 1.0, 0)], TARGETS, [COMMON])


def test_a_slice_contains_its_transaction_limit() -> None:
    slices = [PlannedSlice(1, "warm-up", 2.0, 0), PlannedSlice(0, "measure", 90.0, 0, transactions=1000)]
    assert drive_specification(COMMON, 1, slices, TARGETS)["slices"] == [
        {"target": 1, "role": "warm-up", "duration_s": 2.0},
        {"target": 0, "role": "measure", "duration_s": 90.0, "transactions": 1000},
    ]
