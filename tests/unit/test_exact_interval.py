"""Exact interval of a proportion, against scipy and against its definition."""

from __future__ import annotations

import pytest
from scipy import stats

from pgdyno.analysis.statistics.intervals import proportion


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
