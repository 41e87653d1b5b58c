"""End of a warm-up: MSER against its definition, and the rule with series of known end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_telemetry import autoregressive

from pgdyno.analysis.statistics.series import batches, is_steady, mser, mser_of_mean, trend_errors

Floats = npt.NDArray[np.float64]


def series(rng: np.random.Generator, n: int, short: float, tau: float, noise: float, memory: float) -> Floats:
    """Return a rate that approaches 1000 exponentially, with AR(1) noise."""
    rising = 1000 * (1 - short * np.exp(-(np.arange(n) + 0.5) / tau))
    return rising * (1 + autoregressive(rng, n, noise, memory))


def test_mser_discards_according_to_its_definition() -> None:
    # By hand: with d = 0, 1, 2, 3 cut, sum of squares / (n − d)² is 42/64, 12/49, 0.8333/36 and 0.8/25.
    values = [5.0, 7.0, 10.0, 10.0, 10.5, 11.0, 10.0, 10.5]
    marginal = [sum((y - np.mean(values[d:])) ** 2 for y in values[d:]) / (8 - d) ** 2 for d in range(7)]
    assert mser(values) == int(np.argmin(marginal[:4])) == 2


def test_mser_5_works_on_means_of_five() -> None:
    raw = [1.0] * 5 + [3.0] * 5 + [9.0, 11.0, 10.0, 10.0, 10.0] + [10.0] * 37
    assert batches(raw).tolist() == [1, 3, 10, 10, 10, 10, 10, 10, 10, 10]
    assert mser(batches(raw)) == 2


@given(st.lists(st.floats(1.0, 1e6), min_size=6, max_size=40), st.integers(-8, 8))
def test_a_faster_machine_has_the_same_warm_up(values: list[float], twice: int) -> None:
    faster = [value * 2.0**twice for value in values]  # exact, so that ties stay ties
    assert mser(values) == mser(faster) and is_steady(values) == is_steady(faster)


def test_effects_common_to_trials_are_detected_in_their_noise() -> None:
    rng = np.random.default_rng(20261122)
    trials = [rng.uniform(0.5, 2) * series(rng, 40, 0.3, 2.0, 0.15, 0.3) for _ in range(20)]
    cut = mser_of_mean(trials)
    assert cut is not None and 3 <= cut <= 12
    assert mser_of_mean([10 * trial for trial in trials]) == cut
    assert mser_of_mean([]) is None and mser_of_mean([[0.0] * 8]) is None


def test_too_few_values_and_those_that_never_rest_have_no_end() -> None:
    assert mser([1.0, 2.0, 3.0, 4.0]) is None
    assert mser(np.arange(30.0)) is None and mser(np.arange(10.0)) is None
    assert not is_steady(np.arange(30.0) + 100)


def test_constant_values_are_steady_at_once() -> None:
    assert mser([3.0] * 6) == 0 and is_steady([3.0] * 6)
    assert trend_errors([3.0] * 6) == 0
    assert trend_errors([1.0, 2.0, 3.0, 4.0]) == np.inf


def ends(
    bounds: tuple[int, int], short: float, tau: float, noise: float, memory: float, runs: int = 200
) -> Iterator[tuple[int, bool]]:
    """Return when a warm-up within limits ends, and whether it was found steady."""
    rng = np.random.default_rng(20261122)
    for _ in range(runs):
        of = series(rng, bounds[1], short, tau, noise, memory)
        steady = (n for n in range(bounds[0], bounds[1] + 1) if is_steady(of[:n]))
        at = next(steady, None)
        yield (bounds[1] if at is None else at), at is not None


@pytest.mark.parametrize(("noise", "memory"), [(0.1, 0.0), (0.2, 0.7)])
def test_a_steady_series_rarely_has_a_long_warm_up(noise: float, memory: float) -> None:
    found = list(ends((5, 30), 0.0, 1.0, noise, memory))
    assert sum(not by_evidence for _, by_evidence in found) <= 0.02 * len(found)
    assert np.median([at for at, _ in found]) <= 9


@pytest.mark.parametrize(("tau", "noise", "left_max"), [(2.0, 0.1, 0.03), (5.0, 0.2, 0.15)])
def test_little_remains_of_a_rise_from_half_the_rate(tau: float, noise: float, left_max: float) -> None:
    left = [0.5 * np.exp(-at / tau) for at, _ in ends((5, 60), 0.5, tau, noise, 0.3)]
    assert np.mean(left) <= left_max
