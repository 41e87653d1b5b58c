"""Anytime-valid interval compared with the integrals that define it, and with many interim analyses."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from bench.noise import SCENARIOS, SD, autocorrelated, recorded_groups
from bench.stopping import (
    BLOCKS,
    BLOCKS_OF_20_MIN,
    EFFECTS,
    PATHS,
    StoppedStudies,
    apply_stopping_rule,
    chance_of,
    error_rates,
    other_metric,
    wrong_same,
)
from scipy import integrate, stats

from pgdyno.analysis.comparison import Verdict, decide
from pgdyno.analysis.statistics.intervals import (
    PRIOR,
    Method,
    critical_value,
    ends,
    holm_confidences,
    log_bayes_factor,
    prior_of,
    sequential_critical_value,
    sequential_p_value,
    summarize,
)
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import Better


def bayes_factor(t: float, n: int, prior: float = PRIOR) -> float:
    return math.exp(log_bayes_factor(t, n, prior))


SERIES = {
    "close to zero": [0.01, -0.02, 0.015, -0.005, 0.012],
    "an effect": [0.04, 0.055, 0.03, 0.06, 0.048, 0.035, 0.052],
    "negative": [-0.1, -0.02, -0.3, 0.05, -0.2, -0.11],
}


def t_of(d: list[float]) -> float:
    return math.sqrt(len(d)) * float(np.mean(d)) / float(np.std(d, ddof=1))


def binomial_low(n: int, share: float) -> float:
    """Lower bound of a binomial count, which a correct share misses once in ten thousand simulations."""
    return float(stats.binom.ppf(1e-4, n, share))


def binomial_high(n: int, share: float) -> float:
    return float(stats.binom.ppf(1 - 1e-4, n, share))


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("prior", [0.5, PRIOR])
def test_the_bayes_factor_is_the_ratio_of_likelihoods_integrated_over_effect_and_sd(
    name: str, prior: float
) -> None:
    d = np.array(SERIES[name]) / np.std(SERIES[name])
    log_sigma = np.linspace(-3, 5, 401)[:, None]  # dσ / σ is d ln σ: the right Haar prior
    delta = np.linspace(-8, 8, 801)[None, :] * math.sqrt(prior)
    squares = sum((x * np.exp(-log_sigma) - delta) ** 2 for x in d)
    mixed = np.exp(-squares / 2 - len(d) * log_sigma) * stats.norm.pdf(delta, 0, math.sqrt(prior))
    some = integrate.trapezoid(integrate.trapezoid(mixed, delta, axis=1), log_sigma[:, 0])
    alike = np.exp(-sum(d**2) * np.exp(-2 * log_sigma[:, 0]) / 2 - len(d) * log_sigma[:, 0])
    none = integrate.trapezoid(alike, log_sigma[:, 0])
    assert bayes_factor(t_of(list(d)), len(d), prior) == pytest.approx(some / none, rel=1e-4)


@pytest.mark.parametrize("name", SERIES)
def test_the_bayes_factor_is_a_martingale(name: str) -> None:
    # Without an effect the next block, given the previous ones up to their scale, has Student's distribution
    # with n degrees of freedom times their root mean square: the density of d_{n+1} with σ integrated out.
    d = SERIES[name]
    n, scale = len(d), math.sqrt(float(np.mean(np.square(d))))

    def after(x: float) -> float:
        return bayes_factor(t_of([*d, x * scale]), n + 1) * float(stats.t.pdf(x, n))

    expected = sum(integrate.quad(after, *between, limit=200)[0] for between in ((-np.inf, 0), (0, np.inf)))
    assert expected == pytest.approx(bayes_factor(t_of(d), n), rel=1e-6)


CONFIDENCES = [0.8, 0.9, 0.95, 0.975, 0.99, 0.999, 1 - 0.05 / 200, 1 - 1e-6]


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_the_level_is_the_probability_of_crossing_from_the_first_analysis_on(confidence: float) -> None:
    # E min(1, BF / b) over Student's t at the first interim analysis, by integration.
    n, prior = 40, prior_of(1 - confidence)
    bound = bayes_factor(sequential_critical_value(n, confidence), n, prior)

    def capped(t: float) -> float:
        density = float(stats.t.pdf(t, VERDICT_BLOCKS_MIN - 1))
        return min(1.0, bayes_factor(t, VERDICT_BLOCKS_MIN, prior) / bound) * density

    level = 2 * sum(
        integrate.quad(capped, *between, limit=500)[0]
        for between in ((0, 3), (3, 30), (30, 300), (300, np.inf))
    )
    assert level == pytest.approx(1 - confidence, rel=1e-4)


@pytest.mark.parametrize("n", [5, 6, 9, 20, 60, 1000])
def test_a_smaller_level_never_rejects_less_evidence(n: int) -> None:
    # Without this, Holm's method with a prior that depends on the level would exceed the level.
    values = [sequential_critical_value(n, 1 - level) for level in np.geomspace(0.9, 1e-8, 200)]
    assert all(value < larger < math.inf for value, larger in pairwise(values))


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("n", [5, 6, 9, 20, 60, 1000])
def test_the_interval_excludes_zero_exactly_if_the_p_value_is_significant(n: int, confidence: float) -> None:
    reach = sequential_critical_value(n, confidence)
    just_within, just_beyond = sequential_p_value(0.9999 * reach, n), sequential_p_value(1.0001 * reach, n)
    assert just_beyond < 1 - confidence < just_within
    assert reach > float(stats.t.ppf((1 + confidence) / 2, n - 1))


def test_the_interval_for_any_stopping_time_needs_as_many_blocks_as_an_analysis() -> None:
    found = summarize([0.1, 0.11, 0.09, 0.1], 0.95, Method.ANYTIME)
    assert (found.low, found.high, found.p_value) == (None,) * 3
    assert summarize([0.1, 0.11, 0.09, 0.1, 0.1], 0.95, Method.ANYTIME).low is not None


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "0.3" not in name])
@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_student_s_interval_of_few_blocks_covers(name: str, blocks: int) -> None:
    drawn = SCENARIOS[name](np.random.default_rng(3), 20_000, blocks)
    error = drawn.std(axis=1, ddof=1) / math.sqrt(blocks)
    covers = np.abs(drawn.mean(axis=1)) <= critical_value(blocks, 0.95, Method.ANYTIME) * error
    assert covers.mean() > 0.91


LIMITS = ("autocorrelation", "skewness", "always of the same", "recorded blocks: slices")
"""Noise for which the page states that the rate of 5% can be exceeded. The rates of recorded slices are
estimates from few studies: see ``test_error_rates_of_recorded_noise_are_not_significantly_higher``.
"""

PROMISED = [name for name in SCENARIOS if not any(limit in name for limit in LIMITS)]


@pytest.fixture(scope="module")
def drawn() -> dict[str, np.ndarray]:
    return {name: SCENARIOS[name](np.random.default_rng(7), PATHS, BLOCKS) for name in SCENARIOS}


@pytest.mark.parametrize("name", PROMISED)
def test_analyses_after_every_block_keep_the_nominal_false_alarm_rate(
    drawn: dict[str, np.ndarray], name: str
) -> None:
    assert apply_stopping_rule(drawn[name], 0.0, Method.ANYTIME).alarmed.sum() <= binomial_high(PATHS, 0.05)
    # The same noise causes false alarms with the interval of a single analysis.
    assert apply_stopping_rule(drawn[name], 0.0, Method.STUDENT).alarmed.sum() > 3 * binomial_high(
        PATHS, 0.05
    )


@pytest.mark.parametrize("name", [*PROMISED, "recorded blocks: slices", "skewness 1", "skewness 1.75"])
def test_an_effect_of_the_margin_is_rarely_called_the_same(drawn: dict[str, np.ndarray], name: str) -> None:
    assert wrong_same(drawn[name]) * PATHS <= binomial_high(PATHS, 0.04)


def test_skewed_blocks_are_called_the_same_too_often_without_a_minimum_of_blocks(
    drawn: dict[str, np.ndarray],
) -> None:
    assert wrong_same(drawn["skewness 1.75"], least=VERDICT_BLOCKS_MIN) * PATHS > binomial_high(PATHS, 0.05)


def test_equal_arms_are_called_the_same_within_the_time_of_a_default_study() -> None:
    for sd, share in ((0.015, 0.97), (SD, 0.91)):
        noise = np.random.default_rng(11).normal(0, sd, (PATHS, BLOCKS_OF_20_MIN))
        same = apply_stopping_rule(noise, 0.0, Method.ANYTIME).verdict == 0
        assert same.sum() >= binomial_low(PATHS, share)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name in PROMISED or "recorded" in name])
def test_the_interval_at_the_stop_has_its_nominal_coverage(drawn: dict[str, np.ndarray], name: str) -> None:
    for effect in EFFECTS:
        found = apply_stopping_rule(drawn[name], effect, Method.ANYTIME)
        assert found.covered.sum() >= binomial_low(PATHS, 0.95)
        assert len(np.unique(found.stopped)) > 1 or effect == 0.1


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["slices", "duet"])
def test_error_rates_of_recorded_noise_are_not_significantly_higher(schedule: str) -> None:
    assert min(chance_of(recorded_groups(schedule))) > 0.025 / 4  # four rates are tested


@pytest.mark.long
def test_recordings_with_autocorrelation_or_offsets_have_higher_error_rates() -> None:
    rng = np.random.default_rng(4)
    correlated = autocorrelated(0.5)(rng, 15, 20)
    # Arms of a study that differ by chance, for example by their place on the disk.
    offset = rng.normal(0, SD, (15, 20)) + rng.normal(0, SD, (15, 1))
    for d in (correlated, offset):
        assert min(chance_of([list(d[:5]), list(d[5:10]), list(d[10:])])) < 0.01


def test_a_study_resumed_after_a_verdict_keeps_its_false_alarm_rate(drawn: dict[str, np.ndarray]) -> None:
    # Stopped at the first verdict, resumed for as many blocks again, and analyzed once more.
    d = drawn["Gaussian"]
    stop = apply_stopping_rule(d, 0.0, Method.ANYTIME).stopped.astype(int)
    later = np.minimum(2 * stop, BLOCKS)
    summaries = [summarize(list(row[:n]), 0.95, Method.ANYTIME) for row, n in zip(d, later, strict=True)]
    missed = sum(s.low is None or s.high is None or not s.low <= 0 <= s.high for s in summaries)
    assert missed <= binomial_high(PATHS, 0.05)


def test_identical_arms_are_rarely_called_different_when_all_are_decided() -> None:
    # Holm's method at the analysis in which every comparison has its verdict, or at the last one.
    rng, studies, alarms = np.random.default_rng(10), 300, 0
    for _ in range(studies):
        baseline = rng.normal(0, 0.012, 30)
        arms = [list(rng.normal(0, 0.012, 30) - baseline) for _ in range(3)]
        for n in range(VERDICT_BLOCKS_MIN, 31):
            summaries = [summarize(d[:n], 0.95, Method.ANYTIME) for d in arms]
            levels = holm_confidences([of.p_value for of in summaries], 0.95)
            intervals = [ends(of, level) for of, level in zip(summaries, levels, strict=True)]
            different = [low > 0 or high < 0 for low, high in intervals]
            same = [max(-low, high) <= math.log1p(0.02) for low, high in intervals]
            if all(a or b for a, b in zip(different, same, strict=True)):
                break
        alarms += any(different)
    assert alarms <= binomial_high(studies, 0.05)


def test_intervals_of_other_metrics_at_the_stop_have_about_their_nominal_coverage() -> None:
    # They are Student's, and another metric determines the stop, whatever the share of common noise.
    for share in (0.0, 0.5, 1.0):
        assert other_metric(share) * PATHS <= binomial_high(PATHS, 0.06)


def test_the_simulation_judges_as_the_analysis_does(drawn: dict[str, np.ndarray]) -> None:
    d, truth = drawn["Gaussian"][:60], math.log1p(0.05)
    found: StoppedStudies = apply_stopping_rule(d, 0.05, Method.ANYTIME)
    words = {1.0: Verdict.FASTER, 0.0: Verdict.SAME, -1.0: Verdict.SLOWER}
    for of, n, covered, verdict in zip(
        d, found.stopped.astype(int), found.covered, found.verdict, strict=True
    ):
        decisions = [
            decide(summary, Better.MORE, 0.02).verdict
            for summary in (summarize(list(truth + of[:k]), 0.95, Method.ANYTIME) for k in range(1, n + 1))
        ]
        assert decisions == [Verdict.UNDECIDED] * (n - 1) + [words[float(verdict)]]
        summary = summarize(list(truth + of[:n]), 0.95, Method.ANYTIME)
        assert (summary.low <= truth <= summary.high) == covered


def test_a_row_of_the_page_on_stopping_equals_the_simulation() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "stopping.md"
    of = error_rates("Gaussian", SCENARIOS["Gaussian"])
    shares = [f"{100 * share:.1f}%" for share in (of.alarms, of.same, of.student)]
    assert f"| Gaussian | {' | '.join(shares)} |" in page.read_text("utf-8"), "see `python -m bench stopping`"
