"""Time breakdown: the parts add up to the total, in both arms and in their difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from measured_trials import ARMS, explained, noisy, trial
from synthetic_study import Synthetic, arms_of

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.statistics.intervals import Method, student
from pgdyno.analysis.telemetry.counters import Growth, Window
from pgdyno.analysis.telemetry.metrics import NEWEST, newest_name
from pgdyno.analysis.telemetry.samples import WORKER_TIMES
from pgdyno.analysis.telemetry.trial_telemetry import (
    CLIENT,
    WORKER_CPU,
    WORKER_RUNNABLE,
    ClientTime,
    Clocked,
    WaitSamples,
    client_time_of_trial,
    resource_of,
    statements,
    wait_samples,
)
from pgdyno.analysis.time_breakdown import (
    CPU,
    DRIVER,
    OUTSIDE,
    PLANNING,
    RUNNABLE,
    UNEXPLAINED,
    TimeBreakdown,
    Waterfall,
    break_down_time,
    consequences,
)
from pgdyno.report.why_section import share_of_difference, why_sentences
from pgdyno.results.records import SampleSeries, Slice
from pgdyno.study.schedule import Role
from pgdyno.units import Better, Estimate

CLIENTS, CONFIDENCE = 8, 0.95
CONFIDENCES = {1: CONFIDENCE}


def piece(from_s: float, to_s: float) -> Slice:
    return Slice(0, Role.MEASURE, from_s, from_s, to_s, to_s, 0.0, 0.0, {})


def us(waterfall: Waterfall | None) -> dict[str, tuple[float, float]]:
    return {part.key: (part.a_us, part.b_us) for part in waterfall.parts}


microseconds = st.floats(0, 20_000)
backends = st.floats(0, 4)
wait_samples_of = st.none() | st.builds(
    WaitSamples,
    st.fixed_dictionaries(
        {"running": backends, "lock": backends}, optional={"wal": backends, "client": backends}
    ),
    st.just(50.0),
)
client_times = st.builds(
    ClientTime,
    statements=st.none() | st.dictionaries(st.sampled_from("abcdefghijklmnop"), microseconds),
    others_us=microseconds,
    planning_us=st.none() | microseconds,
    on_cpu_us=st.none() | microseconds,
    runnable_us=st.none() | microseconds,
    driver_us=microseconds,
    wait_samples=wait_samples_of,
)
blocks_of = st.lists(
    st.tuples(st.floats(100, 10_000), st.floats(100, 10_000), client_times, client_times),
    min_size=1,
    max_size=6,
)


def waits_of(running: float) -> ClientTime:
    return ClientTime(
        on_cpu_us=0.0, driver_us=0.0, wait_samples=WaitSamples({"running": running, "lock": 0.0}, 50.0)
    )


@settings(max_examples=40)
@given(blocks_of)
@example([(100.0, 100.0, waits_of(0.0), waits_of(1e-9))])  # a residual of 1e-5 µs is no rounding error
@example([(800.0, 100.0, waits_of(0.0), waits_of(1e-9))])
def test_the_parts_add_up_to_the_total_and_to_its_difference_in_every_block(
    blocks: list[tuple[float, float, ClientTime, ClientTime]],
) -> None:
    found = explained([(a, b) for a, b, *_ in blocks], [(c, d) for *_, c, d in blocks])
    for waterfall in (found.by_statement, found.by_resource):
        if waterfall is None:
            continue
        total, parts = waterfall.total, waterfall.parts
        assert sum(part.a_us for part in parts) == pytest.approx(total.a_us)
        assert sum(part.b_us for part in parts) == pytest.approx(total.b_us)
        assert sum(part.difference.value for part in parts) == pytest.approx(
            total.difference.value, abs=1e-9 * total.a_us
        )
        # In each block too, relative to the speed of the machine in it.
        for block, difference in total.by_block.items():
            assert sum(part.by_block[block] for part in parts) == pytest.approx(difference, abs=1e-6)
            a, b = (_total_us(per_s) for per_s in blocks[block][:2])
            assert difference == pytest.approx((b / a - 1) * total.a_us)


def _total_us(per_s: float) -> float:
    return CLIENTS * 2.0 * 1e6 / round(per_s * 2.0)


@settings(max_examples=20)
@given(blocks_of)
def test_swapping_the_arms_mirrors_every_part(
    blocks: list[tuple[float, float, ClientTime, ClientTime]],
) -> None:
    there = explained([(a, b) for a, b, *_ in blocks], [(c, d) for *_, c, d in blocks])
    back = explained([(b, a) for a, b, *_ in blocks], [(d, c) for *_, c, d in blocks])
    for one, other in ((there.by_statement, back.by_statement), (there.by_resource, back.by_resource)):
        assert (one is None) == (other is None)
        if one is None or other is None:
            continue
        mirrored = {part.key: part for part in other.parts}
        assert {part.key for part in one.parts} == mirrored.keys()
        for part in one.parts:
            # Each is scaled by its own baseline, which the block's times undo.
            for block, difference in part.by_block.items():
                a, b = (_total_us(per_s) for per_s in blocks[block][:2])
                back_us = -mirrored[part.key].by_block[block] * b / other.total.a_us
                assert difference * a / one.total.a_us == pytest.approx(back_us, abs=1e-6)


def test_each_part_has_the_time_of_its_source() -> None:
    """1000 tx/s of 8 clients: 8000 µs each. 3 of 8 backends wait for locks, 1 runs, 4 are idle."""
    a = ClientTime(
        statements={"UPDATE": 4000.0, "SELECT": 500.0},
        others_us=100.0,
        planning_us=200.0,
        on_cpu_us=400.0,
        runnable_us=100.0,
        driver_us=50.0,
        wait_samples=WaitSamples({"running": 1.0, "lock": 3.0}, 100),
    )
    found = explained([(1000.0, 1000.0)], [(a, replace(a, statements={"UPDATE": 3000.0, "SELECT": 500.0}))])
    by_statement = us(found.by_statement)
    assert by_statement["statement:UPDATE"] == (4000.0, 3000.0)
    assert by_statement[PLANNING] == (200.0, 200.0)
    assert by_statement[OUTSIDE] == (8000.0 - 4800.0, 8000.0 - 3800.0)
    by_resource = us(found.by_resource)
    # One backend is 1000 µs of each transaction. The time of running backends that are neither on CPU nor
    # runnable is unexplained.
    assert {key: a for key, (a, _) in by_resource.items()} == pytest.approx(
        {CPU: 400.0, RUNNABLE: 100.0, "lock": 3000.0, DRIVER: 50.0, "client": 3950.0, UNEXPLAINED: 500.0}
    )
    assert found.scaled is None


def test_a_woken_process_that_waits_for_a_cpu_is_counted_once() -> None:
    """By the kernel, server processes were blocked for 4000 of 8000 µs; by the samples, for 7000 µs."""
    a = ClientTime(
        on_cpu_us=1000.0,
        runnable_us=3000.0,
        driver_us=0.0,
        wait_samples=WaitSamples({"running": 1.0, "lock": 3.5}, 100),
    )
    found = explained([(1000.0, 1000.0)], [(a, a)])
    assert found.scaled == pytest.approx(4 / 7)
    parts = us(found.by_resource)
    assert parts["lock"][0] == pytest.approx(2000.0)
    assert parts["client"][0] == pytest.approx(2000.0)
    assert parts[UNEXPLAINED] == (0.0, 0.0)


@pytest.mark.parametrize("seen", [{"running": 8.0}, {"running": 7.0, "lock": 1.0}])
def test_waits_are_not_negative_if_the_kernel_counts_more_than_the_whole(seen: dict[str, float]) -> None:
    samples = WaitSamples(seen, 9)
    found = _of_one(ClientTime(on_cpu_us=5000.0, runnable_us=3500.0, driver_us=0.0, wait_samples=samples))
    assert (found[CPU], found[RUNNABLE], found[UNEXPLAINED]) == (5000.0, 3500.0, pytest.approx(-500.0))
    assert {found.get(kind, 0.0) for kind in ("lock", "client")} == {0.0}


def test_the_time_of_parallel_workers_is_that_of_the_backend_that_waits_for_them() -> None:
    """One backend is 1000 µs. Workers of one have no wait, a third of the time without a CPU."""
    seen = WaitSamples({"running": 1.0, WORKER_CPU: 2 / 3, WORKER_RUNNABLE: 1 / 3, "io": 2.0}, 100)
    a = ClientTime(on_cpu_us=600.0, runnable_us=400.0, driver_us=0.0, wait_samples=seen)
    expected = {CPU: 600.0 + 2000 / 3, RUNNABLE: 400.0 + 1000 / 3, "io": 2000.0, "client": 4000.0}
    assert _of_one(a) == pytest.approx({**expected, UNEXPLAINED: 0.0})
    # The scale of the waits applies to waits for workers, too: 3500 of 7000 µs.
    scaled = {CPU: 3100.0 + 1000 / 3, RUNNABLE: 1400.0 + 500 / 3, "io": 1000.0, "client": 2000.0}
    assert _of_one(replace(a, on_cpu_us=3100.0, runnable_us=1400.0)) == pytest.approx(
        {**scaled, UNEXPLAINED: 0.0}
    )
    # Without runnable time, a worker is on CPU.
    assert _of_one(replace(a, runnable_us=None))[CPU] == pytest.approx(1600.0)
    assert _of_one(replace(a, on_cpu_us=None, runnable_us=None))["executing"] == pytest.approx(2000.0)


def test_cpu_time_of_all_processes_has_that_of_parallel_workers() -> None:
    seen = WaitSamples({WORKER_CPU: 1.0, "running": 1.0}, 100)
    a = ClientTime(on_cpu_us=1900.0, cpu_is_of_all=True, driver_us=0.0, wait_samples=seen)
    parts = _of_one(a)
    assert parts[CPU] == 1900.0
    assert parts[UNEXPLAINED] == pytest.approx(100.0)


def _of_one(time: ClientTime) -> dict[str, float]:
    found = us(explained([(1000.0, 1000.0)], [(time, time)]).by_resource)
    return {key: a for key, (a, _) in found.items()}


def test_samples_alone_add_up_to_the_total_for_a_remote_server() -> None:
    a = ClientTime(driver_us=0.0, wait_samples=WaitSamples({"running": 2.0, "io": 1.0}, 100))
    parts = us(explained([(1000.0, 500.0)], [(a, a)]).by_resource)
    assert parts == {
        "executing": (2000.0, 4000.0),
        "io": (1000.0, 2000.0),
        "client": (5000.0, 10_000.0),
        UNEXPLAINED: (0.0, 0.0),
    }


def test_without_samples_the_remaining_time_is_unknown() -> None:
    a = ClientTime(on_cpu_us=1000.0, runnable_us=2000.0, driver_us=10.0)
    assert us(explained([(1000.0, 1000.0)], [(a, a)]).by_resource) == {
        CPU: (1000.0, 1000.0),
        RUNNABLE: (2000.0, 2000.0),
        "unknown": (5000.0, 5000.0),
    }


def test_for_a_fixed_load_too_the_speed_of_the_machine_in_a_block_cancels() -> None:
    """The latency varies sixfold between blocks. The arm's is 10% higher in each, all of it in one wait."""
    trials = [trial(block, arm, 1000.0) for block in range(6) for arm in (0, 1)]
    latency = {one.trial: (1000.0 * (1 + one.block) * (1 + 0.1 * one.arm), 0.0) for one in trials}
    times = {
        one.trial: ClientTime(
            on_cpu_us=100.0 * (1 + one.block),
            wait_samples=WaitSamples({"running": 0.5, "wal": 1e-3 * (latency[one.trial][0] - 500.0)}, 9),
        )
        for one in trials
    }
    found = break_down_time(ARMS, trials, times, latency, CONFIDENCES, Method.ANYTIME)[1].by_resource
    assert found.total.difference.value == pytest.approx(0.1 * found.total.a_us)
    assert [part.key for part in found.parts if part.significant] == ["wal"]
    for of in (found.total, *found.parts):
        assert list(of.by_block.values()) == pytest.approx([of.difference.value] * 6, abs=1e-6)


def test_for_a_fixed_load_the_total_is_the_latency_and_the_lag_is_a_part() -> None:
    a = ClientTime(
        on_cpu_us=300.0,
        runnable_us=100.0,
        driver_us=10.0,
        wait_samples=WaitSamples({"running": 0.5, "wal": 1.0}, 9),
    )
    trials = [trial(0, 0, 1000.0), trial(0, 1, 1000.0)]
    found = break_down_time(
        ARMS, trials, {0: a, 1: a}, {0: (4000.0, 500.0), 1: (5000.0, 1500.0)}, CONFIDENCES, Method.STUDENT
    )[1]
    assert found.latency
    assert us(found.by_resource) == {
        "lag": (500.0, 1500.0),
        CPU: (300.0, 300.0),
        RUNNABLE: (100.0, 100.0),
        "wal": (1000.0, 1000.0),
        "remainder": (2100.0, 2100.0),
    }


def test_a_significant_but_small_part_is_not_named_in_sentences() -> None:
    rng = np.random.default_rng(17)
    rates, times = [], []
    for _ in range(8):
        a_us, b_us = float(rng.normal(2000, 5)), float(rng.normal(1500, 5))
        rates.append((8e6 / (a_us + 1000.0), 8e6 / (b_us + 1001.0)))
        a = ClientTime(statements={"UPDATE": a_us, "SELECT": 100.0})
        times.append((a, ClientTime(statements={"UPDATE": b_us, "SELECT": 101.0})))
    found = explained(rates, times)
    assert {part.key for part in found.by_statement.parts if part.significant} >= {"statement:SELECT"}
    sentences = " ".join(why_sentences(found, Verdict.FASTER))
    assert "UPDATE" in sentences and "SELECT" not in sentences


def test_a_part_below_a_twentieth_of_the_whole_is_not_named_though_it_alone_is_significant() -> None:
    a, b = (
        replace(time_on(us), wait_samples=WaitSamples({"running": 1.0, "wal": wal}, 1000))
        for us, wal in ((500.0, 1.0), (480.0, 0.2))
    )
    found = explained([(1000.0, 1600.0)] * 8, [(a, b)] * 8)
    parts = [
        part if part.key == CPU else replace(part, difference=unsure(part.difference))
        for part in found.by_resource.parts
    ]
    assert [part.key for part in parts if part.significant] == [CPU]
    found = replace(found, by_resource=replace(found.by_resource, parts=parts))
    _, largest = why_sentences(found, Verdict.FASTER)
    assert largest.startswith("Largest resource without certainty: ") and "server CPU" not in largest


@pytest.mark.parametrize(
    ("rates", "start"),
    [
        ((1000.0, 90.0), "18 needs 11.1 times as long per transaction as 17: +80,889 µs (95% CI [+80,"),
        ((1000.0, 110.0), "18 needs 64,727 µs (809%) more per transaction than 17 (95% CI [64,"),
    ],
)
def test_a_time_of_more_than_ten_times_is_given_as_a_factor(rates: tuple[float, float], start: str) -> None:
    time = ClientTime(on_cpu_us=500.0, wait_samples=WaitSamples({"running": 1.0}, 1000))
    found = explained([rates] * 8, [(time, time)] * 8)
    assert why_sentences(found, Verdict.SLOWER)[0].replace("\u00a0", " ").startswith(start)


def test_queueing_for_a_cpu_is_never_named_as_a_cause() -> None:
    """Without the WAL sync, processes wake up less often and queue less. The queue changes most."""
    rng = np.random.default_rng(21)
    rates, times = [], []
    for _ in range(8):
        of = []
        for wal, queue in ((1.0, 3000.0), (0.2, 1000.0)):
            noise = float(rng.normal(1, 0.003))
            samples = WaitSamples({"running": 1.0, "wal": wal * noise}, 1000)
            of.append(ClientTime(on_cpu_us=500.0, runnable_us=queue * noise, wait_samples=samples))
        rates.append((1000.0, 1600.0))
        times.append((of[0], of[1]))
    found = explained(rates, times)
    assert RUNNABLE in {part.key for part in found.by_resource.parts if part.significant}
    _, named, consequence, client = why_sentences(found, Verdict.FASTER)
    assert "WAL" in named and "runnable" not in named and "CPU" not in named
    assert client.endswith("may be queueing of the load generator for CPU.")
    assert "runnable" in consequence and "consequence" in consequence


@pytest.mark.parametrize(
    ("client_us", "is_local", "is_cause"),
    [(1500.0, True, False), (-1500.0, True, True), (2500.0, True, True), (1500.0, False, True)],
)
def test_the_client_is_no_cause_if_a_local_load_generator_may_queue_as_much(
    client_us: float, is_local: bool, is_cause: bool
) -> None:
    changes = {CPU: 300.0, RUNNABLE: 2000.0, CLIENT: client_us}
    assert (CLIENT not in consequences(changes, driver_is_local=is_local)) is is_cause


def test_a_client_that_may_queue_is_told_last_and_not_as_a_cause() -> None:
    a, b = (
        ClientTime(on_cpu_us=us, runnable_us=queue, wait_samples=WaitSamples({"running": 0.5}, 1000))
        for us, queue in ((500.0, 1000.0), (400.0, 400.0))
    )
    found = explained([(1000.0, 1150.0)] * 8, [(a, b)] * 8)
    assert found.by_resource
    changes = {part.key: part.difference.value for part in found.by_resource.parts}
    assert changes[RUNNABLE] < changes[CLIENT] < changes[CPU] < 0
    _, named, *consequences_of = why_sentences(found, Verdict.FASTER)
    assert "server CPU time" in named and "client" not in named
    assert consequences_of[-1].endswith("may be queueing of the load generator for CPU.")


def of_waits(*arms: Mapping[str, float], blocks: int = 8, noisy: str = "") -> TimeBreakdown:
    """Two arms with these waits in µs, which add up to the whole. ``noisy``: a wait with much noise."""
    rng, rates, times = np.random.default_rng(22), [], []
    for _ in range(blocks):
        added = float(rng.normal(0, 700))
        of = [
            {**waits, **({noisy: waits[noisy] + n * added} if noisy else {})} for n, waits in enumerate(arms)
        ]
        wholes = [sum(waits.values()) * float(rng.normal(1, 1e-4)) for waits in of]
        rates.append((8e6 / wholes[0], 8e6 / wholes[1]))
        times.append(
            [
                ClientTime(
                    on_cpu_us=0.0,
                    runnable_us=0.0,
                    wait_samples=WaitSamples({kind: 8 * us / whole for kind, us in waits.items()}, 1000),
                )
                for waits, whole in zip(of, wholes, strict=True)
            ]
        )
    return explained(rates, [(a, b) for a, b in times])


def test_the_largest_cause_is_named_before_a_certain_one_against_the_whole() -> None:
    """LWLock waits surely grow, although the arm is faster by what is uncertain."""
    arms = {"wal": 2000.0, "lwlock": 100.0}, {"wal": 1600.0, "lwlock": 130.0}
    _, largest, certain, *_ = why_sentences(of_waits(*arms, noisy="wal"), Verdict.FASTER)
    assert largest.startswith("Largest resource without certainty: ") and "less WAL write/sync" in largest
    assert "more LWLock waits" in certain


@pytest.mark.parametrize(("p_value", "is_first"), [(0.049, True), (0.051, False), (None, False)])
def test_a_likely_largest_cause_is_named_before_a_certain_smaller_one(
    p_value: float | None, is_first: bool
) -> None:
    arms = {"wal": 2000.0, "lock": 500.0}, {"wal": 1600.0, "lock": 300.0}
    found = of_waits(*arms)
    parts = [
        part if part.key != "wal" else replace(part, p_value=p_value, difference=unsure(part.difference))
        for part in found.by_resource.parts
    ]
    told = why_sentences(replace(found, by_resource=replace(found.by_resource, parts=parts)), Verdict.FASTER)
    order = [one.partition(":")[0] for one in told[1:3]]
    largest = "Largest resource without certainty"
    assert order == ([largest, "Significant"] if is_first else ["By resource", largest])


def test_a_largest_cause_against_the_whole_is_not_first() -> None:
    found = explained([(1000.0, 100.0)] * 8, [(time_on(400.0), time_on(200.0))] * 8)
    *_, last = why_sentences(found, Verdict.SLOWER)
    assert last.startswith("Largest resource: ") and "less server CPU time (in the opposite" in last


def time_on(cpu_us: float) -> ClientTime:
    return ClientTime(on_cpu_us=cpu_us, runnable_us=100.0)


def unsure(change: Estimate) -> Estimate:
    return replace(change, low=-1e6, high=1e6)


def test_a_certain_cause_that_a_sentence_has_is_not_repeated() -> None:
    found = of_waits({"wal": 2000.0, "lwlock": 100.0}, {"wal": 1600.0, "lwlock": 130.0})
    said = why_sentences(found, Verdict.FASTER)
    assert sum("WAL write/sync" in sentence for sentence in said) == 1
    assert not any(sentence.startswith("Largest") for sentence in said)


def test_a_cause_is_named_with_fewer_blocks_than_a_verdict_needs() -> None:
    """The probes may have failed in some of the blocks."""
    for blocks in (1, 3):
        found = of_waits({"wal": 2000.0}, {"wal": 1600.0}, blocks=blocks)
        whole, largest = why_sentences(found, Verdict.FASTER)
        assert whole.startswith("Too few blocks for certainty: ")
        assert largest.startswith("Largest resource without certainty: ") and "less WAL write/sync" in largest
        assert why_sentences(found, Verdict.SAME) == []


def test_schedule_lag_is_never_named_as_a_cause() -> None:
    """With slower transactions, arrivals wait longer for a free client. This wait changes most."""
    rng = np.random.default_rng(23)
    trials, times, latency = [], {}, {}
    for number in range(16):
        block, arm = divmod(number, 2)
        own = (1000.0 + 500.0 * arm) * float(rng.normal(1, 0.003))
        one = trial(block, arm, 1000.0)
        trials.append(one)
        times[one.trial] = ClientTime(on_cpu_us=own, runnable_us=0.0)
        lag = 6000.0 * arm * float(rng.normal(1, 0.003)) + 100.0
        latency[one.trial] = (own + lag, lag)
    found = break_down_time(ARMS, trials, times, latency, {1: 0.95}, Method.STUDENT)[1]
    _, named, consequence = why_sentences(found, Verdict.SLOWER)
    assert "CPU" in named and "lag" not in named
    assert "schedule lag" in consequence and "consequence" in consequence


def test_the_levels_of_an_arm_are_as_measured_in_all_comparisons() -> None:
    arms = arms_of(Synthetic(names=("17", "18", "19"), effects=(1, 1, 1)))
    rng = np.random.default_rng(22)
    trials, times = [], {}
    for block in range(6):
        for arm, per_s in enumerate((1000.0, 2000.0, 500.0)):
            made = trial(block, arm, per_s * float(rng.uniform(0.7, 1.4)))
            trials.append(made)
            times[made.trial] = ClientTime(on_cpu_us=float(rng.uniform(300, 500)), runnable_us=100.0)
    found = break_down_time(arms, trials, times, None, {1: 0.95, 2: 0.95}, Method.STUDENT)
    for arm, of in found.items():
        levels = us(of.by_resource)[CPU]
        for level, measured in zip(levels, (0, arm), strict=True):
            mine = [times[one.trial].on_cpu_us or 0.0 for one in trials if one.arm == measured]
            assert level == pytest.approx(sum(mine) / len(mine))
    wholes = [of.by_resource.total.a_us for of in found.values() if of.by_resource]
    assert wholes[0] == pytest.approx(wholes[1])


def test_the_intervals_have_the_confidence_of_the_verdict() -> None:
    """With several arms, Holm's correction raises it."""
    found = noisy(np.random.default_rng(9), -400.0, confidence=0.975)
    assert found.by_statement.total.difference.confidence == 0.975
    assert all(part.difference.confidence >= 0.975 for part in found.by_statement.parts)


def test_the_interval_of_a_part_is_students_t_on_the_differences_by_block() -> None:
    found = noisy(np.random.default_rng(9), -50.0)
    for part in found.by_statement.parts:
        summary = student(list(part.by_block.values()), part.difference.confidence)
        assert (part.difference.low, part.difference.high) == (summary.low, summary.high)


def row(text: str, toplevel: int | None, total_ms: float, calls: int = 10) -> Growth:
    times = {"total_exec_time": total_ms, "mean_exec_time": total_ms / calls, "stddev_exec_time": 0.0}
    level: Mapping[str, int] = {} if toplevel is None else {"toplevel": toplevel}
    kind = "others" if not text else "statement"
    return Growth({}, {"kind": kind, "calls": calls, **times, **level, **({"query": text} if text else {})})


@pytest.mark.parametrize(
    ("percent", "words"),
    [
        (0.0, "0%"),
        (37.4, "37%"),
        (100.4, "100%"),
        (100.6, "more than the whole difference"),
        (187.0, "more than the whole difference"),
        (-0.3, "in the opposite direction"),
        (-87.0, "in the opposite direction"),
    ],
)
def test_a_share_is_a_percentage_only_between_0_and_100(percent: float, words: str) -> None:
    share = Estimate(percent, "%", 5, Better.LESS, percent - 8, percent + 8, 0.95)
    assert share_of_difference(share) == words
    assert share_of_difference(share, " [1%, 2%]").endswith(" [1%, 2%]") == words.endswith("%")


def test_a_significant_part_has_its_share_of_a_significant_difference() -> None:
    """The noise of the UPDATE is that of the whole: it is all of the difference in every block."""
    found = noisy(np.random.default_rng(5), -400.0).by_statement
    shares = {part.key: part.share for part in found.parts if part.share}
    assert list(shares) == ["statement:UPDATE"]
    assert shares["statement:UPDATE"].value == pytest.approx(100.0, abs=0.1)
    assert shares["statement:UPDATE"].high - shares["statement:UPDATE"].low < 0.2
    assert not any(part.share for part in noisy(np.random.default_rng(5), 0.0).by_statement.parts)


def test_the_speed_of_the_machine_in_a_block_cancels() -> None:
    """All times and both rates of a block have one factor: the differences are those of equal blocks."""
    rng = np.random.default_rng(10)
    rates, times, steady_rates, steady_times = [], [], [], []
    for speed in rng.uniform(0.5, 2.0, 8):
        update = float(rng.normal(1500, 10))
        steady_rates.append((2000.0, 2500.0))
        rates.append((2000.0 * speed, 2500.0 * speed))
        for of, factor in ((times, 1 / speed), (steady_times, 1.0)):
            a, b = (ClientTime(statements={"UPDATE": us * factor}) for us in (update, update - 700))
            of.append((a, b))
    moving, steady = explained(rates, times).by_statement, explained(steady_rates, steady_times).by_statement
    assert [part.significant for part in moving.parts] == [part.significant for part in steady.parts]
    for part, other in zip(moving.parts, steady.parts, strict=True):
        share = moving.total.a_us / steady.total.a_us
        assert part.difference.value / share == pytest.approx(other.difference.value, rel=1e-3, abs=0.5)


def test_the_interval_of_a_large_difference_is_as_wide_as_that_of_the_ratio() -> None:
    ratios = [57.0, 78.0, 61.0, 70.0, 66.0, 74.0]
    rates = [(20_000.0, 20_000.0 / ratio) for ratio in ratios]
    no_times = ClientTime(statements={"SELECT": 1.0})
    found = explained(rates, [(no_times, no_times)] * len(ratios)).by_statement
    whole = found.total.difference
    assert whole.low is not None and whole.high is not None
    student = 2.571 * float(np.std(ratios, ddof=1)) / 6**0.5
    assert (whole.high - whole.low) / 2 == pytest.approx(student * found.total.a_us, rel=0.02)


def test_interim_analyses_give_anytime_valid_intervals() -> None:
    rates = [tuple(pair) for pair in np.random.default_rng(9).normal(2000, 20, (8, 2)).tolist()]
    times = [(ClientTime(statements={"UPDATE": 1500.0}),) * 2] * 8
    by_method = [explained(rates, times, method=of).by_statement for of in (Method.STUDENT, Method.ANYTIME)]
    student_s, anytime_s = (of.total.difference for of in by_method)
    assert student_s.value == anytime_s.value
    assert anytime_s.low < student_s.low


def test_statements_inside_a_function_are_not_counted_twice() -> None:
    rows = [
        row("SELECT f()", 1, 90.0),
        row("UPDATE t", 0, 70.0),
        row("UPDATE t", 1, 5.0),
        row("", 1, 3.0),
        row("", 0, 8.0),
    ]
    w = Window(100, 1.0, 1.0, {"statements": rows})
    assert w.delta("statements", "total_exec_time") == 98.0
    found = client_time_of_trial(trial(0, 0, 50.0), w, statements(rows), None)
    assert found.statements == {"SELECT f()": 900.0, "UPDATE t": 50.0}
    assert found.others_us == pytest.approx(30.0)


def test_a_version_without_toplevel_counts_all_statements() -> None:
    rows = [row("SELECT f()", None, 90.0), row("UPDATE t", None, 70.0)]
    assert Window(100, 1.0, 1.0, {"statements": rows}).delta("statements", "total_exec_time") == 160.0


def waits(at: Sequence[float], samples: float, lock: Sequence[float]) -> SampleSeries:
    n = len(at)
    return SampleSeries(
        "waits", ("at_s", "late_s", "samples", "Lock/tuple"), np.array([at, [0.0] * n, [samples] * n, lock]).T
    )


def test_samples_count_within_the_slices_of_the_arm() -> None:
    at = [0.1, 0.3, 0.6, 0.8, 1.1, 1.3]
    found = wait_samples(waits(at, 1, [4, 2, 7, 7, 0, 2]), [piece(0.0, 0.5), piece(1.0, 1.5)])
    assert found == WaitSamples({"lock": 2.0}, 4, {"lock/tuple": 2.0})


@pytest.mark.parametrize(
    ("kernel_s", "expected"),
    [
        # On CPU for 30% and runnable for 10%: blocked for 60% although 80% of the samples have a wait.
        (
            (0.03, 0.01, 0.1),
            {WORKER_CPU: 0.3, WORKER_RUNNABLE: 0.1, "io": 0.45, "lock": 0.15, "running": 0.0},
        ),
        # Blocked for 90%: 10% of it without a wait event.
        ((0.01, 0.0, 0.1), {WORKER_CPU: 0.1, "io": 0.6, "lock": 0.2, "running": 0.1}),
        # A remote server.
        ((0.0, 0.0, 0.0), {"io": 0.6, "lock": 0.2, "running": 0.2}),
    ],
)
def test_kernel_times_of_parallel_workers_divide_the_time_of_their_backend(
    kernel_s: tuple[float, ...], expected: Mapping[str, float]
) -> None:
    waits = ("worker IO/DataFileRead", "worker running", "worker Lock/tuple")
    row = [1.0, 0.6, 0.2, 0.2, *kernel_s]
    columns = ("at_s", "late_s", "samples", *waits, *WORKER_TIMES)
    series = SampleSeries("waits", columns, np.array([[0.1, 0.0, *row], [0.3, 0.0, *row]]))
    found = wait_samples(series, [piece(0.0, 0.5)])
    assert found.active == pytest.approx(1.0)
    assert found.backends == pytest.approx(
        {of: number for of, number in expected.items() if number}, abs=1e-9
    )


def test_sums_of_samples_over_more_than_a_slice_are_not_assigned() -> None:
    at = [float(i) for i in range(8)]
    assert wait_samples(waits(at, 5, [1.0] * 8), [piece(0.0, 0.5), piece(1.0, 1.5)]) is None
    whole = wait_samples(waits(at, 5, [10.0] * 8), [piece(0.0, 7.0)])
    assert whole.backends == {"lock": 2.0}


def test_the_clock_replaces_the_samples_of_its_calls_in_all_arms_or_none() -> None:
    samples = WaitSamples({"running": 0.5, "wal": 3.0}, 100)
    timed = ClientTime(driver_us=0.0, wait_samples=samples, clocked={"wal": Clocked(50.0, 1.0)})
    each_us = 1e6 / 1000  # of one backend
    both = explained([(1000, 1000)], [(timed, timed)])
    assert both.clocks == ["wal"]
    assert us(both.by_resource)["wal"] == pytest.approx((2.0 * each_us + 50, 2.0 * each_us + 50))
    one = explained([(1000, 1000)], [(timed, replace(timed, clocked={}))])
    assert one.clocks == []
    assert us(one.by_resource)["wal"] == pytest.approx((3.0 * each_us, 3.0 * each_us))


def test_the_time_of_reads_from_the_page_cache_is_not_counted_twice() -> None:
    """Clients are idle for 3000 of 8000 µs. The server is on CPU for the rest, 1000 µs of it in reads.

    Without a scale for the clock, reads would keep 1000 µs, and the client only 2000 µs.
    """
    seen = WaitSamples({"running": 4.0, "io": 1.0}, 100)
    a = ClientTime(on_cpu_us=5000.0, driver_us=0.0, wait_samples=seen, clocked={"io": Clocked(1000.0, 1.0)})
    parts = _of_one(a)
    assert (parts["io"], parts["client"]) == (pytest.approx(750.0), pytest.approx(2250.0))


@pytest.mark.parametrize(
    ("resource", "events"),
    [
        ("running", {"running"}),
        ("wal", {"IO/WalSync", "LWLock/WALWrite"}),
        ("lwlock", {"LWLock/WALInsert", "Timeout/SpinDelay"}),
        ("io", {"IO/DataFileRead", "IPC/BufferIo", "LWLock/AioUringCompletion"}),
        ("lock", {"Lock/transactionid", "Lock"}),
        ("sleep", {"Timeout/PgSleep"}),
        ("ipc", {"IPC/SyncRep"}),
        ("client", {"Client/ClientRead"}),
        ("other", {"Extension/Extension"}),
    ],
)
def test_wait_events_of_every_version_have_a_resource(resource: str, events: set[str]) -> None:
    assert {resource_of(event) for event in events} == {resource}


def test_arms_of_old_servers_are_named_if_nested_statements_are_counted_twice() -> None:
    time = ClientTime(statements={"SELECT f()": 10.0})
    tracked = {"pg_stat_statements.track": "all", "server_version_num": "130023"}
    trials = [replace(trial(0, 0, 100.0), settings=tracked), trial(0, 1, 100.0)]
    found = break_down_time(ARMS, trials, {0: time, 1: time}, None, CONFIDENCES, Method.STUDENT)
    assert found[1].twice == ["17"]


def test_blocks_without_a_trial_of_one_arm_do_not_count() -> None:
    time = ClientTime(statements={"a": 1.0})
    trials = [trial(0, 0, 100.0), trial(0, 1, 100.0), trial(1, 0, 100.0)]
    times = dict.fromkeys((0, 1, 10), time)
    found = break_down_time(ARMS, trials, times, None, CONFIDENCES, Method.STUDENT)
    assert found[1].by_statement.total.difference.n == 1
    assert break_down_time(ARMS, trials[2:], {10: time}, None, CONFIDENCES, Method.STUDENT) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("IO/WALSync", "IO/WalSync"),
        ("LWLock/WALWriteLock", "LWLock/WALWrite"),
        ("LWLock/CLogControlLock", "LWLock/XactSLRU"),
        ("LWLock/buffer_io", "IPC/BufferIo"),
        ("IPC/Hash/GrowBuckets/Allocating", "IPC/HashGrowBucketsReallocate"),
        ("Client/WalReceiverWaitStart", "IPC/WalReceiverWaitStart"),
        ("BufferPin/BufferPin", "Buffer/BufferCleanup"),
        ("Buffer/BufferShared", "LWLock/BufferContent"),
        ("Lock/transactionid", "Lock/transactionid"),
        ("running", "running"),
    ],
)
def test_a_wait_event_has_its_newest_name(old: str, new: str) -> None:
    assert newest_name(old) == new


def test_no_newest_name_is_an_old_one() -> None:
    assert {name for name in NEWEST.values() if newest_name(name) != name} == set()


def test_a_renamed_wait_event_keeps_its_resource() -> None:
    # The type of this event of the WAL receiver, which has no client, changed in 14.
    moved = {"Client/WalReceiverWaitStart"}
    assert {old for old, new in NEWEST.items() if resource_of(old) != resource_of(new)} == moved
