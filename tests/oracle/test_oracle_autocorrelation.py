"""Test for autocorrelated blocks, compared with all permutations, and at its stated rates."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
import scipy.stats
from bench.noise import Noise, autocorrelated, heavy_tails, normal
from bench.stopping import apply_stopping_rule

from pgdyno.analysis.comparison_caveats import BLOCKS_ALARM as ALARM
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.statistics.series import (
    BLOCKS_MIN,
    autocorrelation,
    is_autocorrelated,
    rank_ratio,
    von_neumann_p_value,
)

STUDIES = 1000
SURE = 0.999


def test_the_p_value_of_a_ratio_is_that_among_all_permutations() -> None:
    """For eight ranks all permutations have these moments; for ten, with 3.6 million permutations, they are
    sampled.
    """
    orders = np.array(list(permutations(range(8))))
    every = np.sum(np.diff(orders, axis=1) ** 2, axis=1) / np.sum((np.arange(8) - 3.5) ** 2)
    n = 8
    variance = 4 * (n - 2) * (5 * n**2 - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) ** 2)
    assert every.mean() == pytest.approx(2) and every.var() == pytest.approx(variance)
    shape = scipy.stats.beta(*scipy.optimize.fsolve(lambda ab: _moments(ab, variance), (4.0, 4.0)))
    assert von_neumann_p_value(1.0, n) == pytest.approx(shape.cdf(0.25), abs=1e-9)
    rng = np.random.default_rng(3)
    drawn = np.sort([rank_ratio(rng.permutation(BLOCKS_MIN)) for _ in range(20_000)])
    for quantile in (0.01, 0.05, 0.2, 0.5):
        exact = float(drawn[int(quantile * len(drawn))])
        assert von_neumann_p_value(exact, BLOCKS_MIN) == pytest.approx(quantile, rel=0.12)


def _moments(ab: tuple[float, float], variance: float) -> tuple[float, float]:
    """Moments of a beta distribution on 0 … 4 with mean 2."""
    mean, var = scipy.stats.beta.stats(*ab)
    return 4 * float(mean) - 2, 16 * float(var) - variance


def test_it_is_the_ratio_of_the_ranks_whatever_the_values() -> None:
    d = [0.3, -2.0, 0.1, 8.0, 0.2, 0.25, -1.0, 0.5, 0.6, 0.05]
    ranks = [6, 0, 3, 9, 4, 5, 1, 7, 8, 2]
    expected = sum((a - b) ** 2 for a, b in pairwise(ranks)) / (10 * 99 / 12)
    assert rank_ratio(d) == pytest.approx(expected)
    assert rank_ratio([np.exp(5 * one) for one in d]) == pytest.approx(expected)
    assert rank_ratio([-one for one in d]) == pytest.approx(expected)
    tied = [1.0, 1.0, 2.0, 5.0, 5.0, 5.0, 0.0, 7.0, 2.0, 3.0, 3.0]
    alike = scipy.stats.rankdata(tied)
    off = np.sum((alike - alike.mean()) ** 2)
    assert rank_ratio(tied) == pytest.approx(np.sum(np.diff(alike) ** 2) / off)
    assert rank_ratio(d[:9]) is None and rank_ratio([1.0] * 12) is None
    assert autocorrelation(d) == pytest.approx(
        np.sum((np.array(d[1:]) - np.mean(d)) * (np.array(d[:-1]) - np.mean(d)))
        / np.sum((np.array(d) - np.mean(d)) ** 2)
    )


@pytest.mark.parametrize("noise", [normal(0.025), heavy_tails])
@pytest.mark.parametrize("blocks", [10, 11, 25, 60])
def test_independent_blocks_raise_the_caveat_at_most_at_the_nominal_rate(noise: Noise, blocks: int) -> None:
    drawn = noise(np.random.default_rng(blocks), STUDIES, blocks)
    for alarm in (ALARM, ALARM / 5):
        accused = sum(is_autocorrelated(d, alarm) for d in drawn)
        assert accused <= scipy.stats.binom.ppf(SURE, STUDIES, alarm)


def test_a_study_that_stops_on_its_verdict_is_accused_no_more_often() -> None:
    drawn = normal(0.025)(np.random.default_rng(4), STUDIES, 60)
    stopped = apply_stopping_rule(drawn, 0.0, Method.ANYTIME).stopped.astype(int)
    accused = sum(is_autocorrelated(d[:n], ALARM) for d, n in zip(drawn, stopped, strict=True))
    assert accused <= scipy.stats.binom.ppf(SURE, STUDIES, ALARM)


@pytest.mark.parametrize(("share", "blocks", "least"), [(0.3, 10, 0.1), (0.3, 60, 0.6), (0.5, 40, 0.8)])
def test_autocorrelated_blocks_are_found_at_the_documented_rate(
    share: float, blocks: int, least: float
) -> None:
    drawn = autocorrelated(share)(np.random.default_rng(5), STUDIES, blocks)
    found = sum(is_autocorrelated(d, ALARM) for d in drawn)
    assert found >= scipy.stats.binom.ppf(1 - SURE, STUDIES, least)


def test_blocks_that_swing_to_and_fro_are_not_accused() -> None:
    assert not is_autocorrelated([(-1.0) ** n + n / 1000 for n in range(20)], ALARM)
