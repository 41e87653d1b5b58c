"""Telemetry compared with raw numbers: pooled moments with numpy, deltas with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analysis.telemetry.counters import RESET, Growth, Missing, Window, window
from pgdyno.analysis.telemetry.trial_telemetry import Moments, statements
from pgdyno.results.records import Moment, StoredReading
from pgdyno.study.defaults import Absence

times_ms = st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=50)


def reading(
    probe: str,
    moment: str,
    rows: list[dict] | None,
    at_s: float = 0.0,
    reason: str = "",
    absence: Absence | None = None,
) -> StoredReading:
    return StoredReading(probe, Moment(moment), at_s, 0.001, rows, reason, absence)


def of_values(values: np.ndarray) -> dict[str, float]:
    """Aggregates as in pg_stat_statements: its standard deviation is that of all calls, with divisor n."""
    return {
        "calls": len(values),
        "total_exec_time": float(values.sum()),
        "mean_exec_time": float(values.mean()),
        "stddev_exec_time": float(values.std()),
    }


@given(before=times_ms, during=times_ms)
def test_the_moments_of_the_window_are_numpys_of_the_raw_times(
    before: list[float], during: list[float]
) -> None:
    every = np.array(before + during)
    both = Moments.of(len(every), float(every.mean()), float(every.std()))
    found = both - Moments.of(len(before), float(np.mean(before)), float(np.std(before)))
    assert found.n == len(during)
    assert found.mean == pytest.approx(np.mean(during), rel=1e-9, abs=1e-9 * float(every.max()))
    # Differences of large numbers lose digits: seven of the largest remain, however different they are.
    assert found.stddev == pytest.approx(np.std(during), rel=1e-6, abs=1e-6 * float(every.max()))


@given(first=times_ms, second=times_ms)
def test_two_users_of_one_statement_are_one_sample(first: list[float], second: list[float]) -> None:
    found = Moments.of(len(first), float(np.mean(first)), float(np.std(first)))
    found += Moments.of(len(second), float(np.mean(second)), float(np.std(second)))
    every = np.array(first + second)
    assert (found.n, found.mean) == pytest.approx((len(every), every.mean()))
    assert found.stddev == pytest.approx(every.std(), abs=1e-9 * float(every.max()))


def test_a_long_history_before_the_window_does_not_drown_its_standard_deviation() -> None:
    rng = np.random.default_rng(1)
    before, during = rng.lognormal(0, 1, 2_000_000), rng.lognormal(0.5, 0.5, 1000)
    growth = Growth(
        {"query": "q", **of_values(before)}, {"query": "q", **of_values(np.concatenate([before, during]))}
    )
    (found,) = statements([growth])
    assert found.calls == 1000
    assert found.time_ms.mean == pytest.approx(during.mean(), rel=1e-6)
    assert found.time_ms.stddev == pytest.approx(during.std(), rel=1e-5)


def test_a_statement_is_one_over_all_its_users_and_ids() -> None:
    rng = np.random.default_rng(2)
    times = [rng.exponential(3, n) for n in (40, 60)]
    rows = [
        {"kind": "statement", "queryid": str(i), "username": "u", "query": "UPDATE t", "rows": 2 * len(of)}
        | of_values(of)
        | {"shared_blks_hit": 10 * len(of)}
        for i, of in enumerate(times)
    ]
    (found,) = statements([Growth({}, row) for row in rows])
    every = np.concatenate(times)
    values = found.values(of_all_ms=2 * float(every.sum()))
    assert values["statement.calls"] == 100
    assert values["statement.mean_ms"] == pytest.approx(every.mean())
    assert values["statement.stddev_ms"] == pytest.approx(every.std())
    assert values["statement.share_of_time"] == pytest.approx(50)
    assert values["statement.rows_per_call"] == pytest.approx(2)
    assert values["statement.blocks_hit_per_call"] == pytest.approx(10)
    assert "statement.wal_bytes_per_call" not in values  # a server before 13


def test_statements_without_calls_in_the_window_are_omitted() -> None:
    row = {"query": "q", **of_values(np.array([1.0, 2.0]))}
    assert statements([Growth(row, row)]) == []


WAL = (
    {"lsn_bytes": 1000, "wal_fpi": 7, "stats_reset": 5.0},
    {"lsn_bytes": 4000, "wal_fpi": 9, "stats_reset": 5.0},
)


def two(probe: str, begin: dict, end: dict) -> list[StoredReading]:
    return [reading(probe, "begin", [begin], 10.0), reading(probe, "end", [end], 40.0)]


def test_differences_are_those_of_a_hand_computed_table() -> None:
    w = window(two("wal", *WAL), transactions=600, driven_s=15.0)
    assert (w.delta("wal", "lsn_bytes"), w.delta("wal", "wal_fpi")) == (3000, 2)
    assert w.delta("wal", "wal_sync") is None and w.delta("io", "reads") is None
    assert w.elapsed_s == 30.0


@pytest.mark.parametrize(
    "end",
    [
        {"lsn_bytes": 4000, "wal_fpi": 6, "stats_reset": 5.0},  # a counter decreased
        {"lsn_bytes": 4000, "wal_fpi": 9, "stats_reset": 6.0},  # reset, and above the old value again
        {"lsn_bytes": 4000, "wal_fpi": 9},  # known at the start, and not at the end
    ],
)
def test_reset_counters_give_no_value(end: dict) -> None:
    w = window(two("wal", WAL[0], end), 600, 15.0)
    assert w.missing == {"wal": RESET}
    assert w.delta("wal", "lsn_bytes") is None and "wal" not in w.last


def test_a_reset_of_one_probe_leaves_the_others() -> None:
    readings = two("wal", WAL[0], {"lsn_bytes": 0, "wal_fpi": 0, "stats_reset": 9.0})
    readings += two("database", {"blks_hit": 10, "size_bytes": 900}, {"blks_hit": 30, "size_bytes": 800})
    w = window(readings, 600, 15.0)
    assert w.delta("database", "blks_hit") == 20  # a size may decrease: it is not a counter
    assert list(w.missing) == ["wal"]


@pytest.mark.parametrize("moment", ["begin", "end"])
def test_a_probe_without_a_reading_passes_its_reason_on(moment: str) -> None:
    other = {"begin": "end", "end": "begin"}[moment]
    readings = [
        reading("io", moment, None, reason="needs PostgreSQL 16", absence=Absence.VERSION),
        reading("io", other, [{"reads": 1}]),
    ]
    w = window(readings, 1, 1.0)
    assert w.missing == {"io": Missing(Absence.VERSION, "needs PostgreSQL 16")}
    assert w.delta("io", "reads") is None


def test_a_probe_that_was_read_once_reports_it() -> None:
    w = window([reading("locks", "end", [{"locks": 1}])], 1, 1.0)
    assert "both ends" in w.missing["locks"].reason


def io(kind: str, **counts: float) -> dict:
    return {"backend_type": kind, "object": "relation", "context": "normal", **counts}


def test_a_row_that_appears_grew_from_nothing_and_one_that_vanishes_was_reset() -> None:
    begin = [io("client backend", reads=5)]
    end = [io("client backend", reads=8), io("autovacuum worker", reads=4)]
    w = window([reading("io", "begin", begin), reading("io", "end", end)], 1, 1.0)
    assert w.delta("io", "reads") == 7
    w = window([reading("io", "begin", end), reading("io", "end", begin)], 1, 1.0)
    assert w.missing == {"io": RESET}


def statement(queryid: str, calls: int, **more: float) -> dict:
    row = {"kind": "statement", "queryid": queryid, "query": queryid, "calls": calls, "mean_exec_time": 1.0}
    return row | {"stddev_exec_time": 0.0, "total_exec_time": float(calls)} | more


def test_a_statement_that_may_have_been_omitted_before_has_no_known_start() -> None:
    others = {"kind": "others", "calls": 50, "total_exec_time": 50.0}
    begin = [statement("a", 10), others]
    end = [statement("a", 30), statement("b", 40), {**others, "calls": 20, "total_exec_time": 20.0}]
    w = window([reading("statements", "begin", begin), reading("statements", "end", end)], 1, 1.0)
    assert [of.text for of in statements(w.growths["statements"])] == ["a"]
    w = window([reading("statements", "begin", begin[:1]), reading("statements", "end", end[:2])], 1, 1.0)
    assert [of.text for of in statements(w.growths["statements"])] == ["b", "a"]


def test_a_statement_that_was_evicted_and_returned_is_a_reset() -> None:
    begin, end = statement("a", 10, stats_since=1.0), statement("a", 30, stats_since=2.0)
    w = window(two("statements", begin, end), 1, 1.0)
    assert w.missing == {"statements": RESET}
    gone = [reading("statements", "begin", [begin]), reading("statements", "end", [])]
    assert window(gone, 1, 1.0).missing == {"statements": RESET}


def test_a_dropped_table_is_omitted() -> None:
    a, b = ({"kind": "table", "schema": "public", "name": name, "n_tup_upd": 1} for name in "ab")
    w = window([reading("relations", "begin", [a, b]), reading("relations", "end", [a])], 1, 1.0)
    assert w.delta("relations", "n_tup_upd") == 0 and not w.missing


def test_a_window_of_no_readings_has_nothing() -> None:
    w = window([], None, 0.0)
    assert isinstance(w, Window) and w.elapsed_s is None and not w.missing
