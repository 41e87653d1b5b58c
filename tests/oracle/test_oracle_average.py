"""Average over cases or statements, compared with Student's interval and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from pgdyno.analysis.statistics.averages import Combined, combine
from pgdyno.analysis.statistics.intervals import Method, student
from pgdyno.units import Better


def by_block(d: np.ndarray) -> dict[int, float]:
    """NaN: the block is missing."""
    return {block: float(value) for block, value in enumerate(d) if not math.isnan(value)}


def combined(d: np.ndarray, confidence: float = 0.95) -> Combined:
    return combine({f"case {i}": by_block(row) for i, row in enumerate(d)}, confidence, Method.STUDENT)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_without_missing_values_it_equals_student_on_block_means(confidence: float) -> None:
    d = np.random.default_rng(1).normal([[0.1], [-0.2], [0.05]], 0.03, (3, 6))
    found, known = combined(d, confidence), student(list(d.mean(axis=0)), confidence)
    assert (found.summary.mean, found.summary.sd) == pytest.approx((known.mean, known.sd))
    assert (found.summary.low, found.summary.high) == pytest.approx((known.low, known.high))
    assert found.summary.p_value == pytest.approx(known.p_value)
    assert (len(found.names), found.summary.n, found.left_out) == (3, 6, [])


def test_the_estimate_is_the_geometric_mean_of_the_ratios() -> None:
    # Twice as fast and half as fast average to no change, not to +25%.
    found = combined(np.array([[math.log(2.0)] * 3, [math.log(0.5)] * 3]))
    assert found.percent(Better.MORE).value == pytest.approx(0)
    ratios = np.array([1.1, 0.8, 1.3])
    assert combined(np.log(ratios)[:, None]).percent(Better.MORE).value == pytest.approx(
        100 * (stats.gmean(ratios) - 1)
    )


def test_a_single_case_is_its_own_average() -> None:
    d = [0.1, 0.2, 0.15, 0.3]
    known = student(d, 0.95)
    found = combined(np.array([d])).summary
    assert (found.mean, found.low, found.high) == pytest.approx((known.mean, known.low, known.high))


def test_a_pass_cut_short_does_not_count() -> None:
    # Three cases with very different effects and no noise: whatever is missing, there is no uncertainty.
    d = np.repeat([[0.5], [0.0], [-0.2]], 5, axis=1)
    d[1:, 4] = math.nan
    found = combined(d)
    assert found.summary.mean == pytest.approx(0.1)
    assert (found.summary.low, found.summary.high) == pytest.approx((0.1, 0.1))
    assert found.summary.n == 4
    halves = {"first": {0: 0.1, 1: 0.1}, "second": {2: 0.1, 3: 0.1}}
    assert combine(halves, 0.95, Method.STUDENT) is None


def test_a_case_with_one_block_is_omitted_and_named_if_others_have_more() -> None:
    d = np.array([[0.1, 0.2, 0.1], [0.3, math.nan, math.nan], [math.nan] * 3])
    found = combined(d)
    assert found.names == ["case 0"]
    assert found.left_out == ["case 1", "case 2"]


def test_with_one_block_each_there_is_an_estimate_and_no_interval() -> None:
    found = combined(np.array([[0.1], [0.3]]))
    assert found.summary.mean == pytest.approx(0.2)
    assert found.summary.low is None and found.summary.p_value is None
    assert combine({"case": {}}, 0.95, Method.STUDENT) is None and combine({}, 0.95, Method.STUDENT) is None


def cut_short(d: np.ndarray, rng: np.random.Generator) -> None:
    """Take the last block of all but some cases."""
    d[rng.permutation(len(d))[: rng.integers(1, len(d))], -1] = math.nan


def of_unequal_lengths(d: np.ndarray, rng: np.random.Generator) -> None:
    """Leave three blocks of one case, as of one that began late."""
    d[0, 3:] = math.nan


@pytest.mark.parametrize("change", [None, cut_short, of_unequal_lengths])
def test_it_has_its_nominal_coverage_with_common_drift_of_cases(
    change: Callable[[np.ndarray, np.random.Generator], None] | None,
) -> None:
    """With the blocks of all passes and their number, 94% of the third kind were covered."""
    rng, studies, truths = np.random.default_rng(4), 1000, np.array([0.3, 0.1, 0.0, -0.2])
    covered = 0
    for _ in range(studies):
        d = truths[:, None] + rng.normal(0, 0.03, 8) + rng.normal(0, 0.02, (4, 8))
        if change is not None:
            change(d, rng)
        summary = combined(d).summary
        covered += summary.low <= truths.mean() <= summary.high
    low, high = stats.binom.interval(0.9998, studies, 0.95)
    assert low <= covered <= high
