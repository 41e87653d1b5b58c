"""Wait events by statement: from the sampler to the table, and from a bar to the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from report_forms import report_of
from synthetic_study import Synthetic
from synthetic_telemetry import SELECT, UPDATE, readings, series, statement, trial

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.telemetry.samples import client_waits
from pgdyno.analysis.telemetry.trial_telemetry import WaitSamples, telemetry_of_trial
from pgdyno.analysis.time_breakdown import CPU, counted_s
from pgdyno.features.statement_waits.section import EVENTS_MAX, STATEMENTS_MAX, shown, statement_waits, table
from pgdyno.features.waterfalls.section import details_of_parts
from pgdyno.measure.sampler import backends_by_wait
from pgdyno.results.records import SampleSeries

WAL = "LWLock/WALWrite"
Waits = Mapping[tuple[str | None, str], float]


def findings_with(*of_arms: Waits) -> Findings:
    """Return findings in which each trial of an arm has these mean numbers of backends."""
    found = report_of(Synthetic(effects=(1.0, 1.25), blocks=6, probed=True)).findings.first
    samples = WaitSamples({"running": 1.0}, 100)
    arms = {one.trial: one.arm for one in found.trials}
    by_trial = {
        of: replace(one, statement_waits=of_arms[arms[of]], time=replace(one.time, wait_samples=samples))
        for of, one in found.telemetry.by_trial.items()
    }
    return replace(found, telemetry=replace(found.telemetry, by_trial=by_trial))


def test_backends_are_counted_by_statement_unless_they_wait_for_workers() -> None:
    rows = [
        {"wait": WAL, "query_id": "-7", "backends": 2.0},
        {"wait": WAL, "query_id": "8", "backends": 1.0},
        {"wait": "running", "backends": 1.0},
        {"wait": "IPC/ExecuteGather", "leader": "5", "query_id": "9", "backends": 1.0},
        {"wait": "running", "leader": "5", "pid": 6.0, "backends": 1.0},
    ]
    assert backends_by_wait(rows) == {
        WAL: 3.0,
        "running": 1.0,
        f"statement -7 {WAL}": 2.0,
        f"statement 8 {WAL}": 1.0,
        "worker running": 1.0,
    }


def test_samples_of_statements_have_their_texts_and_change_no_other_number() -> None:
    (*others, waits) = series(0, 14.0)
    ids = [statement(text, 1, 1.0)["queryid"] for text in (UPDATE, SELECT)]
    names = [f"statement {ids[0]} {WAL}", f"statement {ids[1]} running", f"statement 12345 {WAL}"]
    points = np.column_stack([waits.points, np.tile([1.0, 4.0, 0.5], (len(waits.points), 1))])
    more = SampleSeries("waits", (*waits.columns, *names), points)
    assert client_waits(more) == client_waits(waits) == ["running", WAL]
    plain, found = (
        telemetry_of_trial(trial(1), readings(0, 1000, 14.0), {one.probe: one for one in [*others, of]})
        for of in (waits, more)
    )
    # Per row, 5 samples found 6 running and 2 waiting backends. One statement has no known text.
    assert found.statement_waits == pytest.approx(
        {(UPDATE, WAL): 0.2, (None, WAL): 0.2, (SELECT, "running"): 0.8, (None, "running"): 0.4}
    )
    assert found.values == plain.values and not plain.statement_waits
    assert found.time.wait_samples and plain.time.wait_samples
    assert found.time.wait_samples.events == plain.time.wait_samples.events


def test_times_are_means_per_transaction_over_the_trials_of_an_arm() -> None:
    findings = findings_with({(UPDATE, WAL): 2.0, (SELECT, "running"): 1.0}, {(UPDATE, WAL): 0.5})
    wal, running = statement_waits(findings)
    assert (wal.event, wal.statement, running.event, running.statement) == (WAL, UPDATE, "running", SELECT)
    each_us = [
        np.mean([1e6 * counted_s(one) / one.counts.executed for one in findings.trials if one.arm == arm])
        for arm in (0, 1)
    ]
    assert wal.us == pytest.approx({0: 2.0 * each_us[0], 1: 0.5 * each_us[1]})
    assert running.us == pytest.approx({0: each_us[0]})
    found = table(findings)
    assert found.columns == ("wait event", "statement", "17, µs/tx", "18, µs/tx")
    assert [row[:2] for row in found.rows] == [
        [f"WAL write/sync: {WAL}", UPDATE],
        ["executing or runnable", SELECT],
    ]
    assert found.rows[1][3] == "0"


def test_the_largest_events_have_their_largest_statements_and_the_sum_of_the_others() -> None:
    waits: Waits = {
        (f"SELECT {n}", f"IO/E{event}"): 100.0 - event - n for event in range(12) for n in range(5)
    }
    spread: Waits = {(f"SELECT {n}", "IO/Spread"): 10.0 for n in range(60)}
    every = statement_waits(findings_with({**waits, **spread, (None, "IO/E0"): 7.0}, {}))
    found = shown(every)
    assert list(found) == ["IO/Spread", *(f"IO/E{event}" for event in range(EVENTS_MAX - 1))]
    for event, of in found.items():
        # Each of those that spread over 60 statements is too short for a row.
        assert len(of) == (1 if event == "IO/Spread" else STATEMENTS_MAX + 1) and of[-1].statement is None
        whole = sum(one.us[0] for one in every if one.event == event)
        assert sum(one.us[0] for one in of) == pytest.approx(whole)
    few: Waits = {("a", "IO/E0"): 100.0, ("b", "IO/E0"): 0.9}
    assert [one.statement for one in shown(statement_waits(findings_with(few, few)))["IO/E0"]] == ["a"]


def test_an_arm_or_trial_without_ids_of_statements_is_unknown_and_not_zero() -> None:
    waits: Waits = {(UPDATE, WAL): 2.0}
    findings = findings_with(waits, {})
    assert [row[3] for row in table(findings).rows] == ["–"]
    both = findings_with(waits, waits)
    (known,) = statement_waits(both)
    first = both.trials[0].trial
    by_trial = {**both.telemetry.by_trial, first: findings.telemetry.by_trial[both.trials[1].trial]}
    (some,) = statement_waits(replace(both, telemetry=replace(both.telemetry, by_trial=by_trial)))
    assert some.us == pytest.approx(known.us, rel=0.05)


def test_a_bar_leads_to_the_statements_in_its_wait_events() -> None:
    findings = findings_with({(UPDATE, WAL): 2.0, (SELECT, "running"): 1.0}, {})
    addresses = details_of_parts(findings, "18")
    assert addresses["wal"] == addresses[CPU] == "#wait-events-by-statement"
    assert addresses[f"statement:{UPDATE}"] == "#statements"


def test_without_ids_of_statements_there_is_no_table() -> None:
    findings = findings_with({}, {(None, WAL): 2.0})
    assert not table(findings).rows
    assert set(details_of_parts(findings, "18").values()) == {"#telemetry-wait-events", "#statements"}
