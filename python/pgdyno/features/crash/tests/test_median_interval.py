"""The interval of a median covers as often as its definition says."""

from __future__ import annotations

import itertools

import pytest

from pgdyno.features.crash.findings import median_interval


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
