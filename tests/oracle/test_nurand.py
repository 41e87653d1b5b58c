"""Exact distribution of NURand compared with every pair of its two uniform integers."""

from __future__ import annotations

import numpy as np
import pytest

from pgdyno.workloads.tpcc.checks import C_ID, C_LAST, ITEM, NURand


def every_pair(a: int, low: int, high: int, c: int) -> list[float]:
    values = high - low + 1
    found = [0] * values
    for first in range(a + 1):
        for second in range(low, high + 1):
            found[((first | second) + c) % values] += 1
    return [count / ((a + 1) * values) for count in found]


@pytest.mark.parametrize(
    ("a", "low", "high", "c"),
    [(0, 0, 0, 0), (7, 1, 20, 0), (7, 1, 20, 5), (15, 0, 9, 15), (31, 3, 40, 17), (63, 0, 99, 40)],
)
def test_small_parameters_agree_with_counting_every_pair(a: int, low: int, high: int, c: int) -> None:
    np.testing.assert_allclose(NURand(a, low, high).probability(c), every_pair(a, low, high, c), rtol=1e-14)


def test_last_names_agree_with_counting_every_pair() -> None:
    np.testing.assert_allclose(C_LAST.probability(123), every_pair(255, 0, 999, 123), rtol=1e-14)


@pytest.mark.parametrize(("field", "values"), [(C_LAST, 1000), (C_ID, 3000), (ITEM, 100_000)])
def test_probabilities_cover_the_range_and_add_up_to_one(field: NURand, values: int) -> None:
    probability = field.probability(77)
    assert probability.shape == (values,)
    assert probability.min() > 0
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)


def test_the_constant_rotates_the_distribution() -> None:
    np.testing.assert_array_equal(C_ID.probability(1000), np.roll(C_ID.probability(0), 1000))
