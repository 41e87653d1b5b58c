"""Verdicts of arms that warm up at different speeds, by simulation."""

import math

import numpy as np
import pytest
from bench.warm_ups import Case, simulate_study

from pgdyno.analysis.comparison import Verdict

STUDIES = 60


@pytest.mark.parametrize("slow_s", [pytest.param(5.0, marks=pytest.mark.long), 20.0])
def test_arms_that_warm_up_at_different_speeds_rarely_get_a_verdict(slow_s: float) -> None:
    """Their effect is only the warm-up. Without the rules, 21% and 7% of studies get the verdict "slower"."""
    rng = np.random.default_rng(7)
    ended = [simulate_study(rng, Case((2.0, slow_s)), 25.0) for _ in range(STUDIES)]
    wrong = sum(one.verdict in {Verdict.FASTER, Verdict.SLOWER} for one in ended)
    expected = 0.03
    assert wrong / STUDIES <= expected + 3.1 * math.sqrt(expected * (1 - expected) / STUDIES)
    assert np.mean([one.warm_up_s > 4.0 for one in ended]) > 0.5


def test_arms_with_equal_warm_up_rarely_get_a_longer_one() -> None:
    rng = np.random.default_rng(8)
    ended = [simulate_study(rng, Case((2.0, 2.0)), 25.0) for _ in range(STUDIES)]
    assert sum(one.warm_up_s > 4.0 for one in ended) <= 0.2 * STUDIES
