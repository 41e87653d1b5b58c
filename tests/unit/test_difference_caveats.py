"""Other differences between arms that could cause the effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from synthetic_study import Synthetic, arms_of, written_study

from pgdyno.analysis.comparison_caveats import (
    debug_build_caveats,
    difference_caveats,
    unsafe_settings_caveats,
)
from pgdyno.caveats import Caveat
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, Guarantee, Kept, Trial
from pgdyno.study.defaults import Schedule

ONE_BLOCK = Synthetic(blocks=1, slices=2)


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    with Evidence(written_study(ONE_BLOCK)) as evidence:
        return evidence.trials()


def pair(**changes: Any) -> tuple[Arm, Arm]:
    """Two identical arms, the second one changed."""
    baseline = dataclasses.replace(arms_of(ONE_BLOCK)[0], clients=8)
    return baseline, dataclasses.replace(baseline, arm=1, name="other", **changes)


def with_settings(trials: list[Trial], settings: tuple[Mapping[str, str], Mapping[str, str]]) -> list[Trial]:
    return [dataclasses.replace(trial, settings=settings[trial.arm]) for trial in trials]


def told(
    baseline: Arm, arm: Arm, trials: list[Trial], schedule: Schedule = Schedule.SLICES
) -> dict[str, Caveat]:
    return {caveat.kind: caveat for caveat in difference_caveats(baseline, arm, trials, schedule)}


def test_arms_with_one_difference_raise_no_caveat(trials: list[Trial]) -> None:
    same = with_settings(trials, ({"data_checksums": "on"}, {"data_checksums": "on"}))
    assert told(*pair(), same) == {}
    assert told(*pair(settings_requested={"work_mem": "1GB", "jit": "off"}), same) == {}
    assert told(*pair(server={"version": "18.4"}), same) == {}


LOST = "up to 600 ms of acknowledged commits are lost"
SAFE = [Guarantee("survives a crash", Kept.YES, ""), Guarantee("survives a power loss", Kept.YES, "")]
ASYNCHRONOUS = [
    Guarantee("survives a crash", Kept.PARTLY, LOST),
    Guarantee("survives a power loss", Kept.PARTLY, f"{LOST}; the rest stays consistent"),
]
NO_WAL = [Guarantee("survives a crash", Kept.UNKNOWN, ""), Guarantee("survives a power loss", Kept.NO, "")]


@pytest.mark.parametrize(
    ("safety", "difference"),
    [
        ((SAFE, ASYNCHRONOUS), f"less safe ({LOST}; the rest stays consistent)"),
        ((ASYNCHRONOUS, SAFE), f"safer ({LOST}; the rest stays consistent)"),
        ((SAFE, NO_WAL), "less safe (survives a crash: unknown; survives a power loss: NO)"),
        (
            ([*SAFE[:1], *NO_WAL[1:]], [*ASYNCHRONOUS[:1], *SAFE[1:]]),
            f"less safe ({LOST}); safer (survives a power loss: NO)",
        ),
    ],
)
def test_the_less_safe_arm_is_named_with_the_loss(
    trials: list[Trial], safety: tuple[list[Guarantee], list[Guarantee]], difference: str
) -> None:
    baseline, arm = pair(safety=safety[1])
    found = told(dataclasses.replace(baseline, safety=safety[0]), arm, trials)
    assert found["unsafe-settings"].parameters["difference"] == difference


def test_an_extension_and_its_preloaded_library_are_one_difference(trials: list[Trial]) -> None:
    demo = {"name": "demo", "version": "1.0", "source": "/demo (SHA-256 0123)", "libraries": ["demo"]}
    server = {"version": "17", "build_id": "17-demo", "extensions": [demo]}
    assert told(*pair(server=server, settings_requested={"shared_preload_libraries": "demo"}), trials) == {}
    changed = pair(server=server, settings_requested={"shared_preload_libraries": "demo", "jit": "off"})
    things = told(*changed, trials)["several-things-changed"].parameters["things"]
    assert things == "extensions, settings jit"


def test_a_version_and_settings_changed_together_are_several_differences(trials: list[Trial]) -> None:
    changed = pair(server={"version": "18.4"}, settings_requested={"work_mem": "1GB"})
    things = told(*changed, trials)["several-things-changed"].parameters["things"]
    assert things == "version 17 vs. 18.4, settings work_mem"


@pytest.mark.parametrize("name", ["data_checksums", "wal_segment_size", "block_size"])
def test_clusters_with_different_initdb_options_are_reported(trials: list[Trial], name: str) -> None:
    different = with_settings(trials, ({name: "one"}, {name: "two"}))
    found = told(*pair(), different)["clusters-differ"]
    assert found.parameters["difference"] == f"{name} is one in 17, two in other"


@pytest.mark.parametrize("schedule", [Schedule.SLICES, Schedule.BLOCKS])
def test_arms_with_different_disk_waits_should_not_alternate(trials: list[Trial], schedule: Schedule) -> None:
    unequal = with_settings(trials, ({"fsync": "on"}, {"fsync": "off"}))
    assert ("write-back-in-slices" in told(*pair(), unequal, schedule)) == (schedule is Schedule.SLICES)


def test_a_value_not_reported_by_a_version_is_not_a_difference(trials: list[Trial]) -> None:
    assert told(*pair(), with_settings(trials, ({"block_size": "8192"}, {}))) == {}


@pytest.mark.parametrize(
    ("cflags", "assertions", "flags"),
    [
        ("-Wall -O2 -g", "off", None),
        ("-Wall -Og -g", "off", "-Og"),
        ("-O0", "on", "-O0 --enable-cassert"),
        ("-O2", "on", "--enable-cassert"),
        ("-O2 -fno-O0-like", "off", None),
    ],
)
def test_a_server_built_for_debugging_is_reported(
    trials: list[Trial], cflags: str, assertions: str, flags: str | None
) -> None:
    _, arm = pair(server={"compiled": {"CFLAGS": cflags}})
    effective = with_settings(trials, ({}, {"debug_assertions": assertions}))
    assert [caveat.parameters["flags"] for caveat in debug_build_caveats(arm, effective)] == (
        [flags] if flags else []
    )


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"fsync": "on"}, {"fsync": "on"}, {}),
        ({"fsync": "off"}, {"fsync": "off"}, {"17": "fsync = off", "other": "fsync = off"}),
        ({"fsync": "on"}, {"fsync": "off"}, {}),  # shown by the safety badges
        (
            {"fsync": "off", "full_page_writes": "off"},
            {"fsync": "off", "full_page_writes": "on"},
            {"17": "fsync = off", "other": "fsync = off"},
        ),
        ({}, {"data_sync_retry": "on", "zero_damaged_pages": "off"}, {"other": "data_sync_retry = on"}),
        ({"synchronous_commit": "off"}, {"synchronous_commit": "off"}, {}),
    ],
)
def test_settings_that_risk_data_loss_are_reported_if_all_arms_have_them(
    trials: list[Trial], first: dict[str, str], second: dict[str, str], said: dict[str, str]
) -> None:
    found = unsafe_settings_caveats(pair(), with_settings(trials, (first, second)))
    assert {caveat.parameters["arm"]: caveat.parameters["settings"] for caveat in found} == said
    assert {caveat.kind for caveat in found} <= {"unsafe-arm"}
