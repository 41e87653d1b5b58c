"""Changes tested after each night, compared with the densities that define them, and over many nights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from bench.history import FIRST, INDEPENDENT, MACHINES, alarms, both_arms, nights_to_confirm, p_values
from scipy import integrate, stats

from pgdyno.features.history.changes import (
    BEFORE_MIN,
    PRIOR,
    detect_changes,
    log_bayes_factors,
    newest_changes,
    values_min,
)

PATHS = 300
NIGHTS = 120


def values_of(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(3, 0.5, n)


@pytest.mark.parametrize("after", [1, 2, 7])
def test_the_bayes_factor_is_the_ratio_of_the_densities_of_the_t_statistic(after: int) -> None:
    values = values_of(BEFORE_MIN + 3 + after)
    before, n = BEFORE_MIN + 3, len(values)
    x, y = values[:before], values[before:]
    squares = ((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()
    size = before * after / n
    t = (y.mean() - x.mean()) / np.sqrt(squares / (n - 2) / size)
    wide = np.sqrt(1 + PRIOR * size)
    expected = stats.t.logpdf(t, n - 2, scale=wide) - stats.t.logpdf(t, n - 2)
    assert log_bayes_factors(values)[0][3] == pytest.approx(expected, rel=1e-9)


def test_the_bayes_factors_are_martingales() -> None:
    # Without a change the next value, given the previous ones, has Student's distribution: mean and SD are
    # integrated out.
    values = values_of(9)
    n, scale = len(values), values.std(ddof=1) * np.sqrt(1 + 1 / len(values))

    def after(z: float, place: int) -> float:
        found = log_bayes_factors(np.append(values, values.mean() + z * scale))[0][place]
        return float(np.exp(found) * stats.t.pdf(z, n - 1))

    for place, now in enumerate(log_bayes_factors(values)[0]):
        ends = ((-np.inf, 0), (0, np.inf))
        expected = sum(integrate.quad(after, *end, args=(place,), limit=200)[0] for end in ends)
        assert expected == pytest.approx(np.exp(now), rel=1e-6)


@pytest.mark.parametrize("outlier", [3.0, 30.0, 3e6])
def test_one_outlier_is_never_confirmed(outlier: float) -> None:
    values = np.random.default_rng(2).normal(size=60)
    values[40] += outlier
    (found,) = detect_changes(values[np.newaxis], 0.95)
    assert found.confirmed == []
    (then,) = detect_changes(values[np.newaxis, :41], 0.95)
    assert (then.awaiting is not None) == (outlier > 3)


def test_a_scaled_shifted_or_mirrored_series_has_the_same_changes() -> None:
    values = np.random.default_rng(3).normal(size=50)
    values[30:] += 4
    (found,) = detect_changes(values[np.newaxis], 0.95)
    assert [cut.at for cut in found.confirmed] == [30]
    (other,) = detect_changes(5 - 1e3 * values[np.newaxis], 0.95)
    assert [(cut.at, cut.confirmed_at) for cut in other.confirmed] == [(30, found.confirmed[0].confirmed_at)]
    assert other.confirmed[0].p_value == pytest.approx(found.confirmed[0].p_value, rel=1e-6)


def test_a_further_file_changes_nothing_that_was_confirmed() -> None:
    values = np.random.default_rng(4).normal(size=80)
    values[25:60] += 5
    found = [detect_changes(values[np.newaxis, :n], 0.95)[0].confirmed for n in range(25, 81)]
    assert all(list(later[: len(now)]) == list(now) for now, later in pairwise(found))
    assert [cut.at for cut in found[-1]] == [25, 60]


@pytest.mark.parametrize("value", [0.0, 3.3, -1e9])
def test_a_constant_series_has_no_change(value: float) -> None:
    (found,) = detect_changes(np.full((1, 40), value), 0.95)
    assert found.confirmed == [] and found.awaiting is None


def test_missing_nights_are_omitted() -> None:
    values = np.random.default_rng(5).normal(size=(1, 40))
    values[0, 20:] += 5
    gaps = np.insert(values, [3, 22, 30, 40], np.nan, axis=1)
    assert detect_changes(gaps, 0.95) == detect_changes(values, 0.95)


def test_a_large_change_is_confirmed_from_the_first_file_on_that_is_documented() -> None:
    for level in (0.05, 0.05 / 6):
        n = values_min(level)
        steps = [np.arange(n) >= at for at in range(BEFORE_MIN, n - 1)]
        found = [newest_changes(step[:size].astype(float)) for step in steps for size in (n - 1, n)]
        p_values = [both[1].p_value for both in found if both]
        assert min(p_values[1::2]) <= level < min(p_values[0::2])


EFFECTS = INDEPENDENT | {
    name: (lambda rng, shape, machine=machine: both_arms(machine)(rng, shape)[0])
    for name, machine in MACHINES.items()
}


@pytest.mark.parametrize("name", EFFECTS)
def test_without_a_change_false_alarms_are_rare(name: str) -> None:
    """In at most 5% of the series within a third of a year; the bound is exceeded in 1 of 1000 such tests."""
    found = p_values(EFFECTS[name](np.random.default_rng(6), (PATHS, NIGHTS)))
    assert alarms(found, 1, NIGHTS) * PATHS <= stats.binom.ppf(0.999, PATHS, 0.05 * NIGHTS / 365)
    assert alarms(found, 6, NIGHTS) * (PATHS // 6) <= stats.binom.ppf(0.999, PATHS // 6, 0.05)


def test_levels_would_have_false_alarms() -> None:
    _, levels = both_arms(MACHINES["drift of the machine: random walk"])(
        np.random.default_rng(7), (PATHS, NIGHTS)
    )
    assert alarms(p_values(levels), 1, NIGHTS) > 0.5


def test_the_simulation_confirms_as_the_product_does() -> None:
    values = np.random.default_rng(8).normal(size=(20, 60))
    values[:, 30:] += 3
    for series, p_value in zip(values, p_values(values), strict=True):
        confirmed = detect_changes(series[np.newaxis], 0.95)[0].confirmed
        first = int(np.argmax(p_value <= 0.05)) + FIRST - 1
        assert confirmed[0].confirmed_at == first


def test_large_changes_are_confirmed_within_days() -> None:
    median, most, _, _ = (int(of) for of in nights_to_confirm(30, 5, 200))
    assert 2 <= median <= 4 and most <= 5
