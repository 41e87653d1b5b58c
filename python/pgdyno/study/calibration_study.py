"""The study of a calibration: A/A cases of one server, by schedule and slice length. Pure.

They are cases of a study like any other: their blocks come in passes in random order, so whatever drifts on
the machine meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.cases import Case
from pgdyno.study.plan import Study, Workload
from pgdyno.study.schedule import TOGETHER
from pgdyno.study.sizing import discard_s, whole_rounds

SLICES_S = (0.25, 0.5, 1.0, 2.0)
"""Shorter ones are mostly lost to draining and to the clients' common start; longer ones meet the drift."""

SCHEDULES = TOGETHER
"""Those in which arms are close in time."""

WINDOW_S = 8.0
"""Of each server in a block: two pairs of rounds of the longest slices, and restarts often enough to show
what they do."""

WARMUP_S = 2.0
CORES_OF_A_DUET = 2


def schedules_here(cores: int) -> list[str]:
    """Those of SCHEDULES that a study can have on so many cores."""
    return [one for one in SCHEDULES if (one != "duet" or cores >= CORES_OF_A_DUET)]


def calibration_cases(
    server: str,
    workload: Workload,
    clients: int,
    *,
    schedules: Sequence[str],
    slices_s: Sequence[float],
    minutes: float,
    seed: int,
) -> tuple[Case, ...]:
    """A case for each schedule and length; they share the minutes. Raises UsageError: no such server."""
    arms = tuple(parse_arms([server, server]))
    count = len(schedules) * len(slices_s)
    return tuple(
        Case(
            f"{schedule}, {slice_s:g} s",
            {"schedule": schedule, "slice": f"{slice_s:g} s"},
            ({}, {}),
            Study.model_validate(
                {
                    "title": f"A/A of {arms[0].name} in {schedule} of {slice_s:g} s",
                    "arms": arms,
                    "workload": workload,
                    "clients": clients,
                    "schedule": schedule,
                    "slice_s": slice_s,
                    "discard_s": discard_s(slice_s),
                    "warmup_s": WARMUP_S,
                    "rounds": max(4, whole_rounds(WINDOW_S, slice_s, "slices")),
                    "budget_s": 60 * minutes / count,
                    "probes": (),
                    "stop": "budget",
                    "seed": seed + number,
                    "aa": False,
                }
            ),
        )
        for number, (schedule, slice_s) in enumerate(
            (schedule, slice_s) for schedule in schedules for slice_s in slices_s
        )
    )
