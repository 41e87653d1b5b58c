"""Statistics compared with known results: examples of the literature, scipy, simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pgdyno.analysis.comparison import Verdict, blocks_needed, detectable_percent, judge
from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.intervals import (
    BOOTSTRAP_RESAMPLES,
    BOOTSTRAP_SEED,
    bca,
    binomial_at_most,
    binomial_interval,
    bootstrap_interval,
    chi2_quantile,
    f_below,
    f_beyond,
    holm_confidences,
    p_value_of_means,
    proportion,
    student,
)
from pgdyno.analysis.telemetry.percentiles import Latencies, merge
from pgdyno.results.codec import pairs_from
from pgdyno.study.plan import VERDICT_BLOCKS_MIN


@pytest.mark.parametrize("n", [2, 5, 12, 40])
@pytest.mark.parametrize("confidence", [0.90, 0.95, 0.99])
def test_the_interval_is_that_of_scipy(n: int, confidence: float) -> None:
    d = np.random.default_rng(n).normal(0.03, 0.05, n)
    known = stats.ttest_1samp(d, 0.0)
    interval = known.confidence_interval(confidence)
    found = student(list(d), confidence)
    assert (found.mean, found.low, found.high, found.p_value) == pytest.approx(
        (d.mean(), interval.low, interval.high, known.pvalue)
    )


@pytest.mark.parametrize("freedom", [1, 4, 11, 99])
@pytest.mark.parametrize("x", [0.001, 0.3, 2.5, 40.0])
def test_students_distribution_is_that_of_scipy(x: float, freedom: int) -> None:
    assert intervals.t_beyond(x, freedom) == pytest.approx(stats.t.sf(x, freedom), rel=1e-12)
    probability = float(stats.t.cdf(x, freedom))
    assert intervals.t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom))


@pytest.mark.parametrize("n", [5, 12, 60])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.9917])
def test_the_bootstrap_is_that_of_scipy(n: int, confidence: float) -> None:
    d = np.random.default_rng(n).exponential(0.05, n)
    known = stats.bootstrap(
        (d,),
        np.mean,
        confidence_level=confidence,
        n_resamples=BOOTSTRAP_RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    found = bca(d, confidence, BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED)
    assert found == pytest.approx((known.low, known.high), rel=1e-12)


def test_holms_steps_are_those_of_the_worked_example() -> None:
    # Four hypotheses with p = 0.01, 0.04, 0.03, 0.005 at 5 %: the levels in ascending order of p are 0.0125,
    # 0.0167 and 0.025, at which 0.03 fails and ends it.
    p_values = [0.01, 0.04, 0.03, 0.005]
    levels = [1 - confidence for confidence in holm_confidences(p_values, 0.95)]
    assert levels == pytest.approx([0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4])
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == [True, False, False, True]


def test_holm_does_not_change_a_single_comparison() -> None:
    assert holm_confidences([0.7], 0.95) == pytest.approx([0.95])
    assert holm_confidences([], 0.95) == []


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99, 0.999, 1.0])
def test_quantiles_of_merged_histograms_are_those_of_all_values(quantile: float) -> None:
    rng = np.random.default_rng(3)
    parts = [(rng.lognormal(14, 0.8, n) // 1024 * 1024).astype(np.uint64) for n in (40_000, 7, 12_345)]
    histograms = [
        pairs_from(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True))
        for values in parts
    ]
    known = np.percentile(np.concatenate(parts), 100 * quantile, method="inverted_cdf")
    assert Latencies(merge(histograms)).quantile_ms(quantile) == (int(known) / 1e6, False)


def test_the_minimum_detectable_effect_is_that_of_a_hand_computed_table() -> None:
    # n = 10, s = 0.03: t(0.975, 9) = 2.262157, t(0.80, 9) = 0.883404 (tables), so the reach is
    # 3.145561 · 0.03 / √10 = 0.0298413 on the log scale, 3.0291 %.
    d = np.array([-1.0, 1.0] * 5)
    summary = student(list(0.03 * d / np.std(d, ddof=1)), 0.95)
    assert detectable_percent(summary) == pytest.approx(3.0291, abs=1e-4)


def test_the_forecast_number_of_blocks_has_about_its_nominal_power() -> None:
    rng = np.random.default_rng(5)
    true, sd = math.log(1.03), 0.03
    first = student(list(true + sd * scaled(rng.normal(size=6))), 0.95)
    needed = blocks_needed(first, 0.02)
    decided = sum(
        judge(s, 0.02) is not Verdict.UNDECIDED
        for s in (student(list(rng.normal(true, sd, 6 + needed)), 0.95) for _ in range(1000))
    )
    assert decided >= binomial_low(1000, 0.80)


def scaled(values: np.ndarray) -> np.ndarray:
    """Return values scaled to mean 0 and SD 1."""
    return (values - values.mean()) / values.std(ddof=1)


def binomial_low(n: int, share: float) -> float:
    """Lower bound of a binomial count, which a correct share misses once in ten thousand simulations."""
    return float(stats.binom.ppf(1e-4, n, share))


def binomial_high(n: int, share: float) -> float:
    return float(stats.binom.ppf(1 - 1e-4, n, share))


STUDIES = 4000


@pytest.mark.parametrize("blocks", [5, 12])
def test_the_interval_has_its_nominal_coverage(blocks: int) -> None:
    rng, truth = np.random.default_rng(blocks), math.log(1.042)
    summaries = [student(list(d), 0.95) for d in rng.normal(truth, 0.02, (STUDIES, blocks))]
    covered = sum(s.low is not None and s.high is not None and s.low <= truth <= s.high for s in summaries)
    assert binomial_low(STUDIES, 0.95) <= covered <= binomial_high(STUDIES, 0.95)


def test_the_interval_covers_with_heavy_tailed_noise_from_stalls() -> None:
    rng, truth = np.random.default_rng(8), math.log(0.97)
    summaries = [student(list(d), 0.95) for d in truth + 0.02 * rng.standard_t(3, (STUDIES, 10))]
    covered = sum(s.low is not None and s.high is not None and s.low <= truth <= s.high for s in summaries)
    assert covered >= binomial_low(STUDIES, 0.95)


def test_of_three_identical_arms_one_is_rarely_called_faster_or_slower() -> None:
    rng, alarms, studies = np.random.default_rng(10), 0, 2000
    for _ in range(studies):
        baseline = rng.normal(0, 0.03, 8)  # shared, as in a study: the comparisons are not independent
        arms = [list(rng.normal(0, 0.03, 8) - baseline) for _ in range(3)]
        levels = holm_confidences([student(d, 0.95).p_value for d in arms], 0.95)
        summaries = [student(d, level) for d, level in zip(arms, levels, strict=True)]
        found = {judge(s, 0.001) for s in summaries}
        alarms += bool(found & {Verdict.FASTER, Verdict.SLOWER})
    # The noise is large enough for occasional errors: without alarms, the test would be trivial.
    assert 0 < alarms <= binomial_high(studies, 0.05)


def test_the_bootstrap_agrees_with_student_for_gaussian_blocks() -> None:
    d = list(np.random.default_rng(11).normal(0.05, 0.02, 40))
    resampled, known = bootstrap_interval(d, 0.95), student(d, 0.95)
    half_width = (known.high - known.low) / 2
    assert resampled == pytest.approx((known.low, known.high), abs=0.15 * half_width)
    assert resampled == bootstrap_interval(d, 0.95)


def test_the_bootstrap_of_few_gaussian_blocks_is_as_wide_as_student() -> None:
    """Without its correction it would have 0.82 of the width for ten blocks."""
    rng = np.random.default_rng(4)
    widths = []
    for d in rng.normal(0.0, 0.05, (40, 10)):
        resampled, known = bootstrap_interval(list(d), 0.95), student(list(d), 0.95)
        widths.append((resampled[1] - resampled[0]) / (known.high - known.low))
    assert np.mean(widths) == pytest.approx(1.0, abs=0.05)


def test_with_too_few_blocks_the_bootstrap_has_no_interval() -> None:
    assert bootstrap_interval([0.1] * (VERDICT_BLOCKS_MIN - 1), 0.95) is None


@pytest.mark.parametrize("n", [1, 4, 37])
def test_the_distributions_are_those_of_scipy(n: int) -> None:
    for p in (1e-6, 0.025, 0.5, 0.975):
        assert chi2_quantile(p, n) == pytest.approx(float(stats.chi2.ppf(p, n)), rel=1e-9)
    for value in (0.0, 0.3, 2.5, 40.0):
        assert f_below(value, n, 7) == pytest.approx(float(stats.f.cdf(value, n, 7)), rel=1e-12)
        assert f_beyond(value, n, 7) == pytest.approx(float(stats.f.sf(value, n, 7)), rel=1e-12)
    for successes in {0, n // 3, n}:
        known = stats.binomtest(successes, n).proportion_ci(0.95)
        assert binomial_interval(successes, n, 0.95) == pytest.approx((known.low, known.high), rel=1e-9)
        known_share = float(stats.binom.cdf(successes, n, 0.3))
        assert binomial_at_most(successes, n, 0.3) == pytest.approx(known_share, rel=1e-12)


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


@pytest.mark.parametrize(
    ("ratio", "correlation", "excess"), [(1.0, 0.0, 1.0), (1.0, 0.5, 1.2), (10.0, 0.0, 1.6), (1.0, 1.0, 4.5)]
)
def test_the_joint_test_of_two_means_has_about_its_level_with_unequal_and_shared_noise(
    ratio: float, correlation: float, excess: float
) -> None:
    rng, studies, n = np.random.default_rng(1), 4000, 5
    first, other = rng.normal(size=(2, studies, n))
    second = ratio * (correlation * first + math.sqrt(1 - correlation**2) * other)
    p_values = np.array([p_value_of_means(a, b) for a, b in zip(first, second, strict=True)])
    most = 0.01 * excess
    assert np.mean(p_values <= 0.01) <= most + 3.1 * math.sqrt(most * (1 - most) / studies)
    assert np.mean(p_values <= 0.1) > 0.05


def test_the_joint_test_of_two_means_is_one_f_test_at_equal_variances() -> None:
    a = np.array([0.1, 0.3, 0.2, 0.4])
    statistic = len(a) * float(a.mean()) ** 2 / float(np.var(a, ddof=1))
    assert p_value_of_means(a, -a) == pytest.approx(float(stats.f.sf(statistic, 2, 6)), rel=1e-12)
    same = np.full(3, 0.25)
    assert (p_value_of_means(same, 0 * same), p_value_of_means(0 * same, 0 * same)) == (0.0, 1.0)
