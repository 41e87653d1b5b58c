"""Output of ``pgdyno drive``."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from pgdyno.features.runs.command import Narrator, missed_rate, show_results, summarise, why_all_failed
from pgdyno.measure.engine_runs import EngineRun
from pgdyno.server.engine import DriveResult, KindResult, TargetResult
from pgdyno.study.workload_parameters import Pace, RequiredRate
from pgdyno.workloads.tpcc.parameters import TpccParameters

PACE = TpccParameters.PACE

# In alphabetical order, as the engine writes them.
COUNTS = {"failed": 33, "ok": 1_234_567, "retried": 55, "rolled_back": 22, "skipped": 44}
NONE = dict.fromkeys(COUNTS, 0)


def run_and_slice(counts: dict[str, int], ended: int) -> tuple[EngineRun, dict[str, Any]]:
    kinds = {"new_order": counts, "stock_level": NONE}
    measured = {
        "kinds": kinds,
        "counted_from_ns": 1_000_000_000,
        "closed_ns": 11_000_000_000,
        "driver_cpu_ns": {"user": 2_000_000, "system": 1_000_000},
        "abandoned": 0,
    }
    histograms = {
        name: [[value_ns, counts[of]]] if counts[of] else []
        for name, of, value_ns in (("latency", "ok", 2_000_000), ("skipped", "skipped", 5_000_000_000))
    }
    all_ended = {"ok": 90 + ended, "rolled_back": 10}  # including those of the warm-up
    kinds_found = {kind: KindResult(of, {}, histograms) for kind, of in kinds.items()}
    target = TargetResult(kinds_found, {"new_order": all_ended}, {}, {}, 0)
    result = DriveResult("done", None, [target], {"memory_peak_bytes": 1})
    totals = {"measure": [{"transactions": 100}], "end": [{"transactions": 100 + ended}]}
    return EngineRun(totals=totals, result=result), measured


def shown(found: dict[str, Any], width: int = 80) -> str:
    text = io.StringIO()
    show_results(found, Console(file=text, width=width, highlight=False))
    return text.getvalue()


def test_a_percentile_among_the_skipped_arrivals_is_a_lower_bound() -> None:
    found = summarise(*run_and_slice({**NONE, "ok": 800, "skipped": 200}, 800), PACE)
    assert (found["latency_ms"]["new_order"]["p50"], found["latency_ms"]["new_order"]["p90"]) == (2.0, 5000.0)
    assert found["lower_bounds"]["new_order"] == ["p90", "p95", "p99", "max"]
    assert shown(found).count("> 5,000.00") == 4 * len(found["lower_bounds"])


def test_every_count_is_below_its_heading() -> None:
    lines = shown(summarise(*run_and_slice(COUNTS, 300), PACE)).splitlines()
    heading = next(line for line in lines if "rolled back" in line)
    row = next(line for line in lines if "1,234,567" in line)
    under = {"ok": "1,234,567", "rolled back": "22", "failed": "33", "skipped": "44", "retried": "55"}
    for name, number in under.items():
        assert row[: heading.index(name) + len(name)].endswith(f" {number}")


def test_nothing_is_cut_off_on_a_terminal_of_80_columns() -> None:
    found = summarise(*run_and_slice(COUNTS, 300), PACE)
    assert "…" not in shown(found)
    assert {len(line.rstrip()) <= 80 for line in shown(found).splitlines()[1:]} == {True}
    assert shown(found).split() == shown(found, 200).split()
    assert "canceled" not in shown(found)


def test_the_drivers_cpu_time_is_divided_by_transactions_of_the_same_time() -> None:
    # The counted part is shorter than the time to which the CPU time belongs.
    run, measured = run_and_slice({**NONE, "ok": 200}, 300)
    found = summarise(run, measured, PACE)
    assert found["driver_cpu_us_per_transaction"] == 3000 / 300
    assert "10.0 µs CPU per transaction" in shown(found)
    del run.totals["end"]  # the last barrier of a run that was stopped
    assert summarise(run, measured, PACE)["driver_cpu_us_per_transaction"] == 3000 / 300


@pytest.mark.parametrize(("statements", "said"), [(190, ""), (189, "945 of 1,000 rows/s")])
def test_a_required_rate_that_was_missed_is_reported(statements: int, said: str) -> None:
    _, measured = run_and_slice({**NONE, "ok": statements}, 0)  # in 10 s
    required = RequiredRate(Pace("rows/s", "new_order", 50), 1000, 0.95)
    assert said in (found := missed_rate(measured, required)) and bool(found) == bool(said)
    assert missed_rate(measured, None) == ""


def test_transactions_without_a_response_are_reported() -> None:
    run, measured = run_and_slice(COUNTS, 300)
    text = shown(summarise(run, {**measured, "abandoned": 3}, PACE))
    assert "3 transactions canceled and counted as failed: no response in time" in text


@pytest.mark.parametrize(
    ("counts", "errors", "said"),
    [
        ({"ok": 1, "failed": 9}, [], ""),
        ({"rolled_back": 1, "failed": 9}, [], ""),
        ({}, [], ""),
        ({"failed": 9}, [], "no transaction succeeded, 9 failed"),
        (
            {"failed": 2, "retried": 4998},
            [("23505", "ERROR: duplicate key (SQLSTATE 23505)")],  # as the engine writes it
            "no transaction succeeded, 2 failed in 5,000 attempts: ERROR: duplicate key (SQLSTATE 23505)",
        ),
        (
            {"failed": 9},
            [("25006", "ERROR: cannot execute UPDATE\nin a read-only transaction"), ("40001", "later")],
            "no transaction succeeded, 9 failed: ERROR: cannot execute UPDATE / in a read-only transaction "
            "(SQLSTATE 25006): connect to a primary, in a session that is not read-only",
        ),
    ],
)
def test_a_run_without_a_success_reports_its_first_error(
    counts: dict[str, int], errors: list[tuple[str, str]], said: str
) -> None:
    run, measured = run_and_slice({**NONE, **counts}, 0)
    run.errors = [{"kind": "server", "sqlstate": code, "message": words} for code, words in errors]
    assert why_all_failed(run, measured) == said


def interval(kind: str, counts: dict[str, int], second: int = 0) -> dict[str, Any]:
    at = {"from_ns": second * 10**9, "to_ns": (second + 1) * 10**9}
    return {"event": "interval", "role": "measure", "kinds": {kind: counts}, "latency_ns": {"p99": 0}, **at}


def test_intervals_without_a_success_and_repeated_errors_are_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell = Narrator()
    for second in range(14):
        counts = {**NONE, "failed": 1000 + second}
        tell({"event": "error", "kind": "server", "sqlstate": "25006", "message": "ERROR: read-only"})
        tell(interval("new_order", counts, second))
    Narrator()(interval("event", {**NONE, "retried": 12_345}))
    assert capsys.readouterr().err.splitlines() == [
        "server: ERROR: read-only (SQLSTATE 25006)",
        "    1 s  measure          0 tx/s  no transaction succeeded, 1,000 failed",
        "    1 s  measure          0 tx/s  no transaction succeeded, 12,345 retried",
    ]


def test_an_interval_in_which_all_transactions_rolled_back_has_no_latency(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell = Narrator()
    tell(interval("new_order", {**NONE, "rolled_back": 7}))
    tell(interval("new_order", {**NONE, "rolled_back": 7, "ok": 1}, 1))
    assert capsys.readouterr().err.splitlines() == [
        "    1 s  measure          7 tx/s  no transaction committed",
        "    2 s  measure          8 tx/s  p99 0.00 ms",
    ]


def test_cpu_per_transaction_is_omitted_without_transactions() -> None:
    found = summarise(*run_and_slice(NONE, 0), PACE)
    assert found["driver_cpu_us_per_transaction"] is None
    assert "no transaction succeeded" in shown(found) and "µs" not in shown(found)


def test_percentiles_of_too_few_transactions_are_distinguished_from_none() -> None:
    found = summarise(*run_and_slice({**NONE, "ok": 20}, 20), PACE)
    text = shown(found)
    assert "start; –: too few transactions\n" in text
    row = next(line.split() for line in text.splitlines() if "2.00" in line)
    assert row[0] == "new_order" and "–" in row
