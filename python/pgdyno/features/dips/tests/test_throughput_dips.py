"""Throughput dips: found if present, rarely in noise, and attributed to coincident events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_trials import trial
from report_forms import report_of
from synthetic_study import Synthetic
from synthetic_telemetry import MIB

from pgdyno.features.dips.findings import (
    EVENTS,
    POINTS_MIN,
    ArmDips,
    Dip,
    Event,
    Events,
    TrialRates,
    chances_of_coincidences,
    events_of,
    find_dips,
    merge_adjacent,
    overlapped,
    overlapping_events,
    rates_of,
    with_other_arms,
)
from pgdyno.results.records import Executed, SampleSeries, TrialStatus


def rates(per_s: Sequence[float], gap_s: float = 0.0) -> TrialRates:
    """Rates in intervals of 1 s, with the other arm's slices in between."""
    from_s = np.arange(len(per_s)) * (1.0 + gap_s)
    return TrialRates(from_s, from_s + 1.0, np.array(per_s, dtype=float))


def dips_of(per_s: Sequence[float], events: Events | None = None, gap_s: float = 0.0) -> ArmDips:
    found = find_dips([trial(0, 0, 100.0)], {0: rates(per_s, gap_s)}, {0: events or {}})
    return found[0]


def noise(rng: np.random.Generator, n: int, kind: str, sd: float = 0.04) -> np.ndarray:
    """Stationary noise around 1000 per second."""
    match kind:
        case "normal":
            x = rng.normal(0, 1, n)
        case "heavy":
            x = rng.standard_t(5, n) / np.sqrt(5 / 3)
        case _:  # autocorrelated: 0.7 from one second to the next
            x = np.zeros(n + 50)
            steps = rng.normal(0, np.sqrt(1 - 0.49), n + 50)
            for i in range(1, n + 50):
                x[i] = 0.7 * x[i - 1] + steps[i]
            x = x[50:]
    return 1000.0 * (1 + sd * x)


@pytest.mark.parametrize(
    ("kind", "per_point"), [("normal", 1e-4), ("autocorrelated", 1e-4), ("heavy", 2.5e-3)]
)
def test_stationary_noise_has_hardly_a_dip(kind: str, per_point: float) -> None:
    """False alarms in 500 windows of one minute: within the binomial bound of the nominal rate."""
    rng = np.random.default_rng(11)
    alarms = sum(len(dips_of(noise(rng, 60, kind)).dips) for _ in range(500))
    assert alarms <= scipy.stats.binom.ppf(0.995, 500 * 60, per_point)


@pytest.mark.parametrize("n", [60, 600])
def test_a_simulated_dip_is_found_with_its_cost(n: int) -> None:
    per_s = noise(np.random.default_rng(12), n, "normal", sd=0.01)
    per_s[30:33] *= 0.5
    (dip,) = dips_of(per_s).dips
    assert (dip.from_s, dip.to_s, dip.points) == (30.0, 33.0, 3)
    assert dip.depth == pytest.approx(0.5, abs=0.02)
    assert dip.lost == pytest.approx(1500, abs=60)
    found = dips_of(per_s)
    assert found.share_of_time(found.dips) == pytest.approx(3 / n)
    assert found.share_of_transactions(found.dips) == pytest.approx(dip.lost / float(np.sum(per_s)))


def test_a_stall_is_found_despite_noise() -> None:
    per_s = noise(np.random.default_rng(16), 60, "normal", sd=0.25)
    per_s[30] = 10.0
    assert [dip.from_s for dip in dips_of(per_s).dips] == [30.0]


@pytest.mark.parametrize(
    ("low", "gap_s", "found"),
    [
        ([10, 11], 0.0, [(10.0, 12.0)]),
        ([10, 11], 1.0, [(20.0, 21.0), (22.0, 23.0)]),  # of slices apart
        ([0, 38, 39], 0.0, [(0.0, 1.0), (38.0, 40.0)]),  # at either end
    ],
)
def test_consecutive_low_points_are_one_dip(
    low: list[int], gap_s: float, found: list[tuple[float, float]]
) -> None:
    per_s = np.array([1000.0 + i % 7 for i in range(40)])
    per_s[low] = 300.0
    assert [(dip.from_s, dip.to_s) for dip in dips_of(per_s.tolist(), gap_s=gap_s).dips] == found


def test_a_slow_drift_of_a_long_window_is_not_a_dip() -> None:
    n = 1200
    per_s = np.linspace(1000, 400, n) * noise(np.random.default_rng(13), n, "normal", sd=0.01) / 1000
    per_s[900] *= 0.5
    assert [dip.from_s for dip in dips_of(per_s).dips] == [900.0]


def test_too_few_points_give_no_result() -> None:
    assert find_dips([trial(0, 0, 9.0)], {0: rates([1000.0] * (POINTS_MIN - 1))}, {0: {}}) == {}


def with_dips(at: Sequence[int], n: int = 120) -> np.ndarray:
    per_s = noise(np.random.default_rng(14), n, "normal", sd=0.01)
    per_s[list(at)] *= 0.5
    return per_s


def spans(*of: tuple[float, float]) -> np.ndarray:
    return np.array(of, dtype=float).reshape(len(of), 2)


def test_an_event_that_meets_the_dips_is_their_cause_and_the_others_stay_unexplained() -> None:
    events = {Event.CHECKPOINT: spans((30.2, 31.0), (60.0, 62.0)), Event.AUTOVACUUM: spans((0.0, 119.0))}
    found = dips_of(with_dips([30, 61, 90]), events)
    assert [(dip.from_s, list(dip.causes)) for dip in found.dips] == [
        (30.0, [Event.CHECKPOINT]),
        (61.0, [Event.CHECKPOINT]),
        (90.0, []),
    ]
    by_event = {one.event: one for one in found.coincidences}
    # Autovacuum ran all the time, so its coincidence with every dip is no evidence.
    assert by_event[Event.AUTOVACUUM].dips == 3
    assert not by_event[Event.AUTOVACUUM].is_cause
    # Including the second before it, a dip at 30, 31, 60, 61 or 62 would coincide with a checkpoint.
    assert by_event[Event.CHECKPOINT].expected == pytest.approx(3 * 5 / 120)
    assert [(event, len(dips)) for event, _, dips in found.groups] == [(Event.CHECKPOINT, 2), (None, 1)]


def test_an_event_within_the_second_before_a_dip_coincides_with_it_unless_time_is_interrupted() -> None:
    of = TrialRates(np.array([0.0, 1.0, 2.0, 9.0]), np.array([1.0, 2.0, 3.0, 10.0]), np.full(4, 100.0))
    events = {Event.CHECKPOINT: spans((0.3, 0.5), (2.3, 2.5))}
    dips = [Dip(0, first, 1, of.from_s[first], of.to_s[first], 0.9, 90.0) for first in range(4)]
    assert [overlapping_events(dip, of, events) != [] for dip in dips] == [True, True, True, False]


def test_events_at_random_are_called_causes_in_no_more_than_five_of_a_hundred_studies() -> None:
    rng = np.random.default_rng(15)
    called = 0
    for _ in range(300):
        per_s = with_dips(sorted(rng.choice(118, 4, replace=False)))
        begins = sorted(rng.choice(118, 6, replace=False).astype(float))
        events = {Event.WAL_SEGMENT: merge_adjacent(spans(*((b, b + 1.0) for b in begins)))}
        called += any(one.is_cause for one in dips_of(per_s, events).coincidences)
    assert called <= scipy.stats.binom.ppf(0.995, 300, 0.05)


def test_the_work_of_a_concurrent_server_belongs_to_another_arm() -> None:
    trials = [trial(0, 0, 100.0), trial(0, 1, 100.0), trial(1, 1, 100.0)]
    others: Mapping[int, Events] = {1: {Event.CHECKPOINT: spans((30.0, 31.0))}, 11: {}}
    of = {0: rates(with_dips([30])), 1: rates(with_dips([])), 11: rates(with_dips([50]))}
    found = find_dips(trials, of, others)
    assert [list(dip.causes) for dip in found[0].dips] == [[Event.OTHER_ARM]]
    assert [list(dip.causes) for dip in found[1].dips] == [[]]  # of another block
    found = find_dips([replace(trials[1], status=TrialStatus.EXCLUDED), trials[0]], of, others)
    assert list(found) == [0]
    assert [list(dip.causes) for dip in found[0].dips] == [[Event.OTHER_ARM]]


def test_a_trial_that_does_not_count_has_events() -> None:
    excluded = {(0, 1): TrialStatus.EXCLUDED}
    findings = report_of(Synthetic(blocks=2, probed=True, statuses=excluded)).findings.first
    events = with_other_arms(findings.trials, findings.telemetry.of_series[EVENTS.name])
    # The server of each arm starts a checkpoint.
    assert [Event.OTHER_ARM in events[trial.trial] for trial in findings.trials] == [True] * 4
    assert len(findings.telemetry.by_trial) == 3


def test_as_many_peaks_as_dips_indicate_noise() -> None:
    per_s = with_dips([20, 50])
    per_s[[70, 80, 81]] *= 1.6
    assert dips_of(per_s).peaks == 2


def test_the_chances_of_coincidences_are_those_of_all_rotations() -> None:
    """Two trials of 10 points: one with dips at 2 and 5, one with a dip at 7."""
    of = {trial: rates([1000.0] * 10) for trial in (0, 1)}
    dips = [Dip(trial, at, 1, float(at), at + 1.0, 0.5, 500.0) for trial, at in ((0, 2), (0, 5), (1, 7))]
    events: dict[int, Events] = {trial: {Event.LOCKS: spans((2.5, 3.0), (6.5, 7.0))} for trial in (0, 1)}
    met = [{2, 3, 6, 7} & {(dip + s) % 10 for dip in own} for own in ((2, 5), (7,)) for s in range(10)]
    ways = [len(one) + len(other) for one in met[:10] for other in met[10:]]
    expected = np.bincount(ways, minlength=4) / len(ways)
    assert chances_of_coincidences(Event.LOCKS, dips, of, events) == pytest.approx(expected, abs=1e-12)


# Dips apart are long: those in clusters are attributed more often.
@pytest.mark.parametrize("arranged", [pytest.param("apart", marks=pytest.mark.long), "clustered"])
def test_independent_dips_and_events_are_rarely_attributed(arranged: str) -> None:
    """Treated as independent, clustered dips had a false cause in 9 to 15 of 100 studies."""
    rng = np.random.default_rng(16)
    called, studies, n = 0, 300, 60
    for _ in range(studies):
        of, happened = {}, {}
        for block in range(4):
            begin = int(rng.integers(n))
            at = (
                rng.choice(n, 4, replace=False)
                if arranged == "apart"
                else (begin + np.array([0, 2, 4, 6])) % n
            )
            busy = int(rng.integers(n - 10))
            of[block] = rates(noise(rng, n, "normal", sd=0.01) * np.where(np.isin(np.arange(n), at), 0.5, 1))
            happened[block] = {Event.CHECKPOINT: spans((busy + 0.2, busy + 9.8))}
        trials = [replace(trial(block, 0, 100.0), trial=block) for block in of]
        found = find_dips(trials, of, happened)[0]
        called += any(one.is_cause for one in found.coincidences)
    assert called <= scipy.stats.binom.ppf(0.999, studies, 0.05)


def test_warm_up_and_truncated_intervals_are_not_points() -> None:
    measured, n = [False, True, True, True], [900, 1000, 1100, 2]
    of = (measured, [0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 3.1], n)
    found = rates_of(Executed(*map(np.array, of)))
    assert found.per_s.tolist() == [1000.0, 1100.0]


def series(probe: str, **columns: Sequence[float]) -> SampleSeries:
    n = len(next(iter(columns.values())))
    points = [np.arange(n, dtype=float), np.zeros(n), *columns.values()]
    return SampleSeries(probe, ("at_s", "late_s", *columns), np.array(points, dtype=float).T)


def spans_of(series: dict[str, SampleSeries], *others: SampleSeries) -> dict[Event, list[list[float]]]:
    """Return the events of a trial with eight clients."""
    return {event: of.tolist() for event, of in events_of(series, {}, 8, others).items()}


def test_events_of_a_server_lie_between_the_samples_that_show_them() -> None:
    server = series(
        "server",
        num_timed=[1, 1, 2, 2, 2, 2],
        num_requested=[0] * 6,
        buffers_written=[5, 5, 5, 8, 9, 9],
        autovacuum_workers=[0, 0, 0, 0, 0, 1],
        lsn_bytes=[15 * MIB, 15.5 * MIB, 16.5 * MIB, 17 * MIB, 18 * MIB, 19 * MIB],
    )
    assert spans_of({"server": server}) == {
        Event.CHECKPOINT: [[1.0, 4.0]],
        Event.AUTOVACUUM: [[4.0, 5.0]],
        Event.WAL_SEGMENT: [[1.0, 2.0]],
    }
    segments = events_of({"server": server}, {"wal_segment_size": "1MB"}, 8)[Event.WAL_SEGMENT]
    assert segments.tolist() == [[1.0, 5.0]]


def test_half_of_the_clients_in_locks_is_an_event() -> None:
    columns = {"samples": [1.0] * 5, "Lock/relation": [0.0, 3.0, 4.0, 8.0, 0.0]}
    points = np.array([np.arange(5.0), np.zeros(5), *columns.values()]).T
    waits = SampleSeries("waits", ("at_s", "late_s", *columns), points)
    assert spans_of({"waits": waits})[Event.LOCKS] == [[1.0, 3.0]]


def test_only_unusual_shares_of_a_machine_are_events() -> None:
    n = 30
    steal = np.cumsum([0.02] * 14 + [0.5] + [0.02] * 15)
    counters = {
        "cpu_busy_s": np.cumsum(np.full(n, 1.2)) + steal,
        "cpu_idle_s": np.cumsum(np.full(n, 0.8)),
        "cpu_steal_s": steal,
        "server_cpu_s": np.cumsum([0.8] * 20 + [0.2] + [0.8] * 9),
        "driver_cpu_s": np.cumsum(np.full(n, 0.3)),
        **dict.fromkeys(("cpu_iowait_s", "swap_in_bytes", "swap_out_bytes"), np.zeros(n)),
    }
    found = spans_of({"host": series("host", **counters)})
    assert found == {Event.STEAL: [[13.0, 14.0]], Event.OTHER_LOAD: [[19.0, 20.0]]}


def machine(own: Sequence[float], other: Sequence[float], foreign: Sequence[float]) -> list[SampleSeries]:
    """Series of the machine in two trials that take turns: each has the CPU time of its own server."""
    n = len(own)
    busy = np.cumsum(np.add(np.add(own, other), foreign))
    unused = dict.fromkeys(("cpu_iowait_s", "cpu_steal_s", "driver_cpu_s"), np.zeros(n))
    times = {"cpu_busy_s": busy, "cpu_idle_s": 2.0 * np.arange(n) - busy, **unused}
    return [series("host", **times, server_cpu_s=np.cumsum(of)) for of in (own, other)]


def test_the_load_of_another_process_is_an_event_and_that_of_the_other_server_is_not() -> None:
    turns = np.array([0.9, 0.0] * 15)
    rise = [0.2] * 14 + [0.9] * 2 + [0.2] * 14
    one, other = machine([0.5] * 30, rise, [0.1] * 30)
    assert spans_of({"host": one}, other) == {}
    foreign = [0.05] * 14 + [0.6] + [0.05] * 15
    one, other = machine(turns.tolist(), (0.9 - turns).tolist(), foreign)
    assert spans_of({"host": one}, other) == {Event.OTHER_LOAD: [[13.0, 14.0]]}


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), max_size=8),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1, max_size=8),
)
@settings(max_examples=80, deadline=None)
def test_overlapping_slices_have_common_time(
    of: list[tuple[int, int]], places: list[tuple[int, int]]
) -> None:
    every = sorted((float(begin), float(begin + length)) for begin, length in of)
    ends = np.maximum.accumulate([end for _, end in every]) if every else np.array([])
    merged = merge_adjacent(
        spans(*((begin, float(end)) for (begin, _), end in zip(every, ends, strict=True)))
    )
    found = overlapped(
        merged, np.array([float(b) for b, _ in places]), np.array([float(b + length) for b, length in places])
    )
    for (begin, length), is_met in zip(places, found, strict=True):
        assert is_met == any(min(end, begin + length) > max(from_s, begin) for from_s, end in every)
