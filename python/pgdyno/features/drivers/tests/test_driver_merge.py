"""Division of a drive among nodes, and merge of events: the merge of parts is the event of the whole."""

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.errors import UsageError
from pgdyno.features.cluster.ray import ClockOffset, measure_offset
from pgdyno.features.drivers.group import (
    EventMerge,
    PartsDifferError,
    added,
    added_bins,
    histogram,
    packed,
    quantile_ns,
    split,
    threads_by_node,
)
from pgdyno.server.engine import DriveResult, Event

KINDS = ("payment", "select")
COUNTS = ("ok", "rolled_back", "failed", "skipped", "retried")
S = 1_000_000_000

samples = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 60 * S)), max_size=60)
seeds = st.integers(0, 2**32)


def bins_of(values: list[int]) -> list[list[int]]:
    return [[value, n] for value, n in sorted(Counter(values).items())]


def counts_of(found: list[tuple[str, int]]) -> dict[str, dict[str, int]]:
    ok = Counter(kind for kind, _ in found)
    return {kind: {**dict.fromkeys(COUNTS, 0), "ok": ok[kind]} for kind in KINDS}


PLACE = {"slice": 0, "target": 0, "role": "measure"}


def result_of(found: list[tuple[str, int]]) -> Event:
    """Return the result of an engine with these latencies."""
    counts, n = counts_of(found), len(found)
    kinds = {
        kind: {
            "counts": counts[kind],
            "failures": {"40001": n} if found else {},
            "histograms": {"latency": bins_of([ns for of, ns in found if of == kind]), "lag": []},
        }
        for kind in KINDS
    }
    constants = {"c_last": 7} if found else None
    tally = {"drawn": {"payment": n}, "c_id": [n, 1], "nurand_c": constants}
    target = {"kinds": kinds, "totals": counts, "counters": {"new_orders": n}, "tally": tally}
    used = {"cpu_ns": {"user": 10 * n, "system": 1}, "memory_peak_bytes": 5}
    driver = {**used, "wake_late_ns": {"p50": 1, "p99": n, "max": n}, "threads": 1, "io": "epoll"}
    ended = {"stopped": "done", "lost": None, "unfinished": [], "left_out": []}
    return {"event": "result", **ended, "targets": [{**target, "connections_lost": 0}], "driver": driver}


def slice_of(found: list[tuple[str, int]], drained_ns: int) -> Event:
    times = {"opened_ns": 0, "counted_from_ns": 0, "closed_ns": 3 * S, "drained_ns": drained_ns, "swap_ns": 0}
    done = {"kinds": counts_of(found), "driver_cpu_ns": {"user": 1, "system": 1}, "abandoned": 0}
    return {"event": "slice", **PLACE, **times, **done, "ended_by": "time"}


def intervals_of(found: list[tuple[str, int]], late_ns: int, skipped: int | None) -> list[Event]:
    """Return the intervals of a slice of 3 s, reported late. Number ``skipped`` is part of the next."""
    events, from_ns, rest = list[Event](), 0, list[tuple[str, int]]()
    for number in range(3):
        rest += found[number::3]
        if number == skipped:
            continue
        times = {"from_ns": from_ns, "to_ns": (number + 1) * S + late_ns}
        done = {"kinds": counts_of(rest), "latency_bins": bins_of([ns for _, ns in rest]), "latency_ns": {}}
        events.append({"event": "interval", **PLACE, **times, **done})
        from_ns, rest = times["to_ns"], []
    return events


def dealt(found: list[tuple[str, int]], n: int, seed: int) -> list[list[tuple[str, int]]]:
    rng = random.Random(seed)
    parts: list[list[tuple[str, int]]] = [[] for _ in range(n)]
    for one in found:
        parts[rng.randrange(n)].append(one)
    return parts


def merged(streams: list[list[Event]], seed: int) -> list[Event]:
    """Merge streams that arrive in a random order."""
    merge = EventMerge(len(streams), [0] * len(streams), 0, 1.0)
    merge.opens(0, 0, 3.0)
    rng, waiting = random.Random(seed), {i: list(stream) for i, stream in enumerate(streams)}
    events = []
    while left := [i for i, stream in waiting.items() if stream]:
        engine = rng.choice(left)
        events += merge.add(engine, packed(waiting[engine].pop(0)))
    return events


@settings(max_examples=50)
@given(samples, st.integers(1, 5), seeds)
def test_the_merge_of_parts_is_the_result_of_the_whole(
    found: list[tuple[str, int]], n: int, seed: int
) -> None:
    parts = dealt(found, n, seed)
    events = merged([[slice_of(part, 3 * S), result_of(part)] for part in parts], seed)
    whole = result_of(found)
    [result] = [event for event in events if event["event"] == "result"]
    for key in ("totals", "counters", "connections_lost"):
        assert result["targets"][0][key] == whole["targets"][0][key]
    for kind in KINDS:
        mine, theirs = (of["targets"][0]["kinds"][kind] for of in (result, whole))
        assert mine["counts"] == theirs["counts"]
        assert mine["histograms"] == theirs["histograms"]
        assert mine["failures"] == theirs["failures"]
    assert result["targets"][0]["tally"]["drawn"] == {"payment": len(found)}
    constants = whole["targets"][0]["tally"]["nurand_c"]
    assert result["targets"][0]["tally"]["nurand_c"] == constants, "a constant, not a count"
    assert result["driver"]["cpu_ns"]["user"] == whole["driver"]["cpu_ns"]["user"]
    assert result["driver"]["wake_late_ns"]["max"] == max(map(len, parts)), "that of the worst node"
    assert DriveResult.of(result).stopped == "done"


@settings(max_examples=50)
@given(
    samples,
    st.integers(2, 4),
    seeds,
    st.lists(st.tuples(st.integers(0, 50_000_000), st.none() | st.integers(0, 1)), min_size=4, max_size=4),
)
def test_merged_intervals_are_contiguous_and_lose_nothing(
    found: list[tuple[str, int]], n: int, seed: int, faults: list[tuple[int, int | None]]
) -> None:
    parts = dealt(found, n, seed)
    streams = [
        [*intervals_of(part, late, skipped), slice_of(part, 3 * S + late)]
        for part, (late, skipped) in zip(parts, faults, strict=False)
    ]
    events = merged(streams, seed)
    assert [event["event"] for event in events][-1] == "slice", "intervals precede their slice"
    intervals = [event for event in events if event["event"] == "interval"]
    assert added([event["kinds"] for event in intervals]) == counts_of(found)
    assert intervals[0]["from_ns"] == 0
    for one, other in itertools.pairwise(intervals):
        assert one["to_ns"] == other["from_ns"]
    skipped_by_any = {skipped for _, skipped in faults[:n]} - {None}
    assert len(intervals) == 3 - len(skipped_by_any)
    assert events[-1]["drained_ns"] == 3 * S + max(late for late, _ in faults[:n])


def test_an_engine_that_reports_an_instant_twice_does_not_stand_for_another() -> None:
    found = [("select", 5)]

    def intervals(*ends_ns: int) -> list[Event]:
        [first, *_] = intervals_of(found, 0, None)
        pairs = itertools.pairwise([0, *ends_ns])
        return [{**first, "kinds": counts_of(found), "from_ns": a, "to_ns": b} for a, b in pairs]

    merge = EventMerge(2, [0, 0], 0, 1.0)
    merge.opens(0, 0, 3.0)
    twice, other = intervals(S * 6 // 10, S * 14 // 10, 2 * S), intervals(S, 2 * S)
    assert [merge.add(0, packed(event)) for event in twice] == [[], [], []]
    [one], [two] = [merge.add(1, packed(event)) for event in other]
    assert [event["kinds"]["select"]["ok"] for event in (one, two)] == [3, 2]
    assert (one["to_ns"], two["from_ns"], two["to_ns"]) == (S * 12 // 10, S * 12 // 10, 2 * S)


@given(
    st.lists(st.lists(st.integers(1, 10**6), min_size=1), min_size=1, max_size=4),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_a_quantile_of_added_histograms_is_that_of_all_values_and_of_nothing_0(
    values: list[list[int]], quantile: float
) -> None:
    assert quantile_ns(added_bins([histogram([]), histogram([])]), 0.5) == 0
    every = sorted(itertools.chain(*values))
    bins = added_bins(histogram(bins_of(part)) for part in values)
    assert bins.tolist() == bins_of(list(itertools.chain(*values)))
    reached = quantile_ns(bins, quantile)
    assert sum(one <= reached for one in every) >= quantile * len(every)
    assert sum(one < reached for one in every) < max(quantile * len(every), 1)


def test_instants_are_moved_to_the_time_base_of_the_run() -> None:
    merge = EventMerge(2, [100, -100], 0, 1.0)
    merge.opens(0, 200, 3.0)
    one = {**slice_of([], 3 * S), "opened_ns": 100}
    other = {**slice_of([], 3 * S), "opened_ns": 300}
    assert merge.add(0, one) == []
    [event] = merge.add(1, other)
    assert (event["opened_ns"], event["drained_ns"]) == (200, 3 * S + 100)


def test_slices_that_opened_at_different_instants_are_refused() -> None:
    with pytest.raises(PartsDifferError, match="opened_ns"):
        merged([[slice_of([], 3 * S)], [{**slice_of([], 3 * S), "opened_ns": 1}]], 1)


def test_a_result_that_is_not_the_sum_of_its_slices_is_refused() -> None:
    with pytest.raises(PartsDifferError, match="add up"):
        merged([[slice_of([("select", 5)], 3 * S), result_of([])]], 1)


def test_the_barrier_adds_the_totals_and_the_worst_connection_counts() -> None:
    def barrier(n: int) -> dict[str, Any]:
        totals = [{"transactions": n, "counters": {"new_orders": n}}]
        return {"event": "barrier", "name": "measure", "at_ns": n, "totals": totals}

    [event] = merged([[barrier(3)], [barrier(4)]], 1)
    assert (event["totals"], event["at_ns"]) == ([{"transactions": 7, "counters": {"new_orders": 7}}], 4)

    def connected(p50: int) -> dict[str, Any]:
        round_trip = {"p50": p50, "p99": 9}
        common = {"event": "connected", "target": 0, "server_version": "18", "round_trip_ns": round_trip}
        return {**common, "clients": 2, "connect_s": 0.1}

    [event] = merged([[connected(5)], [connected(6)]], 1)
    assert (event["clients"], event["round_trip_ns"]["p50"]) == (4, 6)


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


def test_threads_are_shared_in_proportion_to_the_cores() -> None:
    assert threads_by_node(None, 1000, [8, 8, 16]) == [4, 4, 8]
    assert threads_by_node(4, 1000, [8, 8]) == [2, 2]
    assert threads_by_node(None, 3, [8, 8]) == [2, 1], "no more threads than clients"
    assert split(SPECIFICATION, [8]) == [{**SPECIFICATION, "threads": 4}], "a single engine has no part"
    assert split(SPECIFICATION, [64])[0]["threads"] == 9, "the clients of the smallest arm"


def test_too_few_clients_and_different_threads_are_refused() -> None:
    with pytest.raises(UsageError, match="use fewer drivers, or more clients"):
        threads_by_node(None, 2, [1, 1, 1])
    with pytest.raises(UsageError, match="at least 2 threads"):
        threads_by_node(1, 10, [1, 1])
    with pytest.raises(UsageError, match="the same number of threads"):
        split({"targets": [{"threads": 1}, {"threads": 2}], "clients": 2, "threads": None}, [1])


def test_the_shortest_round_trip_gives_the_offset_and_the_spread_has_drift_and_error() -> None:
    # The clock of the node is 1000 ahead. The second answer takes 20, the others 400.
    instants = iter([0, 400, 1000, 1020, 2000, 2400])
    readings = iter([1000 + 50, 1000 + 1010, 1000 + 2300])
    found = measure_offset(lambda: next(readings), lambda: next(instants), rounds=3)
    assert found == ClockOffset(1000, 10)
    later = ClockOffset(3_000_000, 2_000_000)
    assert ClockOffset(5_000_000, 1_000_000).spread_s(later) == pytest.approx(0.004)
