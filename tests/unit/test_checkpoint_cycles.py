"""Number of checkpoint cycles in a window, and caveats if there are none or too few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from synthetic_telemetry import trial

from example_studies import make_study
from pgdyno.analysis.steady_state import (
    Cycles,
    checkpoint_starts,
    cycle_caveats,
    cycles_of_arm,
)
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.caveats import Code
from pgdyno.results.records import DriverFacts, SampleSeries, Trial
from pgdyno.study.plan import Study
from pgdyno.study.sizing import Schedule

ORDERED = DriverFacts(ordered_checkpoint_s=0.4)


def plan(schedule: Schedule = Schedule.BLOCKS, checkpoints: int | None = None) -> Study:
    return make_study(schedule=schedule, checkpoints=checkpoints)


def told(timed: float, requested: float = 0.0, wal_mib: float = 500.0) -> TrialTelemetry:
    values = {"checkpoints.timed": timed, "checkpoints.requested": requested, "wal.bytes": wal_mib}
    return TrialTelemetry(values, [], [], {})


def found(
    telemetry: Mapping[int, TrialTelemetry], driver: DriverFacts | None = None, of: Study | None = None
) -> Cycles | None:
    trials: list[Trial] = [replace(trial(number), driver=driver or DriverFacts()) for number in telemetry]
    return cycles_of_arm(of or plan(), trials, {}, telemetry)


def code(of: Study, cycles: Cycles | None) -> Code | None:
    assert cycles is not None
    caveats = cycle_caveats(of, "18", cycles)
    assert all(caveat.text for caveat in caveats)
    return caveats[0].code if caveats else None


def test_a_cycle_goes_from_one_checkpoint_to_the_next() -> None:
    cycles = found({1: told(2, 1), 2: told(3, 1)})
    assert cycles == Cycles(
        trials=2, checkpoints=3.5, windows_without=0, complete_cycles=2, cycles_requested=1, has_wal=True
    )
    assert code(plan(), cycles) is None


def test_a_window_that_begins_with_a_checkpoint_begins_with_a_cycle() -> None:
    cycles = found({1: told(2), 2: told(2)}, ORDERED, plan(checkpoints=2))
    assert cycles is not None and (cycles.complete_cycles, cycles.cycles_requested) == (2, 2)
    assert code(plan(checkpoints=2), cycles) is None


@pytest.mark.parametrize(
    ("telemetry", "checkpoints", "expected"),
    [
        ({1: told(0), 2: told(0)}, None, Code.WINDOW_WITHOUT_CHECKPOINT),
        ({1: told(1), 2: told(1)}, None, Code.FEW_CHECKPOINT_CYCLES),
        ({1: told(2), 2: told(2)}, 2, Code.FEW_CHECKPOINT_CYCLES),
        ({1: told(0, wal_mib=0.1)}, None, None),  # nothing was written
    ],
)
def test_too_few_are_a_caveat(
    telemetry: Mapping[int, TrialTelemetry], checkpoints: int | None, expected: Code | None
) -> None:
    of = plan(checkpoints=checkpoints)
    assert code(of, found(telemetry, of=of)) is expected


def test_checkpoints_in_slices_are_reported_by_block() -> None:
    assert code(plan(Schedule.SLICES), found({1: told(1)})) is None
    assert code(plan(Schedule.SLICES), found({1: told(0)})) is Code.WINDOW_WITHOUT_CHECKPOINT


def test_samples_replace_missing_counters_and_without_both_there_is_no_value() -> None:
    columns = ("at_s", "late_s", "num_timed", "num_requested")
    series = SampleSeries(
        "server", columns, np.array([[0, 0, 5, 1], [1, 0, 6, 1], [2, 0, 6, 2], [3, 0, 6, 2.0]])
    )
    assert checkpoint_starts(series) == [1.0, 2.0]
    bare = TrialTelemetry({}, [], [], {})
    cycles = cycles_of_arm(plan(), [trial(1)], {1: series}, {1: bare})
    assert cycles is not None and (cycles.checkpoints, cycles.complete_cycles, cycles.has_wal) == (2, 1, True)
    assert cycles_of_arm(plan(), [trial(1)], {}, {1: bare}) is None
