"""I/O times by the clock of the server: recorded rows of several versions, and the settings of the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from synthetic_telemetry import trial

from example_studies import make_study
from pgdyno.analysis.telemetry.trial_telemetry import Clocked, telemetry_of_trial
from pgdyno.features.io_clocks.timing import with_timing
from pgdyno.measure.preflight import ArmRequest
from pgdyno.results.records import Moment, SampleSeries, Slice, StoredReading
from pgdyno.server.settings import Requested
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.schedule import Role


def both(probe: str, begin: list[dict], end: list[dict]) -> list[StoredReading]:
    return [
        StoredReading(probe, Moment.BEGIN, 10.0, 0.001, begin),
        StoredReading(probe, Moment.END, 70.0, 0.001, end),
    ]


TIMED = {"track_io_timing": "on", "track_wal_io_timing": "on"}
OF_CLIENTS = {"backend_type": "client backend", "context": "normal"}


def clocked(major: int, seen: Mapping[str, float], settings: Mapping[str, str] = TIMED) -> dict[str, Clocked]:
    """Return the clocked times of a trial of 10 s and 1,000 transactions, with 100 samples."""
    own = Slice(0, Role.MEASURE, 10.0, 10.0, 20.0, 20.0, 0.0, 0.0, {})
    settings = {**settings, "server_version_num": str(10_000 * major)}
    measured = replace(trial(1, 0, 0), settings=settings, slices=[own])
    n = measured.transactions
    assert n
    wal = [{"wal_write_time": write, "wal_sync_time": sync} for write, sync in ((1.0, 5.0), (41.0, 165.0))]
    blocks = [{"blk_read_time": read, "blk_write_time": read / 7} for read in (0.0, 70.0)]
    readings = [*both("wal", wal[:1], wal[1:]), *both("database", blocks[:1], blocks[1:])]
    if major >= 16:
        rows = [
            {**OF_CLIENTS, "object": "relation", "read_time": 30.0, "extend_time": 5.0},
            {**OF_CLIENTS, "object": "relation", "context": "vacuum", "write_time": 1.0},
            {**OF_CLIENTS, "backend_type": "autovacuum worker", "object": "relation", "read_time": 500.0},
        ]
        if major >= 18:
            rows += [
                {**OF_CLIENTS, "object": "wal", "write_time": 20.0, "fsync_time": 80.0},
                {**OF_CLIENTS, "object": "wal", "context": "init", "write_time": 7.0},  # sampled instead
                {"backend_type": "walwriter", "context": "normal", "object": "wal", "fsync_time": 700.0},
            ]
        readings += both("io", [], rows)
    at = np.linspace(10.05, 19.95, 100)
    columns = [at, np.zeros(100), np.ones(100), *(np.full(100, value) for value in seen.values())]
    waits = SampleSeries("waits", ("at_s", "late_s", "samples", *seen), np.array(columns).T)
    found = telemetry_of_trial(measured, readings, {"waits": waits}).time.clocked
    return {resource: replace(of, us=of.us * n / 1000) for resource, of in found.items()}  # in ms


SEEN = {"IO/WALSync": 0.6, "IO/WALWrite": 0.2, "LWLock/WALWrite": 3.0, "IO/DataFileRead": 0.3}
BESIDE = {"background wal": 0.2, "background io": 0.1}


def test_before_18_samples_divide_the_wal_times_of_the_server_between_clients_and_others() -> None:
    assert clocked(15, {**SEEN, **BESIDE}) == {
        "wal": Clocked(pytest.approx(200.0 * 0.8), pytest.approx(0.8)),
        "io": Clocked(pytest.approx(80.0 * 0.75), pytest.approx(0.3)),
    }
    # With synchronous_commit = off the WAL writer writes, and no client waits for it.
    assert clocked(15, {"running": 1.0, **BESIDE})["wal"].us == 0


def test_pg_stat_io_has_the_times_of_client_backends_alone() -> None:
    io = Clocked(pytest.approx(36.0), pytest.approx(0.3))
    assert clocked(16, {**SEEN, "background wal": 0.0})["io"] == io
    assert clocked(18, SEEN) == {"wal": Clocked(pytest.approx(100.0), pytest.approx(0.8)), "io": io}


@pytest.mark.parametrize(
    ("major", "seen", "settings"),
    [
        (15, {**SEEN, **BESIDE}, {}),  # no timing
        (15, SEEN, TIMED),  # results before the samples of background processes
        (13, {**SEEN, "background io": 0.0}, {"track_wal_io_timing": "on"}),
    ],
)
def test_without_the_times_of_clients_there_is_no_clock(
    major: int, seen: Mapping[str, float], settings: Mapping[str, str]
) -> None:
    assert clocked(major, seen, settings) == {}


ALL = ("track_io_timing", "track_wal_io_timing")


@pytest.mark.parametrize(
    ("arms", "known", "clock_ns", "expected"),
    [
        (["17", "18"], [ALL, ALL], 40.0, ALL),
        (["17", "18"], [ALL, ALL], 400.0, ()),
        (["13", "18"], [ALL[:1], ALL], 40.0, ALL[:1]),
        (["17", "18,track_io_timing=off"], [ALL, ALL], 40.0, ALL[1:]),
        (["17", "dsn:host=/tmp dbname=x"], [ALL], 40.0, ()),
    ],
)
def test_io_is_timed_in_all_arms_alike_or_not_at_all(
    arms: Sequence[str], known: Sequence[Sequence[str]], clock_ns: float, expected: Sequence[str]
) -> None:
    asked = make_study(arms=parse_arms(arms), clients=2)
    wanted: Any = {
        index: ArmRequest(
            asked.arms[index],
            cast(Any, None),
            cast(Any, SimpleNamespace(initial=dict.fromkeys(names, "off"))),
            Requested(dict(asked.arms[index].settings), frozenset()),
        )
        for index, names in enumerate(known)
    }
    found = with_timing(asked, wanted, clock_ns)
    for index, arm in found.items():
        assert arm.requested.settings == {**dict.fromkeys(expected, "on"), **asked.arms[index].settings}
