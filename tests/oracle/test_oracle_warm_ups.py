"""Verdicts on arms that warm up slowly, by simulation with the defaults and 20 minutes."""

import math

import numpy as np
import pytest
from bench.warm_ups import Case, simulate_study

from pgdyno.analysis.comparison import Verdict

UNLIKE = [(2.0, 3.0), (3.0, 6.0), (5.0, 10.0), (10.0, 20.0), (20.0, 60.0)]
"""Time constants in seconds of arms with equal final rates: any *faster* or *slower* is wrong."""

DIFFERENT = {Verdict.FASTER, Verdict.SLOWER}
STUDIES = 60


@pytest.mark.parametrize("rise", [0.2, 0.5])
@pytest.mark.parametrize("constants_s", UNLIKE[::2])
def test_arms_that_warm_up_slowly_and_unlike_are_not_called_different(
    constants_s: tuple[float, float], rise: float
) -> None:
    found = simulate_study(np.random.default_rng(7), Case(constants_s, rise))
    assert found.verdict not in DIFFERENT


def test_the_warm_up_of_slow_arms_is_extended_until_a_true_difference_is_found() -> None:
    found = simulate_study(np.random.default_rng(6), Case((5.0, 10.0), effect=0.05))
    assert found.verdict is Verdict.FASTER and found.warm_up_s > 20
    assert found.effect == pytest.approx(math.log(1.05), abs=0.02)


def test_arms_that_are_steady_or_warm_up_alike_are_the_same_without_a_longer_warm_up() -> None:
    for case in (Case((0.0, 0.0)), Case((2.0, 2.0))):
        found = simulate_study(np.random.default_rng(6), case)
        assert (found.verdict, found.warm_up_s) == (Verdict.SAME, 4.0)


@pytest.mark.long
@pytest.mark.parametrize("rise", [0.2, 0.5])
@pytest.mark.parametrize("constants_s", [(0.0, 20.0), (2.0, 20.0), *UNLIKE])
def test_few_studies_of_arms_that_warm_up_unlike_are_wrong(
    constants_s: tuple[float, float], rise: float
) -> None:
    rng = np.random.default_rng(8)
    verdicts = [simulate_study(rng, Case(constants_s, rise)).verdict for _ in range(STUDIES)]
    wrong, expected = sum(verdict in DIFFERENT for verdict in verdicts), 0.05
    assert wrong / STUDIES <= expected + 3.1 * math.sqrt(expected * (1 - expected) / STUDIES)
