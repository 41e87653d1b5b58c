"""p-values of the goodness-of-fit tests: uniform under the null hypothesis, and correct far in the tail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from workload_tallies import deal

from pgdyno.workloads import workload
from pgdyno.workloads.tpcc.checks import C_LAST, DECK, deviation_probability_max, fit_deck
from pgdyno.workloads.workload import fit_distribution, fit_share


@pytest.mark.parametrize("n", [5_000, 100_000])
def test_p_values_of_nurand_draws_are_uniform(n: int) -> None:
    probability = C_LAST.probability(11)
    counts = np.random.default_rng(1).multinomial(n, probability, size=2000)
    p_values = [fit_distribution(row, probability).p_value for row in counts]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_p_values_of_few_bins_are_right_at_one_in_a_hundred_thousand() -> None:
    # The minimum number of draws at which no bin is pooled: the worst case for the approximation.
    weights = np.array([0.45, 0.43, 0.04, 0.04, 0.04])
    n, runs = int(workload.EXPECTED_PER_BIN_MIN / 0.04) + 1, 2_000_000
    counts = np.random.default_rng(2).multinomial(n, weights, size=runs)
    statistic = ((counts - n * weights) ** 2 / (n * weights)).sum(axis=1)
    threshold = stats.chi2.isf(1e-5, 4)
    at_threshold = counts[np.abs(statistic - threshold).argmin()]
    assert fit_distribution(at_threshold, weights).p_value == pytest.approx(1e-5, rel=0.05)
    assert (statistic >= threshold).sum() <= 3e-5 * runs


def test_p_values_of_shares_are_conservative_and_nearly_exact() -> None:
    successes = np.random.default_rng(3).binomial(20_000, 0.01, size=20_000)
    values, which = np.unique(successes, return_inverse=True)
    p_values = np.array([fit_share(int(k), 20_000, 0.01).p_value for k in values])[which]
    for level in (0.5, 0.1, 0.02):
        assert 0.8 * level <= (p_values <= level).mean() <= 1.15 * level


def test_few_draws_are_pooled_until_there_is_nothing_to_test() -> None:
    assert fit_distribution([3, 0, 1], [0.2, 0.3, 0.5]).p_value == 1.0


def test_impossible_values_have_probability_zero() -> None:
    assert fit_distribution([10_000, 1], [1.0, 0.0]).p_value == 0.0


def test_counts_of_another_length_are_rejected() -> None:
    with pytest.raises(ValueError, match="3 bins counted, 2 expected"):
        fit_distribution([1, 2, 3], [0.5, 0.5])


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_deviations_of_decks_have_at_most_the_nominal_rate(clients: int) -> None:
    rng = np.random.default_rng(clients)
    p_values = np.array([fit_deck(deal(rng, 300 * clients, clients), clients).p_value for _ in range(400)])
    for level in (0.5, 0.1, 0.05):
        assert (p_values <= level).mean() <= level


def test_the_deck_bound_covers_the_exact_probability_of_one_deck() -> None:
    for dealt in (1, 11, 12, 22):
        exact = stats.hypergeom(23, 10, dealt)
        mean = dealt * 10 / 23
        for count in range(dealt + 1):
            stray = abs(count - mean)
            outside = exact.cdf(np.floor(mean - stray)) + exact.sf(np.ceil(mean + stray) - 1)
            assert min(1.0, outside) <= deviation_probability_max(stray - 1e-9, 10, 1) + 1e-12


def test_one_card_too_many_in_each_deck_fails() -> None:
    drawn = {kind: 1000 * cards for kind, cards in DECK.items()} | {"delivery": 2000}
    assert fit_deck(drawn, 8).p_value < 1e-12
