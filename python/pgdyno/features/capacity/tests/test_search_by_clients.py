"""Capacity search by clients, with simulated servers of known latency, and its curve."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from pgdyno.analysis.statistics.intervals import Method
from pgdyno.features.capacity.clients import (
    ArmClients,
    ClientCapacity,
    arm_clients,
    clients_sentence,
    curve_charts,
)
from pgdyno.features.capacity.search import (
    STEP_S_MAX,
    STEPS_MAX,
    expected_per_s,
    expected_search_s,
    next_clients,
    rate_min,
    step_s,
    warm_up_s,
)
from pgdyno.results.records import CapacitySearch
from pgdyno.study.values import RESOLUTION, LatencyLimit, SearchStep, bracket, capacity

LIMIT = LatencyLimit(0.99, 0.02)
LIMIT_MS = 20.0
ALONE_PER_S = 500.0

Latency = Callable[[int], float]


def machine(ms_per_client: float) -> Latency:
    """Return the 99th percentile of a closed loop: 2 ms of one client, or its share of a busy server."""
    return lambda clients: max(2.0, ms_per_client * clients)


def noisy(of: Latency, rng: np.random.Generator, sd: float) -> Latency:
    return lambda clients: of(clients) * math.exp(rng.normal(0, sd))


def search(latency_ms: Latency, clients_max: int = 128, one_per_s: float = ALONE_PER_S) -> list[SearchStep]:
    tried: list[SearchStep] = []
    while (clients := next_clients(tried, LIMIT, one_per_s, clients_max)) is not None:
        tried.append(SearchStep(one_per_s * min(clients, 4), latency_ms(clients), clients))
    return tried


@pytest.mark.parametrize("ms_per_client", [9.0, 3.0, 1.31, 0.4, 0.21])
def test_it_finds_the_clients_at_which_the_latency_reaches_the_limit(ms_per_client: float) -> None:
    tried = search(machine(ms_per_client))
    truth = LIMIT_MS / ms_per_client
    found = capacity(tried, LIMIT)
    # Interpolation is exact where the latency is a power of the clients on both sides.
    assert found == pytest.approx(truth, rel=0.02) and len(tried) <= STEPS_MAX
    low, high = bracket(tried, LIMIT)
    assert low.clients <= truth <= high.clients <= max(low.clients + 1, RESOLUTION * low.clients)
    assert [sum(of.clients == end.clients for of in tried) >= 2 for end in (low, high)] == [True, True]


def test_the_numbers_are_doubled_up_to_the_maximum_so_that_blocks_have_them_in_common() -> None:
    assert [of.clients for of in search(lambda _: 1.0, 100)] == [1, 2, 4, 8, 16, 32, 64, 100]
    few = [of.clients for of in search(machine(1.0))]
    assert few[:6] == [1, 2, 4, 8, 16, 32]


def test_a_limit_that_one_client_misses_ends_after_a_repetition() -> None:
    tried = search(lambda _: 30.0)
    assert [of.clients for of in tried] == [1, 1] and capacity(tried, LIMIT) is None


def test_a_single_stall_does_not_end_the_search() -> None:
    for stalled in range(7):
        calls = iter(range(1000))
        tried = search(lambda n, stalled=stalled, calls=calls: 500.0 if next(calls) == stalled else 1.3 * n)
        # A stall at an end of the bracket moves the interpolation, but not the bracket.
        assert capacity(tried, LIMIT) == pytest.approx(LIMIT_MS / 1.3, rel=RESOLUTION - 1)


def test_it_begins_with_the_fewest_clients_that_complete_enough_transactions() -> None:
    slow = rate_min(LIMIT) / 3  # three clients complete them, so four are the first power of two
    assert search(machine(0.4), one_per_s=slow)[0].clients == 4
    assert search(machine(0.4), 3, one_per_s=slow) == []


def test_a_step_expects_the_throughput_of_the_nearest_number_of_clients() -> None:
    tried = [SearchStep(100.0, 1.0, 1), SearchStep(180.0, 1.0, 2), SearchStep(240.0, 1.0, 4)]
    assert expected_per_s([], 2, 100.0) == 200.0
    assert expected_per_s(tried, 8, 100.0) == 240.0
    assert expected_per_s(tried, 3, 100.0) == pytest.approx(180.0)  # of four, three of which drive
    assert warm_up_s(8, 240.0, 0.05) == pytest.approx(0.05 + 80 / 240)


def test_a_step_after_a_collapse_of_the_throughput_has_the_maximum_length() -> None:
    expected = expected_per_s([SearchStep(5.0, math.inf, 8)], 4, ALONE_PER_S)
    assert expected == 2.5
    assert step_s(expected, LIMIT, 0.5, 0.05) == pytest.approx(STEP_S_MAX + 0.05)


def test_the_forecast_grows_with_the_maximum_number_of_clients() -> None:
    few, many = (expected_search_s(LIMIT, 0.5, 0.05, 1000.0, n) for n in (8, 128))
    assert 10 < few < many < 120
    assert many != expected_search_s(LIMIT, 0.5, 0.05, 1000.0)


def test_with_noise_the_ratio_of_two_servers_is_without_bias() -> None:
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(400):
        one, other = (capacity(search(noisy(machine(ms), rng, 0.2)), LIMIT) for ms in (0.8, 0.64))
        ratios.append(math.log(other / one))
    error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    assert abs(float(np.mean(ratios)) - math.log(0.8 / 0.64)) < stats.norm.ppf(1 - 1e-4) * error + 0.005
    assert error < 0.02


def test_variable_latency_changes_the_capacity_of_an_arm_by_little() -> None:
    """Noise raises the capacity of every arm: by 0.4% with an SD of 10% per step, by 1.5% with 20%."""
    rng = np.random.default_rng(4)
    for sd, most in ((0.1, 0.015), (0.2, 0.035)):
        logs = [math.log(capacity(search(noisy(machine(0.8), rng, sd)), LIMIT) or 1) for _ in range(400)]
        assert abs(float(np.mean(logs)) - math.log(LIMIT_MS / 0.8)) < most


def searches(
    of: Latency, blocks: int, sd: float, clients_max: int = 128, seed: int = 1
) -> dict[int, CapacitySearch]:
    rng = np.random.default_rng(seed)
    tried = {n: search(noisy(of, rng, sd), clients_max) for n in range(blocks)}
    return {n: CapacitySearch("p99 < 20ms", ALONE_PER_S, steps) for n, steps in tried.items()}


def arm(of: Latency, blocks: int = 6, sd: float = 0.1, clients_max: int = 128) -> ArmClients:
    found = searches(of, blocks, sd, clients_max)
    return arm_clients("18", found, LIMIT, clients_max, 0.95, Method.STUDENT)


def test_the_curve_has_the_numbers_of_all_blocks_with_their_means() -> None:
    found = arm(machine(0.8))
    assert found.capacity and found.capacity.unit == "clients" and found.capacity.n == 6
    assert [point.clients for point in found.points][:5] == [1, 2, 4, 8, 16]
    blocks = searches(machine(0.8), 6, 0.1).values()
    for point in found.points[:5]:
        logs = [
            math.log(np.median([of.latency_ms for of in block.steps if of.clients == point.clients]))
            for block in blocks
        ]
        assert point.throughput.value == pytest.approx(ALONE_PER_S * min(point.clients, 4))
        assert point.latency and point.latency.value == pytest.approx(math.exp(np.mean(logs)))
        half = stats.t.ppf(0.975, 5) * np.std(logs, ddof=1) / math.sqrt(6)
        assert point.latency.high == pytest.approx(math.exp(np.mean(logs) + half))


def test_a_number_that_some_block_did_not_try_is_not_in_the_curve() -> None:
    found = searches(machine(0.8), 2, 0.0)
    found[1] = CapacitySearch("p99 < 20ms", ALONE_PER_S, search(machine(3.0)))
    one = arm_clients("18", found, LIMIT, 128, 0.95, Method.STUDENT)
    assert [point.clients for point in one.points] == [1, 2, 4, 8]


def test_the_interval_of_a_capacity_holds_the_truth() -> None:
    """In at least 90% of 300 studies of six blocks: 95% less the bias of a search."""
    held = 0
    for seed in range(300):
        found = arm_clients(
            "18", searches(machine(0.8), 6, 0.1, seed=seed), LIMIT, 128, 0.95, Method.STUDENT
        ).capacity
        held += found.low < LIMIT_MS / 0.8 < found.high
    assert 270 <= held < 300


def test_a_bound_is_named_instead_of_an_estimate() -> None:
    whole = ClientCapacity(0.99, LIMIT_MS, [])
    high = arm(machine(0.1), clients_max=64)
    assert (high.capacity, high.kept_at_max, high.missed_at_fewest) == (None, 6, 0)
    assert "6 of 6 blocks meet" in clients_sentence(high, whole) and "64 clients" in clients_sentence(
        high, whole
    )
    low = arm(lambda _: 50.0)
    assert (low.capacity, low.kept_at_max, low.missed_at_fewest) == (None, 0, 6)
    assert "1 client," in clients_sentence(low, whole) and "looser limit" in clients_sentence(low, whole)


def test_one_block_without_an_end_leaves_no_estimate() -> None:
    found = searches(machine(0.8), 3, 0.1)
    found[2] = CapacitySearch("p99 < 20ms", ALONE_PER_S, search(lambda _: 1.0))
    one = arm_clients("18", found, LIMIT, 128, 0.95, Method.STUDENT)
    assert (one.capacity, one.kept_at_max, one.undecided) == (None, 1, 0)


def test_charts_have_the_throughput_and_the_latency_of_each_arm() -> None:
    panels = curve_charts(ClientCapacity(0.99, LIMIT_MS, [arm(machine(0.8)), arm(machine(0.6))]))
    assert len(panels) == 2 and all("18, 16 clients" in str(panel) for panel in panels)
    assert curve_charts(ClientCapacity(0.99, LIMIT_MS, [arm(lambda _: 50.0)])) == []
