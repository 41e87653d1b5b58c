"""Test for skewed blocks, compared with its definition, and at the stated rates."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from bench.noise import Noise, heavy_tails, normal, outliers, skewed
from bench.stopping import apply_stopping_rule

from pgdyno.analysis.comparison_caveats import BLOCKS_ALARM as ALARM
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.statistics.series import BLOCKS_MAX, is_skewed, skewness, triples_score

STUDIES = 1000
SURE = 0.999


def test_the_score_is_the_mean_of_the_triples_in_its_standard_errors() -> None:
    """The numerator by its definition, the denominator by the SD of T over new samples."""
    d = [0.3, -2.0, 0.1, 8.0, 0.2, 0.25, -1.0, 0.5, 0.6, 0.05]
    signs = [np.sign(np.mean(three) - np.median(three)) / 3 for three in combinations(d, 3)]
    score = triples_score(d)
    assert score is not None and np.sign(score) == np.sign(np.mean(signs))
    rng = np.random.default_rng(2)
    drawn = [rng.normal(size=40) for _ in range(400)]
    means = [_mean_of_triples(one) for one in drawn]
    errors = [mean / (triples_score(list(one)) or np.nan) for mean, one in zip(means, drawn, strict=True)]
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)


TRIPLES = np.array(list(combinations(range(40), 3)))


def _mean_of_triples(d: np.ndarray) -> float:
    three = np.sort(d[TRIPLES], axis=1)
    return float(np.sign(three[:, 0] + three[:, 2] - 2 * three[:, 1]).mean() / 3)


def test_scale_location_and_sign_do_not_matter() -> None:
    d = list(np.random.default_rng(1).gamma(0.4, 1, 30))
    score = triples_score(d)
    assert score is not None and score > 2
    assert triples_score([5 + 3 * one for one in d]) == pytest.approx(score)
    assert triples_score([-one for one in d]) == pytest.approx(-score)
    powers = [[sign * 2.0**i for i in range(n)] for n in range(12, 60) for sign in (1, -1)]
    assert all(is_skewed(one, ALARM) for one in powers)
    assert triples_score(d[:9]) is None and triples_score([1.0] * 12) is None
    assert triples_score([*range(500), *d * 4]) == triples_score((d * 4)[-BLOCKS_MAX:])
    assert skewness(d) == pytest.approx(scipy.stats.skew(d))


@pytest.mark.parametrize("noise", [normal(0.025), heavy_tails, outliers])
@pytest.mark.parametrize(
    "blocks", [10, *(pytest.param(blocks, marks=pytest.mark.long) for blocks in (25, 40))]
)
def test_symmetric_blocks_raise_the_caveat_at_most_at_the_nominal_rate(noise: Noise, blocks: int) -> None:
    drawn = noise(np.random.default_rng(blocks), STUDIES, blocks)
    # With heavy tails the level is asymptotic, and the page states the remaining error.
    limit = ALARM if noise is not heavy_tails else 0.07
    assert sum(is_skewed(d, ALARM) for d in drawn) <= scipy.stats.binom.ppf(SURE, STUDIES, limit)


def test_a_study_that_stops_on_its_verdict_is_accused_no_more_often() -> None:
    drawn = normal(0.025)(np.random.default_rng(4), STUDIES, 60)
    stopped = apply_stopping_rule(drawn, 0.0, Method.ANYTIME).stopped.astype(int)
    # Sorted by length, so that the triples of a length are listed once.
    accused = sum(is_skewed(drawn[i][: stopped[i]], ALARM) for i in np.argsort(stopped))
    assert accused <= scipy.stats.binom.ppf(SURE, STUDIES, ALARM)


@pytest.mark.parametrize(("blocks", "least"), [(20, 0.5), pytest.param(40, 0.85, marks=pytest.mark.long)])
def test_skewed_blocks_are_found_at_the_documented_rate(blocks: int, least: float) -> None:
    drawn = skewed(1.75)(np.random.default_rng(5), STUDIES, blocks)
    found = sum(is_skewed(d, ALARM) for d in drawn)
    assert found >= scipy.stats.binom.ppf(1 - SURE, STUDIES, least)
