"""Waterfall charts: their bars, names and changes are those of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from report_forms import report_of
from several_hosts import LARGER, SMALL, pooled_of
from synthetic_study import Synthetic
from synthetic_telemetry import SELECT, UPDATE

from pgdyno.analysis.time_breakdown import CPU
from pgdyno.features.hosts.sections import build_hosts
from pgdyno.features.waterfalls.section import BAR, STEPS_WIDTH, details_of_parts, waterfalls
from pgdyno.report.document import address_of
from pgdyno.report.html_format import to_html
from pgdyno.report.study_report import StudyReport


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(Synthetic(effects=(1.0, 1.25), blocks=6, probed=True, noise=0.004))


def test_the_picture_leads_from_one_arm_to_the_other(built: StudyReport) -> None:
    page = to_html(built)
    (steps, *_) = re.findall(r'<svg[^>]*class="steps".*?</svg>', page, re.DOTALL)
    assert re.search(r">17<.*>[\d,]+\u00a0µs<.*>on CPU<.*>18<.*>[+−][\d,]+\u00a0µs<", steps, re.DOTALL)
    assert 'class="step less"' in steps
    for place in re.findall(r'x="(-?[\d.]+)"', steps):
        assert 0 <= float(place) <= STEPS_WIDTH


def test_the_picture_and_the_table_have_the_same_numbers(built: StudyReport) -> None:
    rows = built.only.why[0].tables[0].rows
    changes = {row[0]: row[3].partition(" [")[0] for row in rows}
    (steps, *_) = re.findall(r'<svg[^>]*class="steps".*?</svg>', to_html(built), re.DOTALL)
    bar = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*><title>([^<]*?)  ([^<]*?)\u00a0µs, CI'
    bars = [(float(x), float(y), float(w), name, of) for x, y, w, name, of in re.findall(bar, steps)]
    assert len(bars) >= 2
    for x, y, width, name, change in bars:
        assert changes[name] == change
        # The change is behind the bar, on its line, and behind its interval.
        (place, *_) = re.findall(rf'<text x="([\d.]+)" y="{y + BAR / 2 + 4}"[^>]*>{re.escape(change)}', steps)
        ends = re.findall(rf'y1="{y + BAR / 2}" x2="([\d.]+)" y2="{y + BAR / 2}" class="whisker"', steps)
        assert float(place) > max(x + width, *map(float, ends), 0)
    # The bars lead from the level of one arm to that of the other.
    first, last = map(float, re.findall(r'<rect x="([\d.]+)"[^>]*class="step level"', steps))
    assert min(abs(x - first) for x in (bars[0][0], bars[0][0] + bars[0][2])) <= 1.0
    assert min(abs(x - last) for x in (bars[-1][0], bars[-1][0] + bars[-1][2])) <= 1.0
    (change,) = re.findall(r"<title>18  (.*?)\u00a0µs</title>", steps)
    assert change == changes["whole"]


@pytest.mark.parametrize("levels", [({},), ({"clients": "1"}, {"clients": "8"})], ids=len)
def test_bars_lead_to_wait_events_and_statements_of_their_case(levels: Sequence[Mapping[str, str]]) -> None:
    cases = [
        Synthetic(effects=(1.0, 1.25), blocks=6, probed=True, case=n, levels=of)
        for n, of in enumerate(levels)
    ]
    report = report_of(*cases)
    page = to_html(report)
    for of in report.findings.cases:
        assert details_of_parts(of, "18") == {
            "executing": "#telemetry-wait-events",
            "wal": "#telemetry-wait-events",
            f"statement:{UPDATE}": "#statements",
            f"statement:{SELECT}": "#statements",
            "statement:BEGIN": "#statements",
        }
    charts = re.findall(r'<svg[^>]*class="steps".*?</svg>', page, re.DOTALL)
    links = {found for chart in charts for found in re.findall(r'<a href="#([^"]+)">', chart)}
    arounds = [f"{address_of(of.case_name)}-".removeprefix("-") for of in cases]
    assert links == {f"{around}statements" for around in arounds}
    assert links <= set(re.findall(r'id="([^"]+)"', page))


def test_bars_of_a_fleet_lead_to_the_tables_of_their_host() -> None:
    page = to_html(build_hosts(pooled_of(one=replace(SMALL, probed=True), two=replace(LARGER, probed=True))))
    charts = re.findall(r'<svg[^>]*class="steps".*?</svg>', page, re.DOTALL)
    links = {found for chart in charts for found in re.findall(r'<a href="#([^"]+)">', chart)}
    assert len(links) == 2 and links <= set(re.findall(r'id="([^"]+)"', page))


def test_a_bar_of_waits_leads_to_their_table(built: StudyReport) -> None:
    findings = built.findings.first
    (why,) = findings.time_breakdowns.values()
    parts = [replace(part, key="wal" if part.key == CPU else part.key) for part in why.by_resource.parts]
    changed = replace(why, by_resource=replace(why.by_resource, parts=parts))
    resources, _ = waterfalls(replace(findings, time_breakdowns={1: changed}))
    assert '<a href="#telemetry-wait-events">' in resources.picture
