"""Slopes of long runs compared with known lines, and by simulation with autocorrelated noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal, stats

from pgdyno.analysis.statistics.series import PARTS, SAMPLES_MIN, SPAN_S_MIN, growth, mean_slope, trend
from pgdyno.units import Better

HOUR = np.arange(3600.0)


def autocorrelated(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    """AR(1) noise with SD 1, of which ``share`` remains after one second."""
    noise = signal.lfilter([1], [1, -share], rng.normal(size=n + 500))[500:]
    return np.asarray(noise * np.sqrt(1 - share**2))


@pytest.mark.parametrize("of", [trend, growth])
def test_a_straight_line_has_its_slope_and_no_caveat(of) -> None:
    found = of(HOUR, 500 + 0.25 * HOUR, 0.95)
    assert found.per_hour == pytest.approx(900)
    assert (found.low, found.high) == pytest.approx((900, 900))
    percent = found.percent(Better.MORE)
    assert percent is not None and percent.value == pytest.approx(900 / (500 + 0.25 * 1799.5) * 100)


def test_the_line_through_the_parts_is_that_of_scipy() -> None:
    values = 1000 + 30 * np.random.default_rng(2).normal(size=3600)
    means = values.reshape(PARTS, -1).mean(axis=1)
    known = stats.linregress(HOUR.reshape(PARTS, -1).mean(axis=1), means)
    found = trend(HOUR, values, 0.9)
    reach = stats.t.ppf(0.95, PARTS - 2) * known.stderr
    assert found.per_hour == pytest.approx(3600 * known.slope)
    assert (found.low, found.high) == pytest.approx(
        (3600 * (known.slope - reach), 3600 * (known.slope + reach))
    )


def test_growth_is_from_the_first_to_the_last_whatever_is_between() -> None:
    at = np.arange(0, 7201.0)
    values = np.cumsum(np.random.default_rng(3).exponential(1e6, 7201))
    found = growth(at, values, 0.95)
    assert found.per_hour == pytest.approx((values[-1] - values[0]) / 2)


def test_a_gap_in_the_samples_does_not_bend_growth() -> None:
    at = np.concatenate([HOUR[:700], HOUR[1900:]])
    found = growth(at, 3.0 * at, 0.95)
    assert (found.low, found.high) == pytest.approx((10800, 10800))


def test_missing_parts_are_omitted() -> None:
    values = 500 + 0.25 * HOUR
    values[100:200] = np.nan
    found = trend(HOUR, values, 0.95)
    assert found.per_hour == pytest.approx(900)
    values[:] = np.nan
    assert trend(HOUR, values, 0.95) is None and growth(HOUR, values, 0.95) is None


def test_a_level_with_a_part_of_the_window_missing_has_no_trend() -> None:
    values = 500 + 0.25 * HOUR
    values[700:1900] = np.nan
    assert trend(HOUR, values, 0.95) is None


@pytest.mark.parametrize("of", [trend, growth])
def test_a_series_too_short_has_no_slope(of) -> None:
    short = np.arange(SPAN_S_MIN - 1)
    assert of(short, short, 0.95) is None
    few = np.linspace(0, 3600, SAMPLES_MIN - 1)
    assert of(few, few, 0.95) is None
    assert of([], [], 0.95) is None
    enough = np.linspace(0, SPAN_S_MIN, SAMPLES_MIN)
    assert of(enough, enough, 0.95) is not None


@pytest.mark.parametrize("share", [0.0, 0.9, 0.97])
def test_the_trend_of_autocorrelated_noise_has_its_nominal_coverage(share: float) -> None:
    rng, runs, truth = np.random.default_rng(6), 500, -40.0
    covered = 0
    for _ in range(runs):
        found = trend(HOUR, 900 + truth * HOUR / 3600 + 100 * autocorrelated(rng, 3600, share), 0.95)
        covered += found.low <= truth <= found.high
    # A correlation time of half a minute (0.97) leaves the six-minute parts slightly dependent: two points.
    assert covered >= stats.binom.ppf(1e-4, runs, 0.95 if share <= 0.9 else 0.93)


def test_the_growth_of_an_accumulating_value_has_coverage_that_a_line_has_not() -> None:
    rng, runs, truth_per_s = np.random.default_rng(7), 500, 5.0
    covered = of_line = 0
    for _ in range(runs):
        values = np.cumsum(truth_per_s + 10 * autocorrelated(rng, 3600, 0.8))
        found, line = growth(HOUR, values, 0.95), trend(HOUR, values, 0.95)
        covered += found.low <= 3600 * truth_per_s <= found.high
        of_line += line.low <= 3600 * truth_per_s <= line.high
    assert covered >= stats.binom.ppf(1e-4, runs, 0.95)
    assert of_line < 0.8 * runs


def test_trials_together_are_students_sample() -> None:
    runs = [trend(HOUR, 500 + per_s * HOUR, 0.95) for per_s in (0.1, 0.2, 0.4)]
    found = mean_slope([run for run in runs if run], 0.95)
    known = stats.ttest_1samp([360, 720, 1440], 0).confidence_interval(0.95)
    assert (found.low, found.high, found.n) == pytest.approx((known.low, known.high, 3))
    assert runs[0] is not None and mean_slope([runs[0]], 0.95) is runs[0]
    assert mean_slope([], 0.95) is None


def test_a_slope_is_shown_with_its_unit_and_interval() -> None:
    found = growth(HOUR, 2.0 * HOUR + np.sin(HOUR / 50), 0.95)
    shown = found.estimate("MB", Better.LESS)
    assert shown.unit == "MB per hour" and shown.n == PARTS
    assert shown.low is not None and shown.low <= shown.value <= (shown.high or 0)
