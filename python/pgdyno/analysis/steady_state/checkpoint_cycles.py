"""Number of complete checkpoint cycles in the windows of an arm.

What writing costs changes over a cycle: after a checkpoint's start the first change of each page puts it into
the WAL whole, and the checkpoint writes pages back for most of the time until the next. A window that holds
no whole cycle shows a part of it only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.telemetry.trial_telemetry import Telemetry
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.results.records import Series, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule

BEGUN = ("num_timed", "num_requested")

WAL_MIN_MIB = 1.0
"""In a window: who writes less has nothing to checkpoint."""

CYCLES_WANTED = 1
"""Whole ones in a window, where the study asks for no number."""


@dataclass(frozen=True)
class Cycles:
    """Of an arm's trials that tell. ``checkpoints``: begun in a window, in the mean; ``without``: windows
    with none; ``whole``: whole cycles in the window that has the fewest; ``wanted`` so many.
    """

    trials: int
    checkpoints: float
    without: int
    whole: int
    wanted: int
    writes: bool


def begun(series: Series) -> list[float]:
    """When a checkpoint was seen to have begun, in seconds since the trial's epoch."""
    grew = np.logical_or.reduce([np.diff(series.column(name)) > 0 for name in BEGUN])
    at_s: list[float] = series.points[1:, 0][grew].tolist()
    return at_s


def of_arm(
    plan: Study, trials: Sequence[Trial], series: Mapping[int, Series], told: Mapping[int, Telemetry]
) -> Cycles | None:
    """None where no trial tells of its checkpoints."""
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    counts = [
        (trial, n)
        for trial in ok
        if (n := _checkpoints(told.get(trial.trial), series.get(trial.trial))) is not None
    ]
    if not counts:
        return None
    wal_mib = [
        of.values["wal.bytes"] for trial, _ in counts if "wal.bytes" in (of := told[trial.trial]).values
    ]
    return Cycles(
        trials=len(counts),
        checkpoints=sum(n for _, n in counts) / len(counts),
        without=sum(n == 0 for _, n in counts),
        whole=min(_whole(trial, n) for trial, n in counts),
        wanted=CYCLES_WANTED if plan.checkpoints is None else plan.checkpoints,
        writes=not wal_mib or max(wal_mib) >= WAL_MIN_MIB,
    )


def cycle_caveats(plan: Study, name: str, found: Cycles) -> list[Caveat]:
    """Of the arm of that name."""
    if not found.writes:
        return []
    if 2 * found.without > found.trials:
        return [Caveat(Code.WINDOW_WITHOUT_CHECKPOINT, {"arm": name})]
    if found.whole >= found.wanted or plan.schedule is Schedule.SLICES:
        return []  # of slices CHECKPOINT_IN_SLICES says it, of each block
    names: dict[str, Parameter] = {
        "arm": name,
        "cycles": found.whole,
        "wanted": found.wanted,
        "checkpoints": f"{found.checkpoints:.3g}",
    }
    return [Caveat(Code.FEW_CHECKPOINT_CYCLES, names)]


def _whole(trial: Trial, checkpoints: int) -> int:
    """A window that begins with a checkpoint begins with a cycle; others begin and end within one."""
    begins_with_one = trial.driver.get("ordered_checkpoint_s") is not None
    return checkpoints if begins_with_one else max(0, checkpoints - 1)


def _checkpoints(told: Telemetry | None, series: Series | None) -> int | None:
    """By the counters at both ends of the window, else by the samples within it."""
    counters = (
        [] if told is None else [told.values.get(f"checkpoints.{how}") for how in ("timed", "requested")]
    )
    known = [n for n in counters if n is not None]
    if known:
        return round(sum(known))
    if series is None or not any(name in series.columns for name in BEGUN):
        return None
    return len(begun(series))
