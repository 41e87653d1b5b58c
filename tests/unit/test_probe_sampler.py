"""Sampler with a fake clock."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psycopg
import pytest
from psycopg.pq import DiagnosticField
from psycopg.sql import Composed

from pgdyno.errors import ConnectError
from pgdyno.measure.host_counters import ServerCpu
from pgdyno.measure.sampler import (
    CHUNK_S,
    OF_STATEMENTS_MAX,
    POINTS_MAX,
    WAITS_PER_TICK,
    Chunk,
    Cost,
    Sampler,
    SeriesEnd,
    Target,
    WorkerTimes,
    backends_by_wait,
    monotonic_of,
    step_for,
    waits_per_tick,
)
from pgdyno.server.processes import Connection


class Time:
    """Advances only when a sampler waits or a test requests it."""

    def __init__(self, end_s: float, now_s: float = 100.0) -> None:
        self.now_s = self.begun_s = now_s
        self.end_s = now_s + end_s

    def clock(self) -> float:
        return self.now_s

    def wait(self, duration_s: float) -> bool:
        self.now_s += duration_s
        return self.now_s > self.end_s + 1e-6


class FakeConnection:
    """The part of a connection that the sampler uses."""

    info = SimpleNamespace(server_version=15_00_00, backend_pid=2**22 + 1, parameter_status=lambda _: "off")

    def __init__(self) -> None:
        self.closed = self.autocommit = False
        self.said: list[str] = []

    def execute(self, query: Composed) -> None:
        self.said.append(query.as_string())

    def close(self) -> None:
        self.closed = True


def connect() -> Connection:
    return cast(Connection, FakeConnection())


def counting() -> Callable[[Connection], Mapping[str, float]]:
    numbers = itertools.count(1)
    return lambda _: {"commits": float(next(numbers))}


def sampler_of(
    time: Time, *targets: Target, host: Any = dict, zero_s: float | None = None, **others: Any
) -> Sampler:
    zero_s = time.begun_s if zero_s is None else zero_s
    return Sampler(targets, host, zero_s, clock=time.clock, wait=time.wait, **others)


def run(time: Time, *targets: Target, **others: Any) -> list[Chunk]:
    """Return all chunks of a run, which executes in this thread."""
    sampler = sampler_of(time, *targets, **{"host": lambda: {"cpu_busy_s": time.now_s}, **others})
    sampler.run()
    return sampler.drain()


def of(chunks: list[Chunk], probe: str, target: int = 0) -> list[Chunk]:
    return [chunk for chunk in chunks if (chunk.probe, chunk.target) == (probe, target)]


def column(chunk: Chunk, name: str) -> list[float]:
    return [round(float(value), 9) for value in chunk.points[:, chunk.columns.index(name)]]


def test_a_sample_is_taken_each_second_and_never_drifts() -> None:
    time = Time(5.5)

    def slow(_: Connection) -> Mapping[str, float]:
        time.now_s += 0.03
        return {"commits": 1.0}

    (chunk,) = of(run(time, Target(0, connect, slow)), "server")
    assert chunk.columns == ("at_s", "late_s", "commits")
    assert column(chunk, "at_s") == [0, 1, 2, 3, 4, 5]
    assert column(chunk, "late_s") == [0] * 6
    (chunk,) = of(run(Time(2.5), Target(0, connect, counting()), zero_s=99.75), "server")
    assert column(chunk, "at_s") == [1, 2]  # the whole seconds since zero


def test_only_the_first_states_of_statements_have_columns() -> None:
    looks = itertools.count()

    def ad_hoc(_: Connection) -> Mapping[str, float]:
        n = next(looks)
        return {"running": 2.0, f"statement {n} running": 1.0, f"statement {n} IO/WALSync": 1.0}

    chunks = of(run(Time(120.5), Target(0, connect, None, ad_hoc)), "waits")
    assert next(looks) > OF_STATEMENTS_MAX
    found = {name for chunk in chunks for name in chunk.columns if name.startswith("statement")}
    assert len(found) == OF_STATEMENTS_MAX
    assert sum(sum(column(chunk, "running")) for chunk in chunks) == 2 * (next(looks) - 1)


def test_the_cpu_time_of_a_server_does_not_decrease_when_a_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter(
        [ServerCpu(0.013, 0.0, 0.0, 9), ServerCpu(0.004, 0.0, 0.0, 19), ServerCpu(0.5, 0.0, 0.0, 19)]
    )
    monkeypatch.setattr("pgdyno.measure.sampler.server_cpu", lambda _: next(moments))
    (chunk,) = of(run(Time(2.5), Target(0, connect, postmaster_pid=lambda: 7)), "host")
    assert column(chunk, "server_cpu_s") == [0.013, 0.013, 0.5]


def test_a_late_sample_is_taken_at_once_with_its_lateness_and_the_next_is_on_time() -> None:
    time = Time(9.5)

    def stuck_once(_: Connection) -> Mapping[str, float]:
        if round(time.now_s - time.begun_s) == 3:
            time.now_s += 3.4  # until 6.4: 4, 5 and 6 are missed
        return {"commits": 1.0}

    (chunk,) = of(run(time, Target(0, connect, stuck_once)), "server")
    assert column(chunk, "at_s") == [0, 1, 2, 3, 6.4, 7, 8, 9]
    assert column(chunk, "late_s") == [0, 0, 0, 0, 2.4, 0, 0, 0]


def test_no_gap_is_without_a_sample_that_was_late_by_it() -> None:
    random = np.random.default_rng(11)
    time = Time(300)

    def sometimes_slow(_: Connection) -> Mapping[str, float]:
        time.now_s += float(random.exponential(0.3)) if random.random() < 0.5 else 0.0
        return {}

    chunks = of(run(time, Target(0, connect, sometimes_slow, sometimes_slow)), "server")
    points = np.concatenate([chunk.points for chunk in chunks])
    at_s, late_s = points[:, 0], points[:, 1]
    due_s = at_s - late_s
    assert np.allclose(due_s, np.round(due_s))
    # The next due time is the first full second after the last sample was handled.
    assert (np.diff(at_s) > 0).all()
    assert (np.diff(at_s) - late_s[1:] <= 1 + 1e-9).all()
    assert late_s.max() > 1


def test_a_server_that_blocks_the_thread_delays_the_next_one() -> None:
    time = Time(1.5)

    def slow(_: Connection) -> Mapping[str, float]:
        time.now_s += 0.25
        return {}

    chunks = run(time, Target(0, connect, slow), Target(1, connect, counting()))
    (second,) = of(chunks, "server", 1)
    assert (column(second, "at_s"), column(second, "late_s")) == ([0.25, 1.25], [0.25, 0.25])


def test_waits_are_sampled_throughout_the_second_and_summed() -> None:
    time, looks = Time(3.05), []

    def waiting(_: Connection) -> Mapping[str, float]:
        looks.append(round(time.now_s - time.begun_s, 9))
        return {"LWLock/WALWrite": 2.0} if len(looks) <= WAITS_PER_TICK else {"IO/DataFileRead": 1.0}

    (chunk,) = of(run(time, Target(0, connect, None, waiting)), "waits")
    assert looks == [round(n / WAITS_PER_TICK, 9) for n in range(3 * WAITS_PER_TICK + 1)]
    assert column(chunk, "at_s") == [0, 1, 2, 3]
    n = WAITS_PER_TICK
    assert column(chunk, "samples") == [1, n, n, n]
    assert column(chunk, "LWLock/WALWrite") == [2, 2 * (n - 1), 0, 0]  # a missed sample is not counted
    assert column(chunk, "IO/DataFileRead") == [0, 1, n, n]


def test_a_missing_value_of_a_sample_is_nan() -> None:
    answers = iter([{"a": 1.0}, {"a": 2.0, "b": 3.0}, {"b": 4.0}])
    (chunk,) = of(run(Time(2.5), Target(0, connect, lambda _: next(answers))), "server")
    assert chunk.columns == ("at_s", "late_s", "a", "b")
    assert np.array_equal(chunk.points[:, 2:], [[1, math.nan], [2, 3], [math.nan, 4]], equal_nan=True)


def test_a_chunk_is_handed_over_every_ten_minutes_and_at_the_end() -> None:
    chunks = of(run(Time(1500.5), Target(0, connect, counting())), "server")
    assert [len(chunk.points) for chunk in chunks] == [601, 600, 300]
    together = [number for chunk in chunks for number in column(chunk, "commits")]
    assert together == list(range(1, 1502))
    assert CHUNK_S == 600


def test_the_machine_is_read_once_a_tick_for_all() -> None:
    time = Time(2.5)
    chunks = run(time, Target(0, connect, counting()), Target(7, connect))
    for target in (0, 7):
        (chunk,) = of(chunks, "host", target)
        assert column(chunk, "cpu_busy_s") == [100, 101, 102]


def test_a_lost_server_ends_its_series_with_a_reason_and_is_connected_to_each_tick() -> None:
    time = Time(8.5)
    attempts: list[float] = []

    def connecting() -> Connection:
        attempts.append(round(time.now_s - time.begun_s, 6))
        if 3 <= attempts[-1] < 6:
            raise ConnectError("no connection to PostgreSQL 15:\nit ended")
        return connect()

    def dying(connection: Connection) -> Mapping[str, float]:
        if round(time.now_s - time.begun_s, 6) == 3:
            connection.close()
            raise psycopg.OperationalError("server closed the connection\nunexpectedly")
        return {"commits": 1.0}

    chunks = run(time, Target(0, connecting, dying, counting()), Target(1, connect, counting()))
    server = of(chunks, "server")
    assert [(column(chunk, "at_s"), chunk.ending, chunk.reason) for chunk in server] == [
        ([0, 1, 2], SeriesEnd.SERVER_LOST, "server closed the connection / unexpectedly"),
        ([], SeriesEnd.NOT_CONNECTED, "no connection to PostgreSQL 15: / it ended"),
        ([6, 7, 8], None, ""),
    ]
    assert attempts == [0, 4, 5, 6]
    waits = of(chunks, "waits")
    assert [(chunk.ending, chunk.reason) for chunk in waits] == [
        (chunk.ending, chunk.reason) for chunk in server
    ]
    looks = sum(sum(column(chunk, "samples")) for chunk in waits if len(chunk.points))
    of_each = math.ceil(WAITS_PER_TICK / 2)  # both servers are driven
    in_three_s, in_two_and_a_half_s = 3 * of_each, math.floor(2.5 * of_each) + 1
    assert looks == in_three_s + in_two_and_a_half_s
    (other,) = of(chunks, "server", 1)
    assert column(other, "at_s") == list(range(9))
    assert [len(chunk.points) for chunk in of(chunks, "host")] == [9]


def error_of_the_server(severity: bytes, message: str) -> psycopg.Error:
    info: Any = {DiagnosticField.SEVERITY_NONLOCALIZED: severity}
    return psycopg.OperationalError(message, info=info)


@pytest.mark.parametrize(
    ("error", "is_closed"),
    [
        (error_of_the_server(b"FATAL", "terminating connection due to administrator command"), True),
        (error_of_the_server(b"FATAL", "terminating connection due to administrator command"), False),
        (error_of_the_server(b"PANIC", "could not write to file"), False),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
    ],
)
def test_a_lost_server_is_the_same_whether_its_farewell_was_read_or_not(
    error: psycopg.Error, is_closed: bool
) -> None:
    time = Time(2.5)

    def dying(connection: Connection) -> Mapping[str, float]:
        if round(time.now_s - time.begun_s, 6) == 1:
            cast(FakeConnection, connection).closed = is_closed
            raise error
        return {"commits": 1.0}

    chunks = run(time, Target(0, connect, dying, counting()))
    for probe in ("server", "waits"):
        assert [chunk.ending for chunk in of(chunks, probe)] == [SeriesEnd.SERVER_LOST, None]
        assert of(chunks, probe)[0].reason == str(error)


@pytest.mark.parametrize(
    ("error", "ending", "reason"),
    [
        (
            psycopg.errors.InsufficientPrivilege("permission denied"),
            SeriesEnd.QUERY_FAILED,
            "permission denied",
        ),
        (KeyError("blks_hit"), SeriesEnd.PROBE_FAILED, "KeyError: 'blks_hit'"),
    ],
)
def test_a_failure_on_an_open_connection_ends_only_its_series(
    error: Exception, ending: SeriesEnd, reason: str
) -> None:
    made: list[Connection] = []

    def connecting() -> Connection:
        made.append(connect())
        return made[-1]

    def wrong(_: Connection) -> Mapping[str, float]:
        raise error

    chunks = run(Time(2.5), Target(0, connecting, wrong, counting()), Target(1, connect, counting()))
    (server,) = of(chunks, "server")
    assert (len(server.points), server.ending, server.reason) == (0, ending, reason)
    for probe, target in (("waits", 0), ("host", 0), ("server", 1)):
        assert [chunk.ending for chunk in of(chunks, probe, target)] == [None]
    assert len(made) == 1


def test_a_failure_of_the_sampler_ends_all_series_with_a_reason() -> None:
    def wrong() -> Mapping[str, float]:
        raise KeyError("ctxt")

    chunks = run(Time(2.5), Target(0, connect, counting()), host=wrong)
    assert {(chunk.ending, chunk.reason) for chunk in chunks} == {
        (SeriesEnd.SAMPLER_FAILED, "the sampler failed: KeyError: 'ctxt'")
    }
    assert {chunk.probe for chunk in chunks} == {"server", "host"}


def test_connections_are_closed_at_the_end_and_no_query_may_hang() -> None:
    made: list[FakeConnection] = []

    def connecting() -> Connection:
        made.append(FakeConnection())
        return cast(Connection, made[-1])

    run(Time(2.5), Target(0, connecting, counting()), Target(1, connecting, None, counting()))
    assert [connection.closed for connection in made] == [True, True]
    assert all("set_config('statement_timeout', '5s', false)" in connection.said[0] for connection in made)


def test_an_undrained_queue_ends_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgdyno.measure.sampler.CHUNKS_MAX", 4)
    time = Time(1e9)
    chunks = run(time, Target(0, connect, counting()))
    assert chunks[-1].reason == "the sampler failed: RuntimeError: 4 chunks were not drained"
    assert len(chunks) <= 10
    assert time.now_s < 4 * CHUNK_S


@pytest.mark.parametrize(
    ("window_s", "step_s"),
    [(1, 1), (3600, 1), (6 * 3600, 1), (6 * 3600 + 1, 2), (24 * 3600, 4), (7 * 86400, 28)],
)
def test_long_runs_have_coarser_steps(window_s: float, step_s: float) -> None:
    assert step_for(window_s) == step_s
    assert window_s / step_for(window_s) <= POINTS_MAX


def test_a_coarser_step_is_kept_and_waits_are_looked_at_as_often_in_it() -> None:
    chunks = run(Time(20.1), Target(0, connect, counting(), counting()), step_s=4.0)
    assert column(of(chunks, "server")[0], "at_s") == [0, 4, 8, 12, 16, 20]
    assert column(of(chunks, "waits")[0], "samples") == [1, *[WAITS_PER_TICK] * 5]


def test_stop_ends_a_thread_that_waits_and_may_be_called_at_any_time() -> None:
    ticked = threading.Event()

    def sample(_: Connection) -> Mapping[str, float]:
        ticked.set()
        return {"commits": 1.0}

    sampler = Sampler([Target(0, connect, sample)], dict, monotonic_of(0.0), step_s=3600.0)
    sampler.stop()  # it was not started
    # The step is due now: otherwise this thread would wait an hour for the next one.
    sampler = Sampler([Target(0, connect, sample)], dict, zero_s=0.0, step_s=3600.0, clock=lambda: 0.0)
    sampler.start()
    assert ticked.wait(60)
    sampler.stop()
    assert not sampler._thread.is_alive()
    sampler.stop()
    assert [len(chunk.points) for chunk in of(sampler.drain(), "server")] == [1]
    assert sampler.drain() == []


def test_waits_are_sampled_of_the_driven_server_only() -> None:
    time = Time(3.05)
    targets = [Target(number, connect, counting(), counting(), each_look=True) for number in range(2)]
    driven = lambda: int(time.now_s - time.begun_s >= 1.5)  # noqa: E731
    chunks = run(time, *targets, driven=driven)
    looks = [column(chunk, "at_s") for number in range(2) for chunk in of(chunks, "waits", number)]
    every = [round(n / WAITS_PER_TICK, 9) for n in range(3 * WAITS_PER_TICK + 1)]
    assert looks == [[at for at in every if at < 1.5], [at for at in every if at >= 1.5]]
    for number in range(2):
        assert column(of(chunks, "server", number)[0], "at_s") == [0, 1, 2, 3]


def test_the_cost_of_connecting_before_the_measured_part_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, asked = Time(1.05), list[float]()
    used_s = [5.0]
    monkeypatch.setattr("pgdyno.measure.sampler.process_cpu_s", lambda _: used_s[-1])
    monkeypatch.setattr("pgdyno.measure.sampler.server_cpu", lambda _: ServerCpu(0.0, 0.0, 0.0, 0))

    def sampled(_: Connection) -> Mapping[str, float]:
        asked.append(time.now_s - time.begun_s)
        return {"commits": 1.0}

    sampler = sampler_of(time, Target(0, connect, sampled, postmaster_pid=lambda: 7))
    sampler.prepare()
    assert asked == [0.0]
    used_s.append(5.25)
    sampler.run()
    assert sampler.mark().backends_s[0] == 0.25
    assert [len(chunk.points) for chunk in of(sampler.drain(), "server")] == [2]


def test_a_server_that_cannot_be_prepared_has_the_reason_once() -> None:
    def refused() -> Connection:
        raise ConnectError("no connection")

    sampler = sampler_of(Time(1.05), Target(0, refused, counting()), Target(1, connect, counting()))
    sampler.prepare()
    sampler.run()
    chunks = sampler.drain()
    assert [(chunk.ending, chunk.reason) for chunk in of(chunks, "server")] == [
        (SeriesEnd.NOT_CONNECTED, "no connection")
    ]
    assert [len(chunk.points) for chunk in of(chunks, "server", 1)] == [2]


IPC, WORKING = "IPC/BgWorkerShutdown", {"wait": "running", "leader": "7", "backends": 1.0}
LEADER = {**WORKING, "wait": IPC}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"wait": "running", "backends": 3.0}], {"running": 3.0}),
        ([{"background": "background wal", "backends": 0.0}], {"background wal": 0.0}),
        ([LEADER, {**WORKING, "pid": 8.0}, {**WORKING, "pid": 9.0}], {"worker running": 1.0}),
        ([LEADER], {IPC: 1.0}),  # it waits for something else
        ([{**WORKING, "pid": 8.0}, {"wait": "running", "backends": 1.0}], {"running": 1.0}),  # does not wait
        (  # the client of another backend has workers
            [{**LEADER, "leader": "6"}, LEADER, {**WORKING, "pid": 8.0, "background": "background wal"}],
            {IPC: 1.0, "worker running": 1.0, "background wal": 1.0},
        ),
        ([{"wait": "running", "pid": 8.0, "backends": 1.0}, {"wait": IPC, "backends": 1.0}], {IPC: 1.0}),
    ],
)
def test_backends_that_wait_for_workers_are_counted_in_their_states(
    rows: list[dict[str, Any]], expected: dict[str, float]
) -> None:
    assert backends_by_wait(rows) == expected


def test_the_cost_of_a_target_is_its_backend_and_its_share_of_the_thread() -> None:
    cost = Cost(0.4, {1: 0.5, 2: None})
    assert cost.of(1) == pytest.approx(0.7)
    assert cost.of(2) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("cost_s", "step_s", "expected"),
    [
        (0.0006, 1.0, 7),  # which cost 4.2 ms per second
        (0.0014, 1.0, 3),
        (0.01, 1.0, 2),  # the minimum
        (0.0006, 0.1, 2),
        (0.0001, 1.0, 10),  # the maximum
    ],
)
def test_there_are_as_many_samples_as_their_share_of_a_core_pays_for(
    cost_s: float, step_s: float, expected: int
) -> None:
    assert waits_per_tick(cost_s, step_s) == expected


@pytest.mark.parametrize(("pids", "expected"), [((7, 7), 2), ((7, None), 3)])
def test_the_number_of_samples_depends_on_the_cost_on_all_servers_if_it_is_known(
    monkeypatch: pytest.MonkeyPatch, pids: tuple[int | None, ...], expected: int
) -> None:
    time, used_s = Time(4.05), itertools.count(0.0, 0.1)
    monkeypatch.setattr("pgdyno.measure.sampler.process_cpu_s", lambda _: next(used_s))
    monkeypatch.setattr("pgdyno.measure.sampler.server_cpu", lambda _: ServerCpu(0.0, 0.0, 0.0, 0))
    targets = [Target(n, connect, None, counting(), partial(pids.__getitem__, n)) for n in range(2)]
    chunks = run(time, *targets)
    for number in range(2):
        assert column(of(chunks, "waits", number)[0], "samples")[-1] == expected


def test_a_higher_rate_begins_at_a_tick_and_keeps_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([WAITS_PER_TICK] * 2 + [8, 8])
    monkeypatch.setattr("pgdyno.measure.sampler.waits_per_tick", lambda *_: next(rates))
    monkeypatch.setattr("pgdyno.measure.sampler.process_cpu_s", lambda _: 1.0)
    monkeypatch.setattr("pgdyno.measure.sampler.server_cpu", lambda _: ServerCpu(0.0, 0.0, 0.0, 0))
    time, looks = Time(3.05), []

    def waiting(_: Connection) -> Mapping[str, float]:
        looks.append(round(time.now_s - time.begun_s, 9))
        return {"running": 1.0}

    (chunk,) = of(run(time, Target(0, connect, None, waiting, lambda: 7)), "waits")
    first = [round(n / WAITS_PER_TICK, 9) for n in range(2 * WAITS_PER_TICK)]
    assert looks == [*first, *(2 + n / 8 for n in range(9))]
    assert column(chunk, "at_s") == [0, 1, 2, 3]
    assert column(chunk, "samples") == [1, WAITS_PER_TICK, WAITS_PER_TICK, 8]


def test_times_of_workers_grow_from_the_start_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {7: (1.0, 0.5, 2.0), 8: (2.0, 0.0, 4.0)}
    monkeypatch.setattr("pgdyno.measure.sampler.lifetime", now.get)
    workers = WorkerTimes()

    def grown(*pids: int) -> tuple[float, ...]:
        return tuple(workers.growth(pids).values())

    assert grown(7, 8) == (3.0, 0.5, 6.0)
    now[7] = (1.5, 0.75, 3.0)
    assert grown(7, 8, 9) == (0.5, 0.25, 1.0)  # 9 has ended
    now[7] = (0.25, 0.0, 0.5)  # another process with this number
    assert grown(7) == (0.25, 0.0, 0.5)
    assert grown(8) == (2.0, 0.0, 4.0)  # not followed for a while
    assert grown() == ()
