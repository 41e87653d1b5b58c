"""Division of a drive among nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import UsageError
from pgdyno.features.cluster.ray import ClockOffset, measure_offset
from pgdyno.features.drivers.group import split, threads_by_node

SPECIFICATION = {"targets": [{"name": "a"}, {"name": "b", "clients": 9}], "clients": 12, "threads": None}


@given(
    st.lists(st.integers(1, 128), min_size=2, max_size=20),
    st.integers(20, 2000),
    st.none() | st.integers(20, 200),
)
def test_every_thread_belongs_to_one_node(cores: list[int], clients: int, threads: int | None) -> None:
    threads = threads and min(threads, clients)
    parts = split({**SPECIFICATION, "targets": [{}], "clients": clients, "threads": threads}, cores)
    numbers = [part["part"]["first_thread"] + i for part in parts for i in range(part["part"]["threads"])]
    assert numbers == list(range(parts[0]["threads"]))
    assert all(part["part"]["threads"] >= 1 for part in parts)
    assert len({part["threads"] for part in parts}) == 1


def test_a_single_engine_agrees_on_nothing() -> None:
    (whole,) = split(SPECIFICATION, [8])
    assert whole == {**SPECIFICATION, "threads": 4}


def test_threads_are_shared_in_proportion_to_the_cores() -> None:
    assert threads_by_node(None, 1000, [8, 8, 16]) == [4, 4, 8]
    assert threads_by_node(4, 1000, [8, 8]) == [2, 2]
    assert threads_by_node(None, 3, [8, 8]) == [2, 1], "no more threads than clients"


def test_the_arm_with_the_fewest_clients_limits_the_threads() -> None:
    assert split(SPECIFICATION, [64])[0]["threads"] == 9


def test_too_few_clients_and_different_threads_are_refused() -> None:
    with pytest.raises(UsageError, match="use fewer drivers, or more clients"):
        threads_by_node(None, 2, [1, 1, 1])
    with pytest.raises(UsageError, match="at least 2 threads"):
        threads_by_node(1, 10, [1, 1])
    with pytest.raises(UsageError, match="the same number of threads"):
        split({"targets": [{"threads": 1}, {"threads": 2}], "clients": 2, "threads": None}, [1])


def test_the_shortest_round_trip_gives_the_offset() -> None:
    # The clock of the node is 1000 ahead. The second answer takes 20, the others 400.
    instants = iter([0, 400, 1000, 1020, 2000, 2400])
    readings = iter([1000 + 50, 1000 + 1010, 1000 + 2300])
    found = measure_offset(lambda: next(readings), lambda: next(instants), rounds=3)
    assert found == ClockOffset(1000, 10)


def test_the_spread_has_the_drift_and_the_error() -> None:
    assert ClockOffset(5_000_000, 1_000_000).spread_s(ClockOffset(3_000_000, 2_000_000)) == pytest.approx(
        0.004
    )
