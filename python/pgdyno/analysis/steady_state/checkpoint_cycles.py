"""Number of complete checkpoint cycles in the windows of an arm.

The cost of writing varies over a cycle. After the start of a checkpoint, the first change of each page writes
a full-page image into the WAL. The checkpoint writes pages for most of the time until the next one. A window
without a complete cycle shows only a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.estimate import significant
from pgdyno.results.records import SampleSeries, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule

START_COUNTERS = ("num_timed", "num_requested")

WAL_MIN_MIB = 1.0
"""Minimum WAL of a window: with less there is nothing to checkpoint."""

CYCLES_REQUESTED = 1
"""Complete cycles per window, if the study sets no number."""


@dataclass(frozen=True)
class Cycles:
    """Checkpoints in an arm's trials with known counts.

    ``checkpoints`` is the mean number started per window, ``windows_without`` the number of windows without
    one. ``complete_cycles`` is the minimum per window, ``cycles_requested`` the requested number.
    ``has_wal``: a window has enough WAL for a checkpoint, or its WAL is unknown.
    """

    trials: int
    checkpoints: float
    windows_without: int
    complete_cycles: int
    cycles_requested: int
    has_wal: bool


def checkpoint_starts(series: SampleSeries) -> list[float]:
    """Return the times at which a checkpoint was first seen, in seconds since the trial's epoch."""
    grew = np.logical_or.reduce([np.diff(series.column(name)) > 0 for name in START_COUNTERS])
    at_s: list[float] = series.points[1:, 0][grew].tolist()
    return at_s


def cycles_of_arm(
    plan: Study,
    trials: Sequence[Trial],
    series: Mapping[int, SampleSeries],
    telemetry: Mapping[int, TrialTelemetry],
) -> Cycles | None:
    """Return the cycles of an arm; None if the checkpoints of no trial are known."""
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    counts = [
        (trial, n)
        for trial in ok
        if (n := _checkpoints(telemetry.get(trial.trial), series.get(trial.trial))) is not None
    ]
    if not counts:
        return None
    wal_mib = [
        of.values["wal.bytes"] for trial, _ in counts if "wal.bytes" in (of := telemetry[trial.trial]).values
    ]
    return Cycles(
        trials=len(counts),
        checkpoints=sum(n for _, n in counts) / len(counts),
        windows_without=sum(n == 0 for _, n in counts),
        complete_cycles=min(_whole(trial, n) for trial, n in counts),
        cycles_requested=CYCLES_REQUESTED if plan.checkpoints is None else plan.checkpoints,
        has_wal=not wal_mib or max(wal_mib) >= WAL_MIN_MIB,
    )


def cycle_caveats(plan: Study, name: str, found: Cycles) -> list[Caveat]:
    """Return caveats of the arm with that name."""
    if not found.has_wal:
        return []
    if 2 * found.windows_without > found.trials:
        return [Caveat(Code.WINDOW_WITHOUT_CHECKPOINT, {"arm": name})]
    if found.complete_cycles >= found.cycles_requested or plan.schedule is Schedule.SLICES:
        return []  # for slices, CHECKPOINT_IN_SLICES reports it for each block
    names: dict[str, Parameter] = {
        "arm": name,
        "cycles": found.complete_cycles,
        "wanted": found.cycles_requested,
        "checkpoints": significant(found.checkpoints, 3),
    }
    return [Caveat(Code.FEW_CHECKPOINT_CYCLES, names)]


def _whole(trial: Trial, checkpoints: int) -> int:
    """Return the complete cycles: a window that begins with a checkpoint begins with a cycle."""
    begins_with_one = trial.driver.ordered_checkpoint_s is not None
    return checkpoints if begins_with_one else max(0, checkpoints - 1)


def _checkpoints(telemetry: TrialTelemetry | None, series: SampleSeries | None) -> int | None:
    """Return the number of checkpoints, by the counters at both ends of the window, else by its samples."""
    counters = (
        []
        if telemetry is None
        else [telemetry.values.get(f"checkpoints.{how}") for how in ("timed", "requested")]
    )
    known = [n for n in counters if n is not None]
    if known:
        return round(sum(known))
    if series is None or not any(name in series.columns for name in START_COUNTERS):
        return None
    return len(checkpoint_starts(series))
