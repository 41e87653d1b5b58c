"""Trends and steps in the measured part: not found in stationary data, and found if present."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from synthetic_telemetry import arm, autoregressive, trial

from example_studies import make_study
from pgdyno.analysis.statistics.intervals import student
from pgdyno.analysis.steady_state import (
    ALARM_OF_EFFECTS,
    CRITICAL,
    PARTS,
    Observed,
    change,
    effect_trend,
    find_steady_state,
    self_normalised,
    stationarity_p_value,
    steady_state_caveats,
    step,
    surely,
    trend_of_trials,
)
from pgdyno.analysis.telemetry.samples import ThroughputPoint
from pgdyno.results.records import Counts, Slice, Trial
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.study.schedule import Role

Floats = npt.NDArray[np.float64]
Shape = Callable[[Floats], Floats]
"""Factor of the rate by time since the start of the window, as a share of the window."""

STUDIES = 100
FALSE_ALARMS_MAX = int(scipy.stats.binom.ppf(0.999, STUDIES, 0.05))
"""Maximum number of false alarms in stationary studies: with an alarm rate of 5% it is exceeded once in
1000.
"""

LESS_NOISE = [pytest.param(*of, marks=pytest.mark.long) for of in ((0.1, 0.0), (0.2, 0.5))]

ARMS = [arm(0, "15"), arm(1, "18")]


def flat(share: Floats) -> Floats:
    return np.ones_like(share)


def plan(schedule: Schedule) -> Study:
    return make_study(schedule=schedule)


def in_slices(
    rng: np.random.Generator, blocks: int, n: int, noise: float, memory: float, shapes: Sequence[Shape]
) -> list[Trial]:
    """Trials of arms that alternate every second; effects of the machine are common to adjacent slices."""
    found = []
    for block in range(blocks):
        level = 1000 * np.exp(rng.normal(0, 0.1))
        machine = autoregressive(rng, n, noise, memory)
        for number, shape in enumerate(shapes):
            turn = np.where(np.arange(n) % 2, len(shapes) - 1 - number, number)  # ABBA
            at = np.arange(n) * float(len(shapes)) + turn
            rates = (
                level * shape((at + 0.5) / (n * len(shapes))) * np.exp(machine + rng.normal(0, noise / 3, n))
            )
            pieces = [
                Slice(i, Role.MEASURE, s, s, s + 1, s + 1, 0, 0, {"x": Counts(ok=int(rate))})
                for i, (s, rate) in enumerate(zip(at.tolist(), rates.tolist(), strict=True))
            ]
            of = trial(1 + len(found), arm=number)
            found.append(replace(of, block=block, slices=pieces))
    return found


def whole(
    rng: np.random.Generator, blocks: int, n: int, noise: float, memory: float, shapes: Sequence[Shape]
) -> tuple[list[Trial], dict[int, list[ThroughputPoint]]]:
    """Trials of single arms, one point per second."""
    found, points = [], {}
    for block in range(blocks):
        for number, shape in enumerate(shapes):
            at = np.arange(n) + 0.5
            rates = 1000 * shape(at / n) * np.exp(autoregressive(rng, n, noise, memory))
            piece = Slice(0, Role.MEASURE, 0, 0, n, n, 0, 0, {"x": Counts(ok=1)})
            of = replace(trial(1 + len(found), arm=number), block=block, slices=[piece])
            found.append(of)
            points[of.trial] = [
                ThroughputPoint(s, r, Role.MEASURE) for s, r in zip(at.tolist(), rates.tolist(), strict=True)
            ]
    return found, points


def codes(
    schedule: Schedule, trials: Sequence[Trial], points: dict[int, list[ThroughputPoint]], cases: int = 1
) -> set[str]:
    found = find_steady_state(plan(schedule), ARMS, trials, points, {}, {}, cases)
    return {caveat.kind for caveat in steady_state_caveats(plan(schedule), found, cases)}


@pytest.mark.parametrize("studies", [20, pytest.param(100, marks=pytest.mark.long)])
def test_the_alarm_is_that_of_a_study_of_many_cases(studies: int) -> None:
    rng, cases = np.random.default_rng(11), 10
    alarms = sum(
        any(
            codes(Schedule.SLICES, in_slices(rng, 6, 12, 0.1, 0.0, (flat, flat)), {}, cases)
            for _ in range(cases)
        )
        for _ in range(studies)
    )
    assert alarms <= scipy.stats.binom.ppf(0.999, studies, 0.05)


@pytest.mark.parametrize(("noise", "memory"), [*LESS_NOISE, (0.3, 0.8)])
def test_steady_slices_raise_a_caveat_in_at_most_5_percent_of_studies(noise: float, memory: float) -> None:
    rng = np.random.default_rng(1)
    alarms = sum(
        bool(codes(Schedule.SLICES, in_slices(rng, 6, 12, noise, memory, (flat, flat)), {}))
        for _ in range(STUDIES)
    )
    assert alarms <= FALSE_ALARMS_MAX


@pytest.mark.parametrize(("noise", "memory"), [*LESS_NOISE, (0.2, 0.7)])
def test_steady_windows_raise_a_caveat_in_at_most_5_percent_of_studies(noise: float, memory: float) -> None:
    rng = np.random.default_rng(2)
    alarms = sum(
        bool(codes(Schedule.BLOCKS, *whole(rng, 5, 120, noise, memory, (flat, flat)))) for _ in range(STUDIES)
    )
    assert alarms <= FALSE_ALARMS_MAX


def test_a_rise_over_the_window_is_found_with_the_part_to_discard() -> None:
    def rising(share: Floats) -> Floats:
        return 1 - 0.5 * np.exp(-share * 5)

    rng = np.random.default_rng(3)
    trials = in_slices(rng, 8, 20, 0.1, 0.3, (rising, rising))
    found = find_steady_state(plan(Schedule.SLICES), ARMS, trials, {}, {}, {})
    told = steady_state_caveats(plan(Schedule.SLICES), found)
    assert {caveat.kind for caveat in told} == {"rate-trend"}
    assert {caveat.parameters["arm"] for caveat in told} == {"15", "18"}
    assert all("belong to the warm-up" in caveat.text for caveat in told)
    first = found[0].rate_trend
    assert first is not None and first.truncation_s is not None and 2 <= first.truncation_s <= 20


def test_an_effect_that_grows_is_found_where_the_machine_hides_each_rate() -> None:
    rng = np.random.default_rng(4)
    trials = in_slices(rng, 8, 20, 0.3, 0.8, (flat, lambda share: 1 + 0.5 * share))
    assert "effect-trend" in codes(Schedule.SLICES, trials, {})


def test_a_step_in_one_trial_is_found_with_its_time_and_size() -> None:
    rng = np.random.default_rng(5)
    trials, points = whole(rng, 5, 300, 0.1, 0.3, (flat, flat))
    hit = trials[6]
    points[hit.trial] = [replace(p, per_s=p.per_s * (0.7 if p.at_s > 120 else 1)) for p in points[hit.trial]]
    found = find_steady_state(plan(Schedule.BLOCKS), ARMS, trials, points, {}, {})
    (caveat,) = steady_state_caveats(plan(Schedule.BLOCKS), found)
    assert caveat.kind == "rate-step" and caveat.parameters["block"] == hit.block + 1
    (only,) = [one for of in found for one in of.steps]
    assert only.trial == hit.trial
    assert only.at_s == pytest.approx(120, abs=20) and only.percent == pytest.approx(-36, abs=8)


def test_an_effect_below_the_margin_is_ignored() -> None:
    rng = np.random.default_rng(6)
    trials = in_slices(rng, 8, 20, 0.001, 0.0, (lambda share: 1 + 0.01 * share, flat))
    assert codes(Schedule.SLICES, trials, {}) == set()


def test_the_change_is_that_of_the_line_and_the_same_on_a_faster_machine() -> None:
    at = np.arange(10.0)
    values = 100 + 2 * at
    assert change(at, values, 10.0) == pytest.approx(20 / 109)
    assert change(at, 7 * values, 10.0) == pytest.approx(20 / 109)
    slope = scipy.stats.linregress(at, values).slope
    assert change(at, values, 10.0) == pytest.approx(slope * 10 / values.mean())


def test_a_trend_is_students_over_the_trials() -> None:
    rng = np.random.default_rng(7)
    trials = [Observed(np.arange(8.0), 100 + rng.normal(0, 5, 8)) for _ in range(6)]
    found = trend_of_trials(trials, 0.95)
    changes = [change(one.at_s, one.per_s, one.span_s) for one in trials]
    expected = scipy.stats.ttest_1samp(changes, 0.0)
    assert found is not None and found.p_value == pytest.approx(expected.pvalue)
    assert found.percent.low == pytest.approx(100 * expected.confidence_interval(0.95).low)
    assert trend_of_trials([], 0.95) is None


def test_swapping_the_arms_mirrors_the_change_of_the_effect() -> None:
    rng = np.random.default_rng(8)
    one, other = ([Observed(np.arange(8.0), 100 + rng.normal(0, 5, 8)) for _ in range(4)] for _ in range(2))
    there, back = effect_trend(one, other, 0.95), effect_trend(other, one, 0.95)
    assert (1 + there.percent.value / 100) * (1 + back.percent.value / 100) == pytest.approx(1)
    assert there.p_value == pytest.approx(back.p_value)


def by_definition(values: Floats) -> tuple[float, int]:
    """Shao and Zhang's statistic by its definition."""
    n, found = len(values), []
    for k in range(2, n - 1):
        t = (values[:k].sum() - k / n * values.sum()) ** 2 / n
        before = [values[:i].sum() - i / k * values[:k].sum() for i in range(1, k + 1)]
        after = [
            values[i - 1 :].sum() - (n - i + 1) / (n - k) * values[k:].sum() for i in range(k + 1, n + 1)
        ]
        found.append((t / ((np.square(before).sum() + np.square(after).sum()) / n**2), k))
    return max(found)


def test_the_statistic_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        values = rng.normal(100, 10, PARTS)
        statistic, at = self_normalised(values)
        assert (statistic, at) == (pytest.approx(by_definition(values)[0]), by_definition(values)[1])
        assert self_normalised(1000 + 3 * values)[0] == pytest.approx(statistic)
    assert self_normalised(np.ones(PARTS))[0] == 0


def test_the_critical_values_are_exceeded_at_their_nominal_rate() -> None:
    rng = np.random.default_rng(10)
    runs = 2000
    statistics = np.array([self_normalised(rng.normal(size=PARTS))[0] for _ in range(runs)])
    for p, limit in CRITICAL[:5]:
        low, high = scipy.stats.binom.ppf([0.0005, 0.9995], runs, p)
        assert low <= np.sum(statistics > limit) <= high
    assert stationarity_p_value(CRITICAL[2][1]) == pytest.approx(CRITICAL[2][0])
    assert stationarity_p_value(1.0) == 1 and stationarity_p_value(1e9) == pytest.approx(CRITICAL[-1][0])


def test_a_short_window_has_no_steps() -> None:
    rng = np.random.default_rng(11)
    short = Observed(np.arange(60.0), np.where(np.arange(60) < 30, 100.0, 10.0) + rng.normal(0, 1, 60))
    assert step(trial(1), short) is None


def test_holm_tests_the_smallest_p_value_first() -> None:
    assert surely([0.02, None, 0.001, 0.03], 0.05) == [True, False, True, True]
    assert surely([0.02, 0.03, 0.04], 0.05) == [False, False, False]
    assert surely([], 0.05) == []


def test_the_verdict_of_equal_arms_is_rarely_withheld_in_ten_blocks() -> None:
    """In at most 5% of studies; exceeded in 1 of 10,000 such tests."""
    studies, rng = 2000, np.random.default_rng(17)
    held_back = 0
    for changes in rng.normal(0, 1, (studies, 10)):
        p_values = [student(list(changes[:n]), 0.95).p_value for n in range(VERDICT_BLOCKS_MIN, 11)]
        held_back += any(p is not None and p <= ALARM_OF_EFFECTS for p in p_values)
    assert 0 < held_back <= scipy.stats.binom.ppf(1 - 1e-4, studies, 0.05)
