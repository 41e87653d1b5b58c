"""Checkpoint cycles, slopes and warm-ups of windows, and their caveats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from synthetic_telemetry import arm, trial

from example_studies import make_study
from pgdyno.analysis.steady_state import (
    Cycles,
    Drift,
    checkpoint_starts,
    cycle_caveats,
    cycles_of_arm,
    drift_caveats,
    drifts_of_arm,
    warm_up_biases,
    warm_up_caveats,
    warm_ups,
)
from pgdyno.analysis.telemetry.samples import ThroughputPoint
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.results.records import Counts, DriverFacts, SampleSeries, Slice, Trial, TrialStatus, WarmUpEnd
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role

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


def kind(of: Study, cycles: Cycles | None) -> str | None:
    assert cycles is not None
    caveats = cycle_caveats(of, "18", cycles)
    assert all(caveat.text for caveat in caveats)
    return caveats[0].kind if caveats else None


def test_a_cycle_goes_from_one_checkpoint_to_the_next() -> None:
    cycles = found({1: told(2, 1), 2: told(3, 1)})
    assert cycles == Cycles(
        trials=2, checkpoints=3.5, windows_without=0, complete_cycles=2, cycles_requested=1, has_wal=True
    )
    assert kind(plan(), cycles) is None


def test_a_window_that_begins_with_a_checkpoint_begins_with_a_cycle() -> None:
    cycles = found({1: told(2), 2: told(2)}, ORDERED, plan(checkpoints=2))
    assert cycles is not None and (cycles.complete_cycles, cycles.cycles_requested) == (2, 2)
    assert kind(plan(checkpoints=2), cycles) is None


@pytest.mark.parametrize(
    ("telemetry", "checkpoints", "expected"),
    [
        ({1: told(0), 2: told(0)}, None, "window-without-checkpoint"),
        ({1: told(1), 2: told(1)}, None, "few-checkpoint-cycles"),
        ({1: told(2), 2: told(2)}, 2, "few-checkpoint-cycles"),
        ({1: told(0, wal_mib=0.1)}, None, None),  # nothing was written
    ],
)
def test_too_few_are_a_caveat(
    telemetry: Mapping[int, TrialTelemetry], checkpoints: int | None, expected: str | None
) -> None:
    of = plan(checkpoints=checkpoints)
    assert kind(of, found(telemetry, of=of)) == expected


def test_checkpoints_in_slices_are_reported_by_block() -> None:
    assert kind(plan(Schedule.SLICES), found({1: told(1)})) is None
    assert kind(plan(Schedule.SLICES), found({1: told(0)})) == "window-without-checkpoint"


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


HOUR_S = 3600


def points(start_per_s: float, per_hour: float, seconds: int = HOUR_S) -> list[ThroughputPoint]:
    """One minute of slow warm-up, then a line."""
    warm = [ThroughputPoint(float(s), 1.0, Role.WARM_UP) for s in range(60)]
    return warm + [
        ThroughputPoint(60.0 + s, start_per_s + per_hour * s / HOUR_S, Role.MEASURE) for s in range(seconds)
    ]


def server_series(lsn_bytes_per_s: float) -> dict[str, SampleSeries]:
    at = np.arange(float(HOUR_S))
    columns = ("at_s", "late_s", "lsn_bytes", "frozen_xid_age")
    return {
        "server": SampleSeries("server", columns, np.array([at, 0 * at, lsn_bytes_per_s * at, 100 * at]).T)
    }


def grew(mib: float, elapsed_s: float = HOUR_S) -> TrialTelemetry:
    return TrialTelemetry({"database.growth": mib}, [], [], {}, elapsed_s=elapsed_s)


def drifts(rate: list[ThroughputPoint], **others: Any) -> list[Drift]:
    """Return the slopes of one trial with this rate, ``series`` and ``telemetry``."""
    series, telemetry = ({1: others[name]} if name in others else {} for name in ("series", "telemetry"))
    return drifts_of_arm(arm(0, "15"), [trial(1)], {1: rate}, series, telemetry, 0.95)


def by_key(found: list[Drift]) -> dict[str, Drift]:
    return {drift.key: drift for drift in found}


def test_one_long_trial_has_slopes_with_intervals_of_its_own() -> None:
    of = {"series": server_series(1 << 20), "telemetry": grew(250.0, 1800)}
    found = by_key(drifts(points(1000.0, -100.0), **of))
    rate = found["tps"]
    assert rate.estimate.value == pytest.approx(-100)
    assert rate.percent is not None and rate.percent.value == pytest.approx(-100 / 950 * 100, rel=1e-3)
    assert rate.estimate.unit == "tx/s per hour"
    assert found["wal.bytes"].estimate.value == pytest.approx(3600)
    assert found["wraparound.age"].estimate.value == pytest.approx(360_000)
    size = found["database.growth"].estimate
    assert (size.value, size.low, size.n) == (500.0, None, 1)


def test_several_trials_are_a_sample_and_others_do_not_count() -> None:
    trials = [trial(1, 0), trial(2, 1), trial(3, 2, arm=1), replace(trial(4, 3), status=TrialStatus.FAILED)]
    rates = {i: points(1000.0, slope) for i, slope in ((1, -100.0), (2, -50.0), (3, 9.0), (4, 900.0))}
    telemetry = {1: grew(100.0), 2: grew(140.0), 3: grew(9.0), 4: grew(9.0)}
    found = by_key(drifts_of_arm(arm(0, "15"), trials, rates, {}, telemetry, 0.95))
    assert found["tps"].estimate.value == pytest.approx(-75) and found["tps"].estimate.n == 2
    size = found["database.growth"].estimate
    assert size.value == pytest.approx(120) and size.n == 2 and size.low is not None
    assert list(found) == ["tps", "database.growth"]


def test_short_windows_have_no_slopes() -> None:
    assert drifts(points(1000.0, -100.0, 300), telemetry=grew(1.0, 300)) == []


def test_a_rate_that_significantly_falls_by_more_than_the_margin_is_not_steady() -> None:
    falling = drifts(points(1000.0, -100.0))
    (caveat,) = drift_caveats(arm(0, "15"), falling, HOUR_S, 0.02)
    assert caveat.kind == "no-steady-state" and "−10.5" in caveat.text
    assert drift_caveats(arm(0, "15"), falling, HOUR_S, 0.2) == []
    assert drift_caveats(arm(0, "15"), drifts(points(1000.0, -1.0)), HOUR_S, 0.02) == []
    noise = 50 * np.random.default_rng(5).normal(size=HOUR_S + 60)
    level = [replace(point, per_s=1000 + dev) for point, dev in zip(points(0, 0), noise, strict=True)]
    steady = drifts(level)
    assert steady and drift_caveats(arm(0, "15"), steady, HOUR_S, 0.0001) == []


def warmed(
    number: int, driven_s: float, by: Literal["evidence", "time"], looks: int, looks_steady: int
) -> Trial:
    piece = Slice(0, Role.WARM_UP, 0.0, 0.0, driven_s, driven_s, 0, 0, {})
    end = WarmUpEnd(driven_s, by, values=looks + 4, looks=looks, looks_steady=looks_steady)
    return replace(trial(number), slices=[piece], driver=DriverFacts(warm_up=end))


def test_ends_and_tests_of_warm_ups_are_counted() -> None:
    trials = [
        warmed(1, 5.0, "evidence", 1, 1),
        warmed(2, 8.0, "time", 4, 0),
        warmed(3, 6.0, "evidence", 2, 1),
    ]
    found = warm_ups(arm(0, "15"), trials)
    assert (found.trials, found.ended_steady, found.shortest_s, found.longest_s) == (3, 2, 5.0, 8.0)
    assert (found.tested, found.unsteady) == (1, 1)
    assert warm_ups(arm(0, "15"), [trial(1)]) is None


@pytest.mark.parametrize(
    ("trials", "unsteady", "looks", "is_told"),
    [
        (1, 1, 4, False),  # one in three is plausible by chance
        (4, 4, 4, True),
        (8, 4, 4, False),
        (8, 7, 4, True),
        (1, 1, 40, True),  # so many unsteady ones are not plausible by chance
        (4, 0, 40, False),
    ],
)
def test_a_caveat_is_raised_if_chance_is_excluded(
    trials: int, unsteady: int, looks: int, is_told: bool
) -> None:
    of = [warmed(n, 8.0, "time", looks, 0 if n < unsteady else 1) for n in range(trials)]
    caveats = warm_up_caveats({"15": warm_ups(arm(0, "15"), of), "18": None})
    assert [caveat.kind for caveat in caveats] == ["warm-up-too-short"] * is_told


def test_a_caveat_needs_stronger_evidence_with_many_cases() -> None:
    found = {"15": warm_ups(arm(0, "15"), [warmed(n, 8.0, "time", 4, 0) for n in range(4)]), "18": None}
    assert warm_up_caveats(found, cases=1) and not warm_up_caveats(found, cases=10)


SLICE_S = 0.5
WARM_UP_SLICES, SLICES = 8, 20


def rising(number: int, of_arm: int, share: float, constant_s: float, noise: float = 0.0) -> Trial:
    """Return the trial of an arm whose rate is short of the final one by an exponentially decaying share."""
    rng = np.random.default_rng(2 * number + of_arm)
    pieces = []
    for position in range(WARM_UP_SLICES + SLICES):
        from_s, to_s = position * SLICE_S, (position + 1) * SLICE_S
        rate = 1e6 * (1 - share * np.exp(-(from_s + to_s) / 2 / constant_s)) * np.exp(rng.normal(0, noise))
        kinds = {"x": Counts(ok=round(rate * SLICE_S))}
        role = Role.WARM_UP if position < WARM_UP_SLICES else Role.MEASURE
        pieces.append(Slice(position, role, from_s, from_s, to_s, to_s, 0.0, 0.0, kinds))
    return replace(trial(2 * number + of_arm), block=number, arm=of_arm, slices=pieces)


def windows_of(share: float, constant_s: float) -> float:
    """Return the mean rate in the window as a share of the final one."""
    begin_s, length_s = WARM_UP_SLICES * SLICE_S, SLICES * SLICE_S
    decay = np.exp(-begin_s / constant_s) - np.exp(-(begin_s + length_s) / constant_s)
    return float(1 - share * constant_s / length_s * decay)


@pytest.mark.parametrize(("a_s", "b_s"), [(2.0, 3.0), (3.0, 6.0), (5.0, 10.0), (10.0, 20.0), (5.0, 5.0)])
def test_the_bias_of_arms_that_still_rise_is_extrapolated(a_s: float, b_s: float) -> None:
    study, arms = make_study(schedule="slices"), [arm(0, "A"), arm(1, "B")]
    trials = [rising(n, of, 0.5, constant_s) for n in range(5) for of, constant_s in enumerate((a_s, b_s))]
    first, bias = warm_up_biases(study, arms, trials)
    assert first is None and bias is not None
    expected = np.log(windows_of(0.5, b_s) / windows_of(0.5, a_s))
    assert bias.log_ratio == pytest.approx(expected, rel=0.1, abs=1e-9)
    assert bias.exceeds(0.02) == (abs(expected) > 0.01)
    assert bias.is_small_after(5 * b_s, 0.02) and bias.is_small_after(0.0, 0.02) == (a_s == b_s)


def test_steady_arms_and_a_fixed_rate_have_no_bias_by_the_warm_up() -> None:
    arms = [arm(0, "A"), arm(1, "B")]
    steady = [rising(n, of, 0.0, 1.0, noise=0.06) for n in range(10) for of in (0, 1)]
    assert warm_up_biases(make_study(schedule="slices"), arms, steady) == [None, None]
    slow = [rising(n, of, 0.5, 5.0 + 5.0 * of) for n in range(10) for of in (0, 1)]
    assert warm_up_biases(make_study(schedule="slices"), arms, slow[:4]) == [None, None], "too few blocks"
    for fields in ({"schedule": "blocks"}, {"schedule": "slices", "rate": {"per_s": 100}}):
        assert warm_up_biases(make_study(**fields), arms, slow) == [None, None]


def test_the_noise_of_a_steady_arm_adds_nothing_to_the_bias_of_one_that_rises() -> None:
    trials = [rising(n, of, 0.5 * of, 3.0, noise=0.06) for n in range(10) for of in (0, 1)]
    _, bias = warm_up_biases(make_study(schedule="slices"), [arm(0, "A"), arm(1, "B")], trials)
    assert bias is not None and bias.baseline.share == 0.0 and bias.p_value < 0.001
    assert bias.arm.share == pytest.approx(0.5, abs=0.1) and bias.is_known


def test_a_difference_needs_to_exceed_what_slow_rises_of_unknown_length_can_explain() -> None:
    slow = [rising(n, of, 0.2, 20.0 + 40.0 * of, noise=0.02) for n in range(10) for of in (0, 1)]
    _, bias = warm_up_biases(make_study(schedule="slices"), [arm(0, "A"), arm(1, "B")], slow)
    assert bias is not None and not bias.is_known
    before_s, window_s = WARM_UP_SLICES * SLICE_S, SLICES * SLICE_S
    both = sum(abs(of.log_shortfall(before_s, window_s)) for of in (bias.baseline, bias.arm))
    assert bias.limit(-1.0) == pytest.approx(2 * both + 2 * bias.error)
    assert bias.limit(-1.0) > abs(np.log(windows_of(0.2, 60.0) / windows_of(0.2, 20.0)))
