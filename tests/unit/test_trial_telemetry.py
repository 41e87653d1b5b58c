"""From readings of probes to values, metrics, effects and caveats."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_telemetry import arm, trial

import pgdyno
from pgdyno.analysis.comparison import Effect
from pgdyno.analysis.queries import effects_on
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.telemetry.counters import (
    COUNTERS,
    EVICTED,
    IDENTITY,
    RESET,
    RESETS,
    Missing,
    StatisticsReset,
    grown,
    window,
)
from pgdyno.analysis.telemetry.metrics import (
    LATENCY,
    METRICS,
    OF_RELATIONS,
    OF_SAMPLES,
    OF_STATEMENTS,
    OF_TRIALS,
    TEXTS,
    keyed,
    read_metrics,
    split_key,
)
from pgdyno.analysis.telemetry.trial_telemetry import (
    TrialTelemetry,
    compared_metrics,
    filled,
    level,
    telemetry_caveats,
    telemetry_levels,
    telemetry_of_trial,
)
from pgdyno.caveats import Caveat
from pgdyno.results.records import Moment, SampleSeries, Slice, StoredReading, Trial
from pgdyno.study.defaults import Absence, Schedule
from pgdyno.study.schedule import Role
from pgdyno.units import Better

SQL = Path(pgdyno.__file__).parent / "measure" / "sql"
MIB = 1 << 20


def both(
    probe: str, begin: list[dict], end: list[dict], after: list[dict] | None = None
) -> list[StoredReading]:
    found = [
        StoredReading(probe, Moment.BEGIN, 10.0, 0.001, begin),
        StoredReading(probe, Moment.END, 70.0, 0.001, end),
    ]
    return found if after is None else [*found, StoredReading(probe, Moment.AFTER, 80.0, 0.001, after)]


def table(name: str, **columns: float) -> dict:
    return {"kind": "table", "schema": "public", "name": name, **columns}


def accounts(size: int, *, dead: int, runs: int, updates: int = 500, hot: int = 350) -> dict:
    counts = {"n_tup_upd": updates, "n_tup_hot_upd": hot, "n_dead_tup": dead, "autovacuum_count": runs}
    return table("accounts", bytes=size, **counts)


READINGS = [
    *both("wal", [{"lsn_bytes": MIB, "wal_fpi": 5}], [{"lsn_bytes": 10 * MIB, "wal_fpi": 2005}]),
    *both(
        "checkpoints",
        [{"num_timed": 1, "num_requested": 2, "write_time": 500.0, "buffers_written": 100}],
        [{"num_timed": 1, "num_requested": 5, "write_time": 2000.0, "buffers_written": 700}],
    ),
    *both(
        "database",
        [
            {"blks_hit": 1000, "blks_read": 200, "size_bytes": 100 * MIB, "deadlocks": 0}
            | {"blk_read_time": 0.0, "xact_commit": 100, "xact_rollback": 1}
        ],
        [
            {"blks_hit": 9900, "blks_read": 300, "size_bytes": 140 * MIB, "deadlocks": 0}
            | {"blk_read_time": 0.0, "xact_commit": 1090, "xact_rollback": 11}
        ],
        [{"blks_hit": 9999, "blks_read": 999, "blk_read_time": 0.0, "size_bytes": 130 * MIB, "deadlocks": 9}],
    ),
    *both(
        "io",
        [],
        [
            {"backend_type": "checkpointer", "object": "relation", "context": "normal", "write_bytes": 8192}
            | {"extend_bytes": 0, "writes": 1, "write_time": 0.5, "extends": 2, "extend_time": 1.5},
            {"backend_type": "client backend", "object": "wal", "context": "normal", "write_bytes": 99999}
            | {"extend_bytes": 0, "writes": 9, "write_time": 9.5},
        ],
    ),
    *both(
        "relations",
        [accounts(MIB, dead=4, runs=1, updates=100, hot=50)],
        [accounts(3 * MIB, dead=9, runs=3)],
        [accounts(2 * MIB, dead=0, runs=3)],
    ),
    *both(
        "pgstattuple",
        [table("accounts", tuple_percent=90.0)],
        [table("accounts", tuple_percent=80.5)],
        [table("accounts", tuple_percent=81.5)],
    ),
    *both(
        "wraparound",
        [{"frozen_xid_age": 1000, "next_xid": 5000}],
        [{"frozen_xid_age": 900, "next_xid": 6000}],
    ),
]


EXPECTED = {
    "wal.bytes_per_tx": 9 * MIB / 1000,
    "wal.fpi_per_tx": 2.0,
    "wal.bytes_per_s": 9 / 4.5,  # of the time that the arm was driven: 10.0 to 14.5
    "wal.bytes": 9.0,
    "checkpoints.timed": 0.0,
    "checkpoints.requested": 3.0,
    "checkpoints.per_hour": 3 / (60 / 3600),  # of all time, also while other arms were driven
    "checkpoints.write_s": 1.5,
    "checkpoints.pages_checkpointer": 600.0,
    "database.tpm": 1000 / (4.5 / 60),  # of the time that the arm was driven
    "database.hit_share": 100 * 8900 / 9000,
    "database.blocks_read_per_tx": 0.1,
    "database.deadlocks": 0.0,
    "database.bytes_begin": 100.0,
    "database.bytes": 130.0,  # after the VACUUM
    "database.growth": 30.0,
    "database.growth_per_tx": 30 * MIB / 1000,
    "io.written_bytes_per_tx": 8.192,  # without WAL, which servers before 18 do not count there
    "io.write_us_per_tx": 2.0,  # with extensions, whose bytes are written, too
    "relations.hot_share": 75.0,
    "relations.dead_tuples": 9.0,  # before the VACUUM
    "relations.autovacuums": 2.0,
    "relation.hot_share:accounts": 75.0,
    "relation.bytes:accounts": 2.0,
    "relation.growth:accounts": 1.0,
    "relation.tuple_percent:accounts": 81.5,  # after the VACUUM, and its growth
    "relation.tuple_percent_growth:accounts": -8.5,
    "wraparound.xids_per_tx": 1.0,
    "wraparound.age": 900.0,
    "wraparound.age_growth": -100.0,
}


def test_values_are_those_of_a_hand_computed_table() -> None:
    found = telemetry_of_trial(trial(1), READINGS)
    assert {key: found.values.get(key) for key in EXPECTED} == pytest.approx(EXPECTED)
    assert found.relations == ["accounts"] and found.statements == []
    assert not found.missing


@pytest.mark.parametrize(
    "key",
    [
        "database.read_us_per_tx",  # 100 blocks were read in zero time: timing was off
        "wal.syncs_per_tx",  # not counted by this server
        "checkpoints.pages_per_tx",  # a part of the sum is unknown
        "replication.retained",  # there is no slot
    ],
)
def test_unknown_facts_have_no_value(key: str) -> None:
    assert key in METRICS
    assert key not in telemetry_of_trial(trial(1), READINGS).values


@pytest.mark.parametrize(("plans", "expected"), [(0, None), (1000, 0.05)])
def test_planning_time_is_unknown_if_it_is_not_tracked(plans: int, expected: float | None) -> None:
    row = {**statement(1000, 1.0), "plans": plans, "total_plan_time": 50.0 if plans else 0.0}
    found = telemetry_of_trial(trial(1), both("statements", [], [row])).values
    assert found.get("statements.plan_ms_per_tx") == expected
    assert found.get("statement.plan_mean_ms:SELECT ':'") == expected


def test_without_transactions_there_is_nothing_per_transaction() -> None:
    found = telemetry_of_trial(trial(1, transactions=None), READINGS).values
    assert not [key for key in found if "_per_tx" in key]
    assert found["wal.bytes"] == 9.0


def test_tables_with_the_same_name_have_their_schemas() -> None:
    rows = [{**table("t", bytes=MIB), "schema": schema} for schema in ("a", "b")]
    found = telemetry_of_trial(trial(1), both("relations", rows, rows))
    assert found.relations == ["a.t", "b.t"]
    assert found.values["relation.bytes:b.t"] == 1.0


def test_a_gauge_may_be_missing_at_the_end() -> None:
    # An index exceeded the limit of what is read, locks were released, a standby disconnected: no statistics
    # reset.
    index = {"kind": "index", "schema": "public", "name": "large", "avg_leaf_density": 90.0}
    readings = [
        *both(
            "pgstattuple",
            [table("accounts", tuple_percent=90.0), index],
            [table("accounts", tuple_percent=80.0)],
        ),
        *both("locks", [{"locktype": "relation", "mode": "AccessShareLock", "granted": 1, "locks": 3}], []),
        *both("replication", [{"kind": "standby", "name": "s", "replay_lag_bytes": 5}], []),
        *both("relations", [table("accounts", bytes=MIB)], [table("accounts", bytes=MIB)]),
    ]
    found = telemetry_of_trial(trial(1), readings)
    assert not found.missing
    assert found.values["relation.tuple_percent:accounts"] == 80.0
    assert "replication.replay_lag" not in found.values


def test_scans_before_and_after_the_other_readings_are_not_time_of_the_window() -> None:
    at_s = {Moment.BEGIN: (1.0, 10.0), Moment.END: (75.0, 70.0)}
    readings = [
        StoredReading(probe, moment, at, 0.001, [])
        for moment, times in at_s.items()
        for probe, at in zip(("pgstattuple", "locks"), times, strict=True)
    ]
    assert telemetry_of_trial(trial(1), readings).elapsed_s == 60.0


@pytest.mark.parametrize("probe", ["wal", "statements", "io"])
def test_counters_that_are_gone_at_the_end_were_reset(probe: str) -> None:
    assert telemetry_of_trial(trial(1), both(probe, [{"calls": 5, "lsn_bytes": 5}], [])).missing == {
        probe: RESET
    }


LISTED = 2


def reading_of(totals: Mapping[str, int]) -> list[dict]:
    """The statements with the most calls, and one row with the sums of the others."""
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    rows: list[dict] = [
        {"kind": "statement", "queryid": name, "toplevel": 1, "calls": totals[name], "stats_reset": 1.0}
        for name in ordered[:LISTED]
    ]
    if others := ordered[LISTED:]:
        calls = sum(totals[name] for name in others)
        rows.append({"kind": "others", "toplevel": 1, "calls": calls, "stats_reset": 1.0})
    return rows


CALLS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9))


@given(begin=CALLS, calls=CALLS)
def test_growth_with_changing_others_adds_up(begin: dict[str, int], calls: dict[str, int]) -> None:
    end = {name: begin.get(name, 0) + calls.get(name, 0) for name in {**begin, **calls}}
    found = grown("statements", reading_of(begin), reading_of(end))
    deltas = [row.deltas["calls"] for row in found]
    assert sum(deltas) == sum(calls.values())
    assert all(delta >= 0 for delta in deltas)


@pytest.mark.parametrize(("evictions", "missing"), [(3, {}), (4, {"statements": EVICTED})])
def test_statements_have_no_values_if_some_were_evicted(
    evictions: int, missing: Mapping[str, Missing]
) -> None:
    begin = [{**row, "dealloc": 3} for row in reading_of({"a": 5, "b": 4, "c": 3})]
    end = [{**row, "dealloc": evictions} for row in reading_of({"a": 9, "b": 8, "c": 7})]
    found = window(both("statements", begin, end), 10, 1.0)
    assert found.missing == missing
    assert found.delta("statements", "calls") == (None if missing else 12)


def test_others_that_decrease_were_reset_and_those_of_dropped_tables_are_unknown() -> None:
    begin, end = ([{"kind": "others", "calls": n, "seq_scan": n}] for n in (7, 5))
    with pytest.raises(StatisticsReset):
        grown("statements", begin, end)
    assert grown("relations", begin, end) == []


def test_a_counter_of_the_machine_that_decreased_has_no_difference() -> None:
    begin = {"disk_writes": 90.0, "cpu_busy_s": 1.0, "memory_dirty_bytes": 9.0}
    end = {"disk_writes": 4.0, "cpu_busy_s": 3.0, "memory_dirty_bytes": 1.0}
    assert telemetry_of_trial(trial(1), both("host", [begin], [end])).machine == {"cpu_busy_s": 2.0}


def statement(calls: int, mean_ms: float) -> dict:
    times = {"mean_exec_time": mean_ms, "stddev_exec_time": 0.0, "total_exec_time": calls * mean_ms}
    return {
        "kind": "statement",
        "queryid": "1",
        "query": "SELECT ':'",
        "calls": calls,
        "rows": calls,
        **times,
    }


def effects_of(trials: Sequence[Trial], telemetry: Mapping[int, TrialTelemetry]) -> Mapping[str, Effect]:
    arms = [arm(0, "12"), arm(1, "13")]
    return effects_on(arms, trials, compared_metrics(telemetry), Schedule.BLOCKS, 0.95, Method.STUDENT)[1]


def test_a_metric_of_telemetry_is_compared_like_any_other() -> None:
    telemetry, trials = {}, []
    for block in range(5):
        for of in range(2):
            number = 2 * block + of + 1
            mean_ms = (1.0 + 0.1 * block) * (1.25 if of else 1.0)
            trials.append(trial(number, block, of))
            readings = both("statements", [], [statement(100 + block, mean_ms)])
            telemetry[number] = telemetry_of_trial(trials[-1], [*readings, *READINGS])
    effects = effects_of(trials, telemetry)
    effect = effects[keyed("statement.mean_ms", "SELECT ':'")]
    assert effect.percent.value == pytest.approx(25)
    assert effect.percent.better is Better.LESS and effect.summary.n == 5
    assert effect.name == "mean time, SELECT ':'"
    assert split_key(effect.key) == ("statement.mean_ms", "SELECT ':'")
    # A counter that never grew or decreased has no ratio; that is not a difference of zero.
    assert "database.deadlocks" not in effects
    assert "wraparound.age_growth" not in effects


def test_a_level_is_a_geometric_mean_if_all_values_are_positive() -> None:
    found = level("wal.bytes_per_tx", {0: 100.0, 1: 400.0}, 0.95, Method.STUDENT)
    assert found is not None and found.value == pytest.approx(200)
    found = level("checkpoints.timed", {0: 0.0, 1: 3.0}, 0.95, Method.STUDENT)
    assert found is not None and found.value == pytest.approx(1.5)
    assert found.low is not None and found.unit == "checkpoints"
    found = level("relation.growth:accounts", {0: -2.0}, 0.95, Method.STUDENT)
    assert found is not None and (found.value, found.low) == (-2.0, None)
    assert level("wal.bytes", {}, 0.95, Method.STUDENT) is None


def test_a_value_that_is_zero_in_some_block_is_a_level_and_never_a_ratio() -> None:
    # A ratio over the one block with checkpoints in both arms would be selection bias.
    counts = {1: 2.0, 2: 3.0, 3: 0.0, 4: 1.0}
    telemetry = {
        number: TrialTelemetry({"checkpoints.timed": n, "wal.bytes": 8.0}, [], [], {})
        for number, n in counts.items()
    }
    trials = [trial(1, 0, 0), trial(2, 0, 1), trial(3, 1, 0), trial(4, 1, 1)]
    assert list(effects_of(trials, telemetry)) == ["wal.bytes"]
    found = telemetry_levels(trials[::2], telemetry, 0.95, Method.STUDENT)
    assert found["checkpoints.timed"].value == 1.0 and found["checkpoints.timed"].n == 2
    assert found["wal.bytes"].value == pytest.approx(8)


def test_a_wait_that_was_not_seen_in_a_trial_has_a_share_of_zero_there() -> None:
    telemetry = {
        1: TrialTelemetry(
            {"wait.share:running": 60.0, "wait.share:Lock": 40.0}, [], [], {}, ["running", "Lock"]
        ),
        2: TrialTelemetry({"wait.share:running": 100.0}, [], [], {}, ["running"]),
        3: TrialTelemetry({"wal.bytes": 1.0}, [], [], {}),  # its waits could not be sampled
    }
    trials = [trial(number, number) for number in telemetry]
    found = telemetry_levels(trials, telemetry, 0.95, Method.STUDENT)
    assert found["wait.share:Lock"].value == 20 and found["wait.share:Lock"].n == 2
    both = [trial(1, 0, 0), trial(2, 0, 1)]
    whole = {number: replace(telemetry[number], values=of) for number, of in filled(telemetry).items()}
    effects = effects_of(both, whole)
    assert "wait.share:Lock" not in effects
    assert "wait.share:running" in effects


def test_missing_values_are_reported_once_per_arm_and_reason() -> None:
    old, reset = Missing(Absence.OTHER, "the extension is not there"), RESET
    telemetry = {
        1: TrialTelemetry({}, [], [], {"io": old, "wal": reset}),
        2: TrialTelemetry({}, [], [], {"io": old, "locks": old}),
        3: TrialTelemetry({}, [], [], {}),
    }
    trials = [trial(1, 0, 0), trial(2, 1, 0), trial(3, 0, 1), trial(4, 1, 1)]
    found = telemetry_caveats([arm(0, "12"), arm(1, "16")], trials, telemetry)
    assert found == [
        Caveat.of("statistics-reset", probe="wal", arm="12", trials=1),
        Caveat.of("probe-unavailable", probes="io, locks", arm="12", reason=old.reason),
    ]


def sampled(probe: str, **of: float) -> SampleSeries:
    """20 seconds of samples, with counters that grow by this much each, and the sample at 13 half a second
    late.
    """
    at = np.arange(21.0)
    counts = (
        [grows * at for grows in of.values()] if probe == "host" else [np.full(21, n) for n in of.values()]
    )
    return SampleSeries(probe, ("at_s", "late_s", *of), np.array([at, 0.5 * (at == 13), *counts]).T)


CPU = {"cpu_busy_s": 1.0, "cpu_idle_s": 0.9, "cpu_iowait_s": 0.1, "cpu_steal_s": 0.1, "server_cpu_s": 0.6}


def test_series_cover_the_trials_own_slices() -> None:
    series = {
        "host": sampled("host", disk_read_bytes=2.0 * MIB, pressure_io_some_s=0.25, **CPU),
        "waits": sampled("waits", samples=10, running=15, **{"LWLock/WALWrite": 5}),
    }
    found = telemetry_of_trial(trial(1), [], series)
    expected = {
        "host.server_share": 30,
        "host.steal_share": 5,
        "host.rest_share": 15,
        "host.disk_read_per_s": 2,
        "host.io_pressure": 25,
        "waits.backends": 2,
        "wait.share:running": 75,
        "wait.share:LWLock/WALWrite": 25,
        "probes.late_s": 0.5,
    }
    assert {key: found.values.get(key) for key in expected} == pytest.approx(expected)
    assert found.waits == ["running", "LWLock/WALWrite"]
    assert {split_key(metric.key)[0] for metric in compared_metrics({1: found})} <= METRICS.keys()
    assert "host.driver_share" not in found.values


def test_in_a_duet_only_processes_of_a_server_belong_to_an_arm() -> None:
    # Two slices of 1 s, which samples do not resolve; but its server is driven from the first to the last.
    pieces = [
        Slice(n, Role.MEASURE, at, at, at + 1, at + 1, 0.1, 0.1, {}) for n, at in ((0, 10.0), (1, 11.0))
    ]
    playing = replace(trial(1), slices=pieces)
    series = {"host": sampled("host", **CPU), "waits": sampled("waits", samples=10, running=15)}
    found = telemetry_of_trial(playing, [], series, is_duet=True).values
    assert {key for key in found if key.startswith("host.")} == {"host.server_share"}
    assert found["host.server_share"] == pytest.approx(30)
    assert found["waits.backends"] == pytest.approx(1.5)
    assert not any(key.startswith("host.") for key in telemetry_of_trial(playing, [], series).values)


def test_a_gauge_is_reported_by_its_relevant_sample() -> None:
    at = np.arange(21.0)
    (span,) = [(piece.opened_s, piece.drained_s) for piece in trial(1).measured]
    inside = (at >= span[0]) & (at <= span[1])
    worst = at == at[inside][1]
    columns = ("cpu_busy_s", "cpu_idle_s", "cpu_iowait_s", "cpu_steal_s", "swap_out_bytes")
    gauges = {
        "memory_available_bytes": np.where(worst, 100.0, 900.0) * MIB,
        "memory_cached_bytes": np.where(at < 12, 40.0, 60.0) * MIB,
        "memory_dirty_bytes": np.where(worst, 8.0, np.nan) * MIB,
    }
    host = [at, 0 * at, at, at, 0 * at, 0 * at, 3.0 * MIB * at, *gauges.values()]
    server = [at, 0 * at, np.where(at % 2 == 0, 4.0, 0.0)]
    found = telemetry_of_trial(
        trial(1),
        [],
        {
            "host": SampleSeries("host", ("at_s", "late_s", *columns, *gauges), np.array(host).T),
            "server": SampleSeries("server", ("at_s", "late_s", "waiting_backends"), np.array(server).T),
        },
    ).values
    assert found["host.memory_available"] == 100
    assert found["host.page_cache"] == pytest.approx(np.mean(np.where(at < 12, 40.0, 60.0)[inside]))
    assert found["host.memory_dirty"] == 8
    assert found["host.swapped_out_per_s"] == pytest.approx(3)
    assert found["locks.waiting_backends"] == pytest.approx(np.mean(np.where(at % 2 == 0, 4.0, 0.0)[inside]))


def test_a_total_that_grows_with_throughput_has_no_better_direction() -> None:
    totals = [
        of
        for of in (*OF_TRIALS, *OF_RELATIONS)
        if "/" not in of.unit and of.unit != "%" and not of.key.startswith("replication.")
    ]
    assert {"database.growth", "relations.dead_tuples", "checkpoints.requested"} <= {of.key for of in totals}
    assert [of.key for of in totals if of.better is not Better.NEITHER] == []
    assert METRICS["database.growth_per_tx"].better is Better.LESS


def test_every_definition_is_valid() -> None:
    every = [*OF_TRIALS, *OF_RELATIONS, *OF_STATEMENTS, *OF_SAMPLES]
    assert len({of.key for of in every}) == len(every) and {of.key for of in every} < METRICS.keys()
    assert not [of.key for of in METRICS.values() if not of.unit or not of.name]
    assert not [of.key for of in every if not of.text]
    assert all(of.formula for of in (*OF_TRIALS, *OF_RELATIONS))
    assert {of.formula.kind for of in every if of.formula} == TEXTS.keys()
    assert all(math.isfinite(value) for value in telemetry_of_trial(trial(1), READINGS).values.values())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({}, "one kind of formula, or a text"),
        ({"ratio": ["a", "b"]}, "one kind of formula, or a text"),
        ({"share": ["a"]}, "share needs 2 columns"),
        ({"difference": ["a"], "counted_in": "kB"}, "counted_in"),
        ({"text": "t", "better": "higher"}, "higher"),
    ],
)
def test_an_invalid_definition_is_rejected(line: dict, message: str) -> None:
    whole = {"name": "n", "unit": "MiB", "better": "less", **line}
    with pytest.raises(ValueError, match=message):
        list(read_metrics({LATENCY: {}, "wal": {"x": whole}}))


@pytest.mark.parametrize("probe", sorted(COUNTERS.keys() - {"hardware"}))  # which runs no query
def test_every_counter_is_one_that_its_probe_reads(probe: str) -> None:
    text = (SQL / f"{probe}.sql").read_text(encoding="utf-8")
    text = re.sub(r"--.*", "", text)
    known = set(re.findall(r"\w+", text))
    assert COUNTERS[probe] <= known
    assert set(IDENTITY.get(probe, ())) <= known
    assert set(RESETS) >= set(re.findall(r"\bAS (\w*stats_(?:reset|since))\b", text))


def test_the_counters_of_19_are_read_as_differences() -> None:
    """No test runs this version."""
    begin, end = (
        {"kind": "statement", "query": "SELECT $1", "calls": n + 5}
        | {"generic_plan_calls": n, "custom_plan_calls": 5}
        for n in (5, 94)
    )
    wal = both("wal", [{"wal_fpi_bytes": 16_000}], [{"wal_fpi_bytes": 71_000}])
    w = window([*wal, *both("statements", [begin], [end])], 10, 1.0)
    assert w.delta("wal", "wal_fpi_bytes") == 55_000
    assert w.delta("statements", "generic_plan_calls") == 89
    assert w.delta("statements", "custom_plan_calls") == 0
