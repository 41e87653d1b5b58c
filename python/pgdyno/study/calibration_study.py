"""The study of a calibration: A/A cases of one server, by schedule and slice length. Pure.

They are ordinary cases: their blocks run in passes in random order, so that drift of the machine affects all
of them equally.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.cases import Case
from pgdyno.study.plan import Study, Workload
from pgdyno.study.schedule import TOGETHER
from pgdyno.study.sizing import discard_s, whole_rounds

SLICES_S = (0.25, 0.5, 1.0, 2.0)
"""Default slice lengths. Shorter slices mostly consist of draining and the common start of the clients;
longer slices include more drift."""

SCHEDULES = TOGETHER
"""Schedules in which the arms run close in time."""

WINDOW_S = 8.0
"""Window of each server in a block: two pairs of rounds of the longest slices, short enough for many
restarts, whose effect is also measured."""

WARMUP_S = 2.0
CORES_OF_A_DUET = 2


def schedules_here(cores: int) -> list[str]:
    """Return the SCHEDULES that are possible with this number of cores."""
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
    """Return a case for each schedule and slice length, which share ``minutes``.

    Raises UsageError if the server is invalid.
    """
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
