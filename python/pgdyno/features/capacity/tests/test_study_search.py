"""Capacity search: the next rate, with simulated servers of known latency."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pgdyno.errors import UsageError
from pgdyno.features.capacity.run import _note_rate, step_text
from pgdyno.features.capacity.search import (
    START,
    STEP_S_MAX,
    STEPS_MAX,
    STEPS_USUAL,
    expected_search_s,
    next_rate,
    rate_min,
    step_s,
)
from pgdyno.study.values import RESOLUTION, LatencyLimit, SearchStep, bracket, capacity, parse_limit

LIMIT = LatencyLimit(0.99, 0.02)


def search(latency_ms: Callable[[float], float], closed_per_s: float = 1000.0) -> list[SearchStep]:
    tried: list[SearchStep] = []
    while (rate := next_rate(tried, LIMIT, closed_per_s)) is not None:
        tried.append(SearchStep(rate, latency_ms(rate)))
    return tried


def queue(per_s: float) -> Callable[[float], float]:
    """Return the 99th percentile of an M/M/1 queue in ms; infinite at full load."""
    return lambda rate: math.inf if rate >= per_s else 1e3 * math.log(100) / (per_s - rate)


@pytest.mark.parametrize(("closed_ns", "expected"), [(1_500_000_000, {1: 14.0}), (900_000_000, {})])
def test_a_step_that_is_interrupted_before_its_counted_part_has_no_rate(
    closed_ns: int, expected: dict[int, float]
) -> None:
    per_s: dict[int, float] = {}
    counts = {"ok": 7, "rolled_back": 0, "failed": 0, "skipped": 0, "retried": 0}
    event: dict[str, Any] = {"event": "slice", "slice": 0, "target": 1, "role": "measure"}
    times = {
        "opened_ns": 0,
        "counted_from_ns": 1_000_000_000,
        "closed_ns": closed_ns,
        "drained_ns": closed_ns,
    }
    driver = {"driver_cpu_ns": {"user": 1, "system": 1}}
    _note_rate(per_s, {**event, **times, **driver, "kinds": {"payment": counts}})
    assert per_s == expected


@pytest.mark.parametrize("per_s", [450, 1000, 1100, 4000])
def test_it_finds_the_rate_at_which_a_queue_reaches_the_limit(per_s: float) -> None:
    tried = search(queue(per_s))
    truth = per_s - math.log(100) / LIMIT.latency_s
    found = capacity(tried, LIMIT)
    assert found == pytest.approx(truth, rel=RESOLUTION - 1)
    assert tried[0].rate_per_s == START * 1000 and len(tried) <= STEPS_MAX
    low, high = bracket(tried, LIMIT)
    assert low and high and low.rate_per_s < truth < high.rate_per_s <= RESOLUTION * low.rate_per_s


@pytest.mark.parametrize("stall_ms", [500.0, math.inf])
def test_a_step_with_a_single_stall_is_repeated(stall_ms: float) -> None:
    calm, truth = queue(1000), 1000 - math.log(100) / LIMIT.latency_s
    for stalled in range(6):
        calls = 0

        def latency_ms(rate: float, stalled: int = stalled) -> float:
            nonlocal calls
            calls += 1
            return stall_ms if calls == stalled + 1 else calm(rate)

        tried = search(latency_ms)
        found = capacity(tried, LIMIT)
        assert found == pytest.approx(truth, rel=RESOLUTION - 1)
        assert stalled > 0 or tried[0].rate_per_s == tried[1].rate_per_s


def test_an_infinite_latency_beyond_the_rate_of_the_closed_loop_needs_no_second_step() -> None:
    assert next_rate([SearchStep(900.0, math.inf)], LIMIT, 1000.0) == 900.0
    beyond = next_rate([SearchStep(1500.0, math.inf)], LIMIT, 1000.0)
    assert beyond < 1500.0


def test_the_forecast_of_a_search_counts_the_transactions_that_a_percentile_needs() -> None:
    """1300 transactions for a percentile of 1%. 13,000 for one of 0.1% take ten times as long."""
    often, rare = (expected_search_s(LatencyLimit(q, 0.02), 0.5, 0.0, 1000.0) for q in (0.99, 0.999))
    assert often == pytest.approx(2 + STEPS_USUAL * 1300 / 700)
    assert rare == pytest.approx(2 + STEPS_USUAL * 13_000 / 700)
    assert expected_search_s(LIMIT, 0.5, 0.0, 1.0) == pytest.approx(2 + STEPS_USUAL * STEP_S_MAX)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("p99<20", "has no unit of time: write, for example, p99 < 20ms"),
        ("p99.99999 < 20ms", r"use a lower percentile, for example p99\.99"),
        ("p99.999999 < 1s", r"use a lower percentile, for example p99\.99"),
    ],
)
def test_a_limit_without_a_unit_or_with_too_many_transactions_is_rejected(text: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        parse_limit(text)
    assert parse_limit("p99.9999 < 20ms").transactions_min == 10_000_000


def test_a_limit_kept_or_missed_at_every_rate_ends_without_a_capacity() -> None:
    for latency_ms in (lambda _: 1.0, lambda _: 100.0, lambda _: math.inf):
        tried = search(latency_ms)
        assert capacity(tried, LIMIT) is None and 1 <= len(tried) <= STEPS_MAX
    assert min(step.rate_per_s for step in search(lambda _: math.inf)) >= rate_min(LIMIT)


def test_a_third_step_decides_where_two_disagree_and_the_median_counts() -> None:
    assert next_rate([SearchStep(700.0, 30.0)], LIMIT, 1000.0) == 700.0
    assert next_rate([SearchStep(700.0, 30.0), SearchStep(700.0, 10.0)], LIMIT, 1000.0) == 700.0
    missed = [SearchStep(700.0, 30.0), SearchStep(700.0, 10.0), SearchStep(700.0, 22.0)]
    assert bracket(missed, LIMIT) == (None, SearchStep(700.0, 22.0))
    lower = next_rate(missed, LIMIT, 1000.0)
    assert lower < 700.0
    kept = [*missed[:2], SearchStep(700.0, 11.0)]
    assert bracket(kept, LIMIT) == (SearchStep(700.0, 11.0), None)


def test_variable_latency_does_not_raise_the_capacity() -> None:
    """The better of two failed steps raised it by 4.3% with a log SD of 0.4."""
    rng = np.random.default_rng(2)

    def of_noise(sd: float) -> tuple[float, float]:
        calm = queue(1000)
        tries = (
            capacity(search(lambda rate: calm(rate) * math.exp(rng.normal(0, sd))), LIMIT) for _ in range(600)
        )
        logs = [math.log(found) for found in tries if found]
        return float(np.mean(logs)), float(np.std(logs, ddof=1)) / math.sqrt(len(logs))

    (steady, error), (variable, larger_error) = of_noise(0.02), of_noise(0.4)
    assert abs(variable - steady) < 0.005 + stats.norm.ppf(1 - 1e-4) * math.hypot(error, larger_error)


def test_both_ends_of_the_last_bracket_are_tried_twice() -> None:
    tried = search(queue(1000))
    ends = bracket(tried, LIMIT)
    assert [sum(step.rate_per_s == end.rate_per_s for step in tried) for end in ends if end] == [2, 2]


def test_a_step_lasts_until_its_percentile_can_be_estimated() -> None:
    assert step_s(10_000, LIMIT, 0.1, 0.05) == pytest.approx(0.4)  # twenty times the limit
    assert step_s(10_000, LIMIT, 2.0, 0.05) == 2.0
    assert step_s(100, LIMIT, 1.0, 0.05) == pytest.approx(13.05)  # 1000 transactions and a third more
    assert step_s(rate_min(LIMIT), LIMIT, 1.0, 0) == pytest.approx(STEP_S_MAX)


def test_with_noise_the_ratio_of_two_servers_is_without_bias() -> None:
    rng = np.random.default_rng(1)

    def noisy(of: Callable[[float], float]) -> Callable[[float], float]:
        return lambda rate: of(rate) * math.exp(rng.normal(0, 0.3))

    ratios = []
    for _ in range(300):
        one, other = (capacity(search(noisy(queue(per_s))), LIMIT) for per_s in (1000, 1220))
        ratios.append(math.log(other / one))
    truth = math.log((1220 - math.log(100) / LIMIT.latency_s) / (1000 - math.log(100) / LIMIT.latency_s))
    error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    assert abs(float(np.mean(ratios)) - truth) < stats.norm.ppf(1 - 1e-4) * error + 0.002


@pytest.mark.parametrize(
    ("tried", "text"),
    [
        ([], "18 at 1,200 tx/s"),
        ([SearchStep(960.0, 12.5)], "18 at 1,200 tx/s (last 960 tx/s: p99 12.5 ms)"),
        ([SearchStep(960.0, math.inf)], "18 at 1,200 tx/s (last 960 tx/s: p99 not met)"),
    ],
)
def test_a_step_is_shown_with_its_rate_and_the_latency_of_the_last_one(
    tried: list[SearchStep], text: str
) -> None:
    assert step_text("18", 1200.0, tried, "p99<20ms").replace("\u00a0", " ") == text
