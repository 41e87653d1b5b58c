"""Exact intervals against scipy, and against their definition."""

from __future__ import annotations

import itertools

import pytest
from scipy import stats

from pgdyno.analysis.statistics.intervals import median_interval, proportion


@pytest.mark.parametrize(("count", "n"), [(0, 11), (11, 11), (1, 30), (7, 30), (15, 30), (29, 30), (3, 200)])
def test_the_interval_of_a_proportion_is_scipys(count: int, n: int) -> None:
    found = proportion(count, n)
    oracle = stats.binomtest(count, n).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-12)


@pytest.mark.parametrize("n", [1, 10, 30, 200])
def test_none_in_n_is_below_three_in_n(n: int) -> None:
    found = proportion(0, n)
    assert found.low == 0
    assert found.limit < 3 / n
    assert found.limit == pytest.approx(1 - 0.05 ** (1 / n))
    assert found.high > found.limit


@pytest.mark.parametrize(("count", "n"), [(-1, 3), (4, 3), (0, 0)])
def test_what_is_no_proportion_is_refused(count: int, n: int) -> None:
    with pytest.raises(ValueError, match="not a proportion"):
        proportion(count, n)


def coverage(n: int, rank: int) -> float:
    """Probability that the median lies between the order statistics, by enumeration of signs."""
    signs = itertools.product((0, 1), repeat=n)
    return sum(rank < sum(below) < n - rank for below in signs) / 2**n


@pytest.mark.parametrize("n", [6, 9, 12])
def test_the_interval_of_the_median_covers_and_the_next_narrower_one_does_not(n: int) -> None:
    found = median_interval([float(value) for value in range(n, 0, -1)])
    assert found is not None
    assert found.low is not None
    rank = int(found.low) - 1
    assert found.high == n - rank
    assert coverage(n, rank) >= 0.95
    assert coverage(n, rank + 1) < 0.95


def test_few_values_have_no_interval_and_none_no_median() -> None:
    assert median_interval([]) is None
    found = median_interval([3.0, 1.0])
    assert found is not None
    assert (found.value, found.n, found.low, found.high) == (2.0, 2, None, None)
