"""Simulated searches of `python -m bench bisect`: right nine times out of ten, and rarely wrong."""

from __future__ import annotations

import pytest
from bench.bisect import End, simulate
from bench.noise import SCENARIOS, SD, Noise, normal

RECORDED = pytest.param(SCENARIOS["recorded blocks: slices"], marks=pytest.mark.long)


@pytest.mark.parametrize("noise", [normal(SD), RECORDED])
def test_a_planted_regression_of_5_percent_over_64_commits_is_found(noise: Noise) -> None:
    found = simulate(noise, searches=60)
    assert found.shares[End.RIGHT] >= 0.9
    assert found.shares[End.WRONG] <= 0.1  # 5% are promised; 3 of 60 expected at most


@pytest.mark.long
def test_searches_without_enough_blocks_are_undecided_and_not_wrong() -> None:
    found = simulate(normal(0.1), searches=20)
    assert found.shares[End.UNDECIDED] >= 0.9 and found.shares[End.WRONG] <= 0.1


def test_commits_that_do_not_build_leave_a_range_with_the_planted_one() -> None:
    found = simulate(normal(0.01), searches=40, broken_share=0.4)
    assert found.shares[End.RIGHT] >= 0.9
