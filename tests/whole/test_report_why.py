"""Explanation of a difference, in every report format: the same sentence, the same parts, and a chart."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from report_forms import case_in, checked_json, report_of, tables_of
from rich.console import Console, Group
from synthetic_study import Synthetic

from pgdyno.analysis.comparison import Verdict
from pgdyno.report.html_format import to_html
from pgdyno.report.study_report import StudyReport
from pgdyno.report.terminal_format import _table
from pgdyno.report.why_section import STEPS_WIDTH, tables, why_sentences
from pgdyno.units import Better, Estimate

FASTER = Synthetic(effects=(1.0, 1.25), blocks=6, probed=True, noise=0.004)


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(FASTER)


def test_statements_that_exceed_the_total_are_reported_and_not_clipped(built: StudyReport) -> None:
    """In the test data: 4 ms of statements in a transaction of 2.7 ms."""
    assert built.only is not None
    (table,) = (table for table in tables_of(built) if "transaction by statement" in table.title)
    (outside,) = (row for row in table.rows if row[0] == "outside statements")
    assert outside[1].startswith("−")
    assert "exceed the whole" in table.note


def test_the_servers_timing_is_shown_with_the_sampled_wait_unless_it_is_zero(built: StudyReport) -> None:
    assert built.only is not None
    findings, (reason,) = built.only.findings, built.only.why
    assert "clock of the server" not in reason.tables[0].note
    for factor, expected in ((1.0, "155 µs (17) and 157 µs (18)"), (0.0, "")):
        levels = {
            arm: of
            | {key: Estimate(factor * (us + arm), "µs/tx", 6, Better.LESS) for key, us in WAL_TIMES.items()}
            for arm, of in findings.telemetry.levels.items()
        }
        timed = replace(findings, telemetry=replace(findings.telemetry, levels=levels))
        note = tables(reason.why, timed)[0].note.replace("\u00a0", " ")
        assert expected in note and ("clock of the server" in note) == bool(expected)


WAL_TIMES = {"wal.write_us_per_tx": 46.0, "wal.sync_us_per_tx": 109.0}


def test_the_json_adds_up(built: StudyReport) -> None:
    why = case_in(json.loads(checked_json(built)))["time_breakdowns"]["1"]
    for waterfall in (why["by_resource"], why["by_statement"]):
        for of in ("a_us", "b_us"):
            parts = sum(part[of] for part in waterfall["parts"])
            assert parts == pytest.approx(waterfall["total"][of])
        differences = sum(part["difference"]["value"] for part in waterfall["parts"])
        assert differences == pytest.approx(waterfall["total"]["difference"]["value"])


def test_the_csv_has_the_parts_of_each_block_and_they_add_up(built: StudyReport) -> None:
    why = case_in(json.loads(checked_json(built)))["time_breakdowns"]["1"]
    rows = [row for row in csv.DictReader(io.StringIO(built.csv())) if row["metric"].startswith("why.")]
    assert {(row["arm"], row["status"], row["unit"]) for row in rows} == {("18", "ok", "µs")}
    found = {(row["metric"], row["block"]): float(row["value"]) for row in rows}
    assert len(found) == len(rows)
    for name in ("by_resource", "by_statement"):
        parts = {part["key"]: part for part in why[name]["parts"]}
        for block, whole in why[name]["total"]["by_block"].items():
            assert found[f"why.{name}", block] == whole
            of_block = {key: found[f"why.{name}:{key}", block] for key in parts}
            assert of_block == {key: part["by_block"][block] for key, part in parts.items()}
            assert sum(of_block.values()) == pytest.approx(whole)


def test_the_picture_leads_from_one_arm_to_the_other(built: StudyReport) -> None:
    page = to_html(built)
    (steps, *_) = re.findall(r'<svg[^>]*class="steps".*?</svg>', page, re.DOTALL)
    assert re.search(r"17: [\d,\u00a0]+ µs.*on CPU.*18: [\d,\u00a0]+ µs", steps, re.DOTALL)
    assert 'class="step less"' in steps
    for place in re.findall(r'x="(-?[\d.]+)"', steps):
        assert 0 <= float(place) <= STEPS_WIDTH


def test_a_difference_between_arms_at_their_own_rates_is_not_explained() -> None:
    """Each arm was driven at its own capacity: another load has another latency and CPU time."""
    wanted = replace(FASTER, capacity="p99 < 20ms", slices=1)
    built = report_of(wanted)
    assert built.only is not None
    assert built.only.why == []
    of_load = [t.title for t in tables_of(built) if t.title.startswith(("Latency", "Change in", "Thr"))]
    assert len(of_load) >= 3
    assert all(", each arm at its own rate" in title for title in of_load)


def test_the_sentence_for_several_arms_agrees_with_the_verdict() -> None:
    built = report_of(replace(FASTER, effects=(1.0, 1.25, 1.25)))
    assert built.only is not None
    for comparison in built.only.findings.comparisons:
        reason = built.only.findings.time_breakdowns[comparison.arm.arm]
        assert comparison.primary is not None
        assert reason.by_resource is not None
        assert reason.by_resource.total.difference.confidence == comparison.primary.summary.confidence


def test_on_80_columns_the_table_keeps_both_arms_and_the_names_of_the_parts() -> None:
    built = report_of(replace(FASTER, effects=(1.0, 1.25, 1.25)))
    assert built.only is not None
    told = built.only.why[0].tables[0]
    long = ["client, network, unattributed", "12,345", "11,111", "−1,234 [−1,300, −1,168; 98.3%] *"]
    table = replace(told, rows=[*told.rows, long])
    console = Console(width=80, record=True, file=StringIO())
    console.print(Group(*_table(table, 80)))
    said = console.export_text()
    head = next(line for line in said.splitlines() if line.lstrip().startswith("part"))
    assert "A: 17" in head and "B − A" in head and head.count(":") == 2
    assert all(len(line) <= 80 for line in said.splitlines()[1:])
    assert "whole" in said


def test_parts_far_below_the_difference_are_not_presented_as_its_explanation(built: StudyReport) -> None:
    assert built.only is not None
    why = replace(built.only.why[0].why, by_statement=None)
    assert why.by_resource is not None
    assert not any("not attributed" in sentence for sentence in why_sentences(why, Verdict.FASTER))
    small = [
        replace(part, difference=replace(part.difference, value=part.difference.value / 50))
        for part in why.by_resource.parts
    ]
    *_, last = why_sentences(replace(why, by_resource=replace(why.by_resource, parts=small)), Verdict.FASTER)
    assert re.fullmatch(
        r"These parts are \d\.\d% of the difference; the rest is not attributed\.",
        last.replace("\u00a0", " "),
    )
