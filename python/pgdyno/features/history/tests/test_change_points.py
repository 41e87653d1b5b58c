"""Change points: found if present, and rarely found in unchanged series."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.features.history.changes import SEGMENT_MIN, cuts, first_cut

SHUFFLES = 299


def energy(x: np.ndarray, y: np.ndarray) -> float:
    """The statistic as defined by its authors."""
    m, n = len(x), len(y)
    between = np.abs(np.subtract.outer(x, y)).mean()
    within = [np.abs(np.subtract.outer(of, of)).sum() / (len(of) * (len(of) - 1)) for of in (x, y)]
    return float(m * n / (m + n) * (2 * between - sum(within)))


@given(st.lists(st.floats(-100, 100), min_size=2 * SEGMENT_MIN, max_size=20))
@settings(max_examples=50, deadline=None)
def test_the_first_cut_is_where_the_energy_is_largest(values: list[float]) -> None:
    whole, n = np.array(values), len(values)
    energies = {
        at: max(energy(whole[:at], whole[at:end]) for end in range(at + SEGMENT_MIN, n + 1))
        for at in range(SEGMENT_MIN, n - SEGMENT_MIN + 1)
    }
    found = first_cut(values, 1)
    assert energies[found.at] == pytest.approx(max(energies.values()), abs=1e-9)


@pytest.mark.parametrize(
    ("levels", "lengths"), [((0, 4), (20, 20)), ((0, -4, 0), (15, 12, 15)), ((0, 4, 9), (10, 10, 10))]
)
def test_steps_are_found_where_they_are(levels: tuple[float, ...], lengths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.normal(of, 1, n) for of, n in zip(levels, lengths, strict=True)])
    found = cuts(list(values), 0.05, SHUFFLES)
    assert [cut.at for cut in found] == pytest.approx(list(np.cumsum(lengths)[:-1]), abs=1)


@pytest.mark.parametrize("values", [[], [1.0] * 5, [3.0] * 40])
def test_a_short_or_constant_series_has_none(values: list[float]) -> None:
    assert cuts(values, 0.05, SHUFFLES) == []


@pytest.mark.parametrize("tails", ["cauchy", "skewed"])
def test_an_unchanged_series_rarely_has_a_change(tails: str) -> None:
    """In at most 5% of the series, with any distribution. With 120 series the bound is exceeded in 1 of 1000
    such tests.
    """
    rng, n = np.random.default_rng(7), 120
    draw = {"cauchy": rng.standard_cauchy, "skewed": rng.standard_exponential}
    alarms = sum(bool(cuts(list(draw[tails](20)), 0.05, SHUFFLES)) for _ in range(n))
    assert alarms <= scipy.stats.binom.ppf(0.999, n, 0.05)


def test_p_values_are_uniform_where_nothing_changed() -> None:
    rng = np.random.default_rng(8)
    found = [first_cut(list(rng.normal(0, 1, 20)), SHUFFLES) for _ in range(120)]
    p_values = [cut.p_value for cut in found if cut is not None]
    assert scipy.stats.kstest(p_values, "uniform").pvalue > 0.001


def test_scaled_shifted_and_mirrored_series_are_cut_at_the_same_place() -> None:
    rng = np.random.default_rng(9)
    values = np.concatenate([rng.normal(0, 1, 15), rng.normal(3, 1, 10)])
    (found,) = cuts(list(values), 0.05, SHUFFLES)
    assert cuts(list(5 - 7 * values), 0.05, SHUFFLES)[0].at == found.at
    (backwards,) = cuts(list(values[::-1]), 0.05, SHUFFLES)
    assert backwards.at == pytest.approx(len(values) - found.at, abs=1)


def test_between_changes_there_is_rarely_one_more() -> None:
    """Of 80 series with one clear change, those with a further one: at most 5%, as without a change."""
    rng, n = np.random.default_rng(10), 80
    found = [cuts([*rng.normal(0, 1, 10), *rng.normal(20, 1, 10)], 0.05, SHUFFLES) for _ in range(n)]
    assert all(len(of) >= 1 for of in found)
    assert sum(len(of) > 1 for of in found) <= scipy.stats.binom.ppf(0.999, n, 0.05)
