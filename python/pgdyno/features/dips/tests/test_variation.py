"""Variation of the throughput within and between trials, against numbers computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pgdyno.features.dips.findings import TrialRates
from pgdyno.features.dips.section import VALUES
from pgdyno.features.dips.variation import find_variation, values_of_trial


def rates(*n: float, s: float = 1.0) -> TrialRates:
    at = s * np.arange(len(n))
    return TrialRates(at, at + s, np.array(n, dtype=float))


def trials(*arms: int) -> Any:
    return [SimpleNamespace(trial=i, arm=arm) for i, arm in enumerate(arms)]


def test_variation_within_trials_and_between_them_are_told_apart() -> None:
    """Two trials of 10 intervals with means of 100 and 300, alternating by 10% of them."""
    both = {0: rates(*[90, 110] * 5), 1: rates(*[270, 330] * 5)}
    of = find_variation(trials(0, 0), both)[0]
    within = 0.1 * (10 / 9) ** 0.5
    assert of.within_cv == pytest.approx(within)
    assert of.expected_cv == pytest.approx(within / 10**0.5)
    assert of.between_cv == pytest.approx(2**0.5 * 100 / 200)
    assert (of.trial_min_per_s, of.trial_max_per_s) == (100, 300)
    assert (of.interval_min_per_s, of.interval_max_per_s) == (90, 330)
    assert (of.trials, of.intervals, of.interval_s) == (2, 20, 1.0)


def test_independent_intervals_give_the_expected_variation_between_trials() -> None:
    rng = np.random.default_rng(5)
    many = {i: rates(*rng.normal(1000, 100, 50), s=0.5) for i in range(400)}
    of = find_variation(trials(*[1] * 400), many)[1]
    assert of.between_cv == pytest.approx(of.expected_cv, rel=0.1)
    assert of.interval_s == 0.5


def test_one_trial_has_no_variation_between_trials() -> None:
    assert find_variation(trials(0), {0: rates(*range(1, 31))})[0].between_cv is None


@pytest.mark.parametrize("few", [{0: rates(*[5] * 19)}, {0: rates(*[0] * 30)}])
def test_too_few_intervals_or_no_transactions_give_nothing(few: dict[int, TrialRates]) -> None:
    assert find_variation(trials(0), few) == {}


def test_a_trial_has_its_variation_and_the_ratio_of_its_rates() -> None:
    assert {key: value for key, _, value in values_of_trial(rates(10, 20, 30))} == pytest.approx(
        {"rate.cv": 50.0, "rate.max_to_min": 3.0}
    )
    assert [key for key, *_ in values_of_trial(rates(0, 20))] == ["rate.cv"]
    assert {key for key, *_ in values_of_trial(rates(10, 20, 30))} < {*VALUES.keys}
    assert not list(values_of_trial(rates(0, 0))) and not list(values_of_trial(rates(7)))
