"""p-values of the goodness-of-fit tests: uniform under the null hypothesis, and correct far in the tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from workload_tallies import CONSTANTS, WEIGHTS, deal, draw_by_weights, simulate, uniform

from pgdyno.workloads import workload
from pgdyno.workloads.tpcc.checks import (
    C_LAST,
    DECK,
    check_accounts,
    check_conformance,
    check_constant,
    deviation_probability_max,
    fit_deck,
)
from pgdyno.workloads.workload import FALSE_ALARMS_PER_TRIAL, fit_distribution, fit_share


@pytest.mark.parametrize("n", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
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


Tally = dict[str, Any]


def failed(tally: Tally, *, warehouses: int = 4, clients: int = 8, mix: Any = "deck") -> set[str]:
    checks = check_conformance(tally, warehouses=warehouses, clients=clients, mix=mix)
    return {check.name for check in checks if not check.passed}


@pytest.mark.parametrize(
    ("transactions", "clients"), [(200, 1), (200, 1000), (5_000, 8), (5_000, 1000), (400_000, 8)]
)
def test_a_correct_driver_passes(transactions: int, clients: int) -> None:
    tally = simulate(transactions, transactions=transactions, clients=clients)
    assert failed(tally, clients=clients) == set()


def test_a_correct_driver_passes_on_one_warehouse_where_nothing_is_remote() -> None:
    assert failed(simulate(2, warehouses=1), warehouses=1) == set()


def test_a_driver_by_weights_passes_against_its_weights() -> None:
    drawn = draw_by_weights(np.random.default_rng(3), 40_000)
    assert failed(simulate(3, drawn=drawn), mix=WEIGHTS) == set()


def test_a_driver_that_has_drawn_nothing_passes() -> None:
    nothing = simulate(4, transactions=0, drawn=dict.fromkeys(WEIGHTS, 0))
    assert failed(nothing) == failed(nothing | {"nurand_c": None}) == set()


WRONG: list[tuple[str, Callable[[], Tally]]] = [
    ("rollback share", lambda: simulate(5, rollback=0.02)),
    ("rollback share", lambda: simulate(5, rollback=0.0)),
    ("remote order lines", lambda: simulate(5, remote_line=0.0)),
    ("remote order lines", lambda: simulate(5, remote_line=0.015)),
    ("remote payments", lambda: simulate(5, remote_payment=0.10)),
    ("remote payments", lambda: simulate(5, remote_payment=0.0)),
    ("payment by last name", lambda: simulate(5, by_name=0.55)),
    ("order_status by last name", lambda: simulate(5, transactions=400_000, by_name=0.55)),
    ("lines per order", lambda: simulate(5, lines=(5, 14))),
    ("mix", lambda: simulate(5, drawn=draw_by_weights(np.random.default_rng(5), 40_000))),
    ("NURand of last names", lambda: (t := simulate(5)) | {"c_last": uniform(5, 1000, sum(t["c_last"]))}),
    ("NURand of customers", lambda: (t := simulate(5)) | {"c_id": uniform(5, 1000, sum(t["c_id"]))}),
    ("NURand of items", lambda: (t := simulate(5)) | {"item": uniform(5, 1000, sum(t["item"]))}),
    ("NURand of last names", lambda: simulate(5) | {"nurand_c": CONSTANTS | {"c_last": 201}}),
    ("NURand of customers", lambda: simulate(5) | {"nurand_c": CONSTANTS | {"c_id": 262}}),
    ("NURand of items", lambda: simulate(5) | {"nurand_c": CONSTANTS | {"item": 7711}}),
    ("driver's counters add up", lambda: (t := simulate(5)) | {"order_lines": t["order_lines"] + 1}),
]


@pytest.mark.parametrize(("check", "make"), WRONG)
def test_an_incorrect_driver_fails_the_check_of_its_error(check: str, make: Callable[[], Tally]) -> None:
    assert check in failed(make())


def test_a_remote_order_line_on_a_single_warehouse_fails() -> None:
    tally = simulate(6, warehouses=1) | {"order_lines_remote": 1}
    assert failed(tally, warehouses=1) == {"remote order lines"}


def test_a_kind_without_weight_fails() -> None:
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind != "delivery"}
    assert "mix" in failed(simulate(7), mix=weights)


def test_the_thresholds_add_up_to_the_family_wise_rate() -> None:
    checks = check_conformance(simulate(8), warehouses=4, clients=8)
    assert sum(check.p_value is not None for check in checks) == 10
    barely = simulate(8) | {"rollbacks_drawn": _rollbacks_at(FALSE_ALARMS_PER_TRIAL / 10, simulate(8))}
    assert "rollback share" not in failed(barely)
    assert "rollback share" in failed(barely | {"rollbacks_drawn": barely["rollbacks_drawn"] + 3})


def _rollbacks_at(p_value: float, tally: Tally) -> int:
    """Return the maximum number of rollbacks whose two-sided p-value is at least ``p_value``."""
    n = tally["drawn"]["new_order"]
    return max(k for k in range(n // 50) if stats.binomtest(k, n, 0.01).pvalue >= p_value)


def test_a_failed_conservation_check_names_the_mismatch() -> None:
    tally = simulate(9)
    tally["c_id"][0] += 1
    check = check_accounts(tally)
    assert not check.passed
    assert check.detail.startswith("customers: ")


@pytest.mark.parametrize(
    ("c_load", "c_run", "passed"),
    [
        (200, 135, True),
        (10, 129, True),
        (200, 136, False),
        (0, 120, False),
        (0, 96, False),
        (112, 0, False),
        (123, 123, False),
    ],
)
def test_the_constants_of_load_and_run_lie_as_far_apart_as_specified(
    c_load: int, c_run: int, passed: bool
) -> None:
    assert check_constant(c_load, c_run).passed is passed
