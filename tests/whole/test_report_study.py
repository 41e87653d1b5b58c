"""Report of a study with several cases: averages over cases, and each case."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from report_forms import FORMS, on_terminal, only, plain, report_of
from several_hosts import LARGE, findings_of
from synthetic_study import HOST, Synthetic, written_study

from pgdyno.analysis.statistics.intervals import Method, level_of
from pgdyno.caveats import Caveat, Rank
from pgdyno.cli.report import read_findings
from pgdyno.features.hosts.findings import find_hosts
from pgdyno.features.hosts.sections import build_hosts
from pgdyno.features.published.section import with_measured_columns
from pgdyno.features.published.tables import Agreement, MeasuredCell, MeasuredTable, published_in
from pgdyno.report.answer import caveats_section
from pgdyno.report.document import ShownCaveat
from pgdyno.report.result_tables import level_text
from pgdyno.report.study_report import StudyReport, _shown_caveats, build_study
from pgdyno.results.records import LOST, NOT_THE_QUESTION
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import Better, Estimate

CHANGE = {"key": "workload.warehouses", "before": "2000", "after": "16", "why": "the memory is smaller"}
CASES = (
    Synthetic(effects=(1, 1.2), levels={"clients": "8"}, blocks=6, slices=4, changes=[CHANGE]),
    Synthetic(effects=(1, 0.9), levels={"clients": "64"}, blocks=6, slices=4, seed=2),
    Synthetic(effects=(1, 1.2), levels={"clients": "500"}, blocks=6, slices=4, seed=3),
)


@pytest.fixture
def built() -> StudyReport:
    return report_of(*CASES)


def test_the_average_is_the_geometric_mean_of_the_ratios(built: StudyReport) -> None:
    (over,) = built.findings.over_cases
    primaries = [comparison.primary for comparison in over.comparisons.values()]
    means = [np.mean(list(primary.log_ratios.values())) for primary in primaries if primary is not None]
    assert over.average is not None and len(means) == 3
    assert over.average.summary.mean == pytest.approx(float(np.mean(means)))


def test_rates_and_latencies_have_no_average() -> None:
    limited = replace(CASES[1], fixed_rate_per_s=500.0)
    built = report_of(CASES[0], limited)
    findings = built.findings
    assert {of.primary.better for of in findings.cases} == {Better.MORE, Better.LESS}
    assert [over.average for over in findings.over_cases] == [None]
    text = on_terminal(built)
    assert "rates and latencies: no average" in text and "no valid block" not in text


def test_averages_of_several_arms_are_one_family() -> None:
    cases = [replace(of, effects=(1, 1.2, 1.2), names=("16", "17", "18")) for of in CASES]
    of_two = report_of(*(replace(of, effects=(1, 1.2), names=("16", "17")) for of in CASES)).findings
    averages = [over.average for over in report_of(*cases).findings.over_cases]
    (alone,) = [over.average for over in of_two.over_cases]
    assert alone is not None and alone.summary.confidence == 0.95
    levels = [average.summary.confidence for average in averages if average is not None]
    assert max(levels) == pytest.approx(0.975)


def test_programs_get_each_case_as_they_get_a_comparison(built: StudyReport) -> None:
    found = json.loads(FORMS["json"](built))
    levels = [case["study"]["levels"] for case in found["study"]["cases"]]
    assert levels == [{"clients": n} for n in ("8", "64", "500")]
    assert found["study"]["cases"][0]["study"]["changes"] == [CHANGE]
    assert [one["verdict"] for one in found["verdicts"]] == ["faster", "slower", "faster"]
    assert found["study"]["over_cases"][0]["verdicts"] == {"faster": 2, "slower": 1}
    rows = list(csv.DictReader(io.StringIO(FORMS["csv"](built))))
    assert {row["case"] for row in rows} == {"clients 8", "clients 64", "clients 500"}


def test_an_average_names_its_baseline_if_exclusions_leave_cases_different_ones() -> None:
    fewer = replace(CASES[1], names=("16", "18"))
    text = plain(FORMS["summary"](report_of(CASES[0], fewer)))
    assert "over 2 cases:" in text and "18 vs. 17: +" in text and "18 vs. 16: −" in text


def test_a_caveat_of_some_cases_names_them() -> None:
    stolen = Caveat.of("builds-differ", difference="gcc against clang")
    alone = Synthetic(levels={"clients": "9"}, blocks=6, caveats=[stolen])
    text = " ".join(plain(on_terminal(report_of(*CASES, alone))).split())
    assert "- clients 9: " in text and "gcc against clang" in text


OF_18 = {"server": "18"}
PUBLISHED = {
    "notes": [],
    "tables": [
        {
            "title": "New orders by users",
            "metric": "nopm",
            "columns": [
                {"title": "users"},
                {"title": "18", "levels": OF_18},
                {"title": "change", "show": "change", "levels": OF_18},
            ],
            "rows": [
                {
                    "cells": ["8", 1000, {"value": 50, "corrected": 40, "note": "the base was wrong"}],
                    "levels": {"clients": "8"},
                },
                {"cells": ["9", 1100, 51], "levels": {"clients": "8"}},
                {"cells": ["7", 900, 1], "levels": {"clients": "7"}},
            ],
        }
    ],
}


def test_omitted_parts_and_notes_of_the_source_are_below_its_tables() -> None:
    published = {**PUBLISHED, "not_repeated": ["Load time: not by settings."], "notes": ["Each is one run."]}
    built = report_of(replace(CASES[0], published=published))
    for form in ("terminal", "md", "html"):
        text = plain(FORMS[form](built))
        assert 0 < text.index("New orders by users") < text.index("Each is one run."), form
        assert "Load time: not by settings." in text, form
    found = json.loads(FORMS["json"](built))["more"]["published"]
    assert found["not_repeated"] == ["Load time: not by settings."]
    assert found["notes"] == published["notes"]


def test_a_published_chart_has_its_counterpart() -> None:
    published = {"tables": [{**PUBLISHED["tables"][0], "chart": True}]}
    arms = ({"server": "17"}, OF_18)
    built = report_of(*[replace(case, published=published, arms=arms) for case in CASES])
    panels = [
        panel for section in built.sections for panel in section.plots() if panel.title.startswith("New")
    ]
    assert [panel.title for panel in panels] == [f"New orders by users, {of}" for of in ("published", "here")]
    assert [panel.picture.count("<circle") for panel in panels] == [3, 2]  # 7 users were not run
    assert ">NOPM</text>" in panels[1].picture
    assert "New orders by users, here" in FORMS["html"](built)


LOST_QUESTION = {"key": f"{LOST}data : memory", "before": "5.56", "after": "0.2", "why": "too small"}
SAID = f"{NOT_THE_QUESTION}: data : memory 5.56 → 0.2 (too small)."


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("cases", [1, 3])
def test_the_verdict_has_the_lost_question_and_the_covered_share_of_the_recorded_time(
    cases: int, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkloadParameters, "coverage", 0.7999)
    given = [
        [replace(case, changes=[LOST_QUESTION], host=of) for case in CASES[:cases]] for of in (HOST, LARGE)
    ]
    studies = {name: read_findings(written_study(*of)) for name, of in zip("ab", given[:hosts], strict=False)}
    built: Any = build_hosts(find_hosts(studies)) if hosts > 1 else build_study(studies["a"])
    verdict = (only(built) if hosts == cases == 1 else built).headlines[0]
    for form in ("terminal", "summary", "md", "html"):
        text = " ".join(unescape(plain(FORMS[form](built))).split())
        assert 0 <= text.index(SAID) < text.index(" ".join(plain(verdict.claim).split())), form
        assert "; covers 79% of the recorded time" in text
        assert "The scripts cover 79% of the recorded execution time" in text
    found = json.loads(FORMS["json"](built))
    assert (found if hosts == 1 else found["files"]["a"])["sentences"][""]["lost"] == [SAID]
    rows = list(csv.DictReader(io.StringIO(FORMS["csv"](built))))
    assert {row["lost_question"] for row in rows} == {SAID}
    low = [one.wording.rank for one in studies["a"].first.caveats if one.kind == "low-coverage"]
    assert low == [Rank.CHANGES_ANSWER]


def test_scripts_that_cover_80_percent_raise_no_caveat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkloadParameters, "coverage", 0.8)
    covered = read_findings(written_study(CASES[0]))
    assert "low-coverage" not in {one.kind for one in covered.first.caveats}


def test_a_question_lost_on_one_of_two_hosts_is_lost() -> None:
    given = {"a": CASES[0], "b": replace(CASES[0], changes=[LOST_QUESTION], host=LARGE)}
    built = build_hosts(find_hosts(findings_of(**given)))
    assert built.lost == SAID
    rows = list(csv.DictReader(io.StringIO(FORMS["csv"](built))))
    assert {(row["file"], row["lost_question"]) for row in rows} == {("a", ""), ("b", SAID)}


def test_an_effect_of_opposite_sign_is_reported_with_probable_reasons() -> None:
    published = {"tables": [{**PUBLISHED["tables"][0], "rows": [{"cells": ["8", 1000, -35]}]}]}
    fit = {"key": "data : shared_buffers", "before": "820", "after": "1.64", "why": "little time"}
    machine = {"key": "fit.machine", "before": "56 cores", "after": "2 cores", "why": ""}
    of = replace(
        CASES[0], published=published, changes=[machine, fit], levels={}, arms=({"server": "17"}, OF_18)
    )
    built = report_of(of)
    published_here = published_in(built.findings.cases)
    assert published_here is not None
    (change,) = published_here.changes
    assert change.agreement is Agreement.OPPOSITE
    for form in ("terminal", "md", "html"):
        text = " ".join(unescape(plain(FORMS[form](built))).replace("\\", "").split())
        assert re.search(r"source −35\.0%, here \+2\d\.\d% \(95% CI \[.*\]\): opposite sign", text), form
        assert "data : shared_buffers 820 → 1.64; other hardware" in text, form
    (entry,) = json.loads(FORMS["json"](built))["more"]["published"]["changes"]
    assert (entry["published_percent"], entry["agreement"]) == (-35, "opposite sign")
    page = FORMS["html"](built)
    assert not re.search(r'</h2>\s*(<div class="medium">\s*</div>)?\s*</section>', page)  # no empty section


def test_a_published_table_too_wide_for_the_terminal_has_a_line_for_each_number() -> None:
    built = report_of(replace(CASES[0], published=PUBLISHED))
    (table,) = built.tables("published")
    assert table.narrow is not None
    assert [row[:2] for row in table.narrow.rows] == [
        ["8", ""],
        ["  18", table.rows[0][1]],
        ["  change, %", table.rows[0][3]],
        ["9", ""],
        ["  18", table.rows[1][1]],
        ["  change, %", table.rows[1][3]],
        ["7", ""],
        ["  18", table.rows[2][1]],
        ["  change, %", table.rows[2][3]],
    ]
    assert [row[2] for row in table.narrow.rows[1:3]] == [table.rows[0][2], table.rows[0][4]]
    shown = plain(on_terminal(built, 60))
    assert max(map(len, shown[shown.index("New orders by users") :].splitlines())) <= 60


def a_cell(text: str, unit: str, value: float | None, ours: Estimate | None = None) -> MeasuredCell:
    return MeasuredCell(text, value, None, unit, "", False, ours)


def test_a_number_of_a_published_table_has_its_unit_in_the_cell_or_the_heading() -> None:
    size = Estimate(215.0, "MB", 2, Better.NEITHER)
    rate = Estimate(2000.0, "tx/s", 2, Better.MORE)
    rows = [
        [a_cell("size", "", None), a_cell("118", "GB", 118.0, size), a_cell("1978", "tx/s", 1978.0, rate)],
        [a_cell("time", "", None), a_cell("33 min", "min", 33.0), a_cell("", "tx/s", None)],
    ]
    found = with_measured_columns(MeasuredTable("t", ["of", "then", "rate"], rows, []), 0.95)
    assert list(found.columns) == ["of", "then", "then, here", "rate, tx/s", "rate, tx/s, here"]
    assert [plain(cell) for cell in found.rows[0]] == ["size", "118 GB", "215 MB", "1,978", "2,000"]
    assert [plain(cell) for cell in found.rows[1]] == ["time", "33 min", "", "", ""]


def test_a_line_of_a_narrow_table_has_the_whole_name_of_its_row() -> None:
    size = Estimate(215.0, "MB", 2, Better.NEITHER)
    rows = [
        [
            a_cell(name, "", None),
            a_cell(case, "", None),
            a_cell("1", "", 1.0, size),
            a_cell("2", "", 2.0, size),
        ]
        for name, case in (("reads", "small"), ("", "large"), ("total", ""))
    ]
    found = with_measured_columns(MeasuredTable("t", ["of", "case", "then", "now"], rows, []), 0.95)
    assert found.narrow is not None
    names = [plain(row[0]) for row in found.narrow.rows if not plain(row[1])]
    assert names == ["reads, small", "reads, large", "total"]


def test_a_published_table_without_measured_numbers_explains_none() -> None:
    found = with_measured_columns(MeasuredTable("t", ["of"], [[a_cell("3", "", 3.0)]], ["One run"]), 0.95)
    assert (found.note, found.narrow) == ("One run.", None)


def test_a_case_in_which_an_arm_stalled_is_not_in_the_average() -> None:
    stalled = Synthetic(effects=(1, 3), levels={"clients": "9"}, blocks=6, stalled=[(2, 1)])
    built = report_of(*CASES, stalled)
    (over,) = built.findings.over_cases
    assert over.average is not None and list(over.average.names) == ["clients 8", "clients 64", "clients 500"]
    assert "clients 9" in built.of("results")[0].tables[0].note
    assert "average over 3 of 4 cases " in built.headlines[0].sentence


def test_a_published_table_describes_the_measured_average_and_missing_intervals() -> None:
    def row(name: str, n: int, **of: object) -> list[MeasuredCell]:
        ours = Estimate(5.0, "%", n, Better.LESS, low=4.0, high=6.0)
        text = MeasuredCell(name, None, None, "", "", False)
        return [text, replace(MeasuredCell("3", 3.0, None, "%", "", True, ours), **of)]

    average = row("Total average", 3, cases=["a", "b"], parts=["x", "y", "z"], part="statement")
    note = with_measured_columns(
        MeasuredTable("t", ["users", "change"], [row("8", 3), average], []), 0.95
    ).note
    assert "over 2 cases and 3 statements: Total average." in note
    assert f"{VERDICT_BLOCKS_MIN} blocks" in note
    note = with_measured_columns(MeasuredTable("t", ["users", "change"], [row("8", 5)], []), 0.95).note
    assert "cases" not in note and f"{VERDICT_BLOCKS_MIN} blocks" not in note


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ([48.421053] * 6, "48.421"),
        ([48.0, 49.0, 47.5, 48.5, 48.2, 48.9], "48.35"),
        ([123456.7] * 6, "123,457"),
    ],
)
def test_a_level_has_three_to_five_digits(blocks: list[float], text: str) -> None:
    level = level_of(dict(enumerate(blocks)), "tx/s", Better.MORE, 0.95, Method.STUDENT)
    assert level is not None and level_text(level) == text


def test_markdown_has_the_order_of_the_page_and_no_heading_without_content() -> None:
    text = FORMS["md"](report_of(replace(CASES[0], levels={}, published=PUBLISHED)))
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings.index("Caveats") < headings.index("Throughput and CPU")
    assert not re.search(r"^## .*\n+## ", text, re.MULTILINE)


def test_a_published_table_has_a_line_for_each_number_on_a_narrow_page() -> None:
    page = FORMS["html"](report_of(replace(CASES[0], levels={}, published=PUBLISHED)))
    (narrow,) = re.findall(r'<div class="narrow">(.*?)</table>', page, re.DOTALL)
    assert ">published</th>" in narrow and ">here</th>" in narrow


def test_many_alike_caveats_of_several_cases_are_one_with_an_example(built: StudyReport) -> None:
    def page_of(caveats: dict[str, int], rank: Rank) -> list[str]:
        """``caveats``: number of different caveats by case."""
        cases = dict(zip(caveats, built.cases.values(), strict=True))
        for case, n in caveats.items():
            raised = [
                ShownCaveat("background-work-in-slices", rank, f"Block {i}: ran.") for i in range(1, n + 1)
            ]
            cases[case] = replace(cases[case], sections=[caveats_section(raised)])
        return [one.sentence for one in _shown_caveats(cases)]

    assert page_of({"a": 3, "b": 1, "c": 0}, Rank.GOOD_TO_KNOW) == [
        "In 2 cases, for example a: Block 1: ran."
    ]
    assert page_of({"a": 2, "b": 1, "c": 0}, Rank.GOOD_TO_KNOW) == [
        "a and b: Block 1: ran.",
        "a: Block 2: ran.",
    ]
    assert len(page_of({"a": 3, "b": 3, "c": 3}, Rank.CHANGES_ANSWER)) == 3, "each can change the answer"
