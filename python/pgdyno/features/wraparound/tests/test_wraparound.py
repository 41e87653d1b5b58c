"""Age of the oldest transaction ID: the charts have the samples of each trial."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from report_forms import report_of
from synthetic_study import Synthetic

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.telemetry.samples import POINTS_MAX
from pgdyno.features.wraparound.section import AGES, ages_of, sections
from pgdyno.report.html_format import to_html
from pgdyno.results.records import SampleSeries

COLUMNS = ("at_s", "late_s", "frozen_xid_age", "autovacuum_workers")


def series(seconds: int, *, workers: float = 0.0, growth: float = 100_000) -> dict[str, SampleSeries]:
    """Samples per second of an age that grows by so much per second, and is frozen to 500 in the middle."""
    at = np.arange(seconds + 1.0)
    age = growth * at * (at < seconds // 2) + 500 * (at >= seconds // 2)
    return {"server": SampleSeries("server", COLUMNS, np.array([at, 0 * at, age, workers + 0 * at]).T)}


def test_a_short_window_has_no_points() -> None:
    assert ages_of(series(29), {}, 1, ()).age == ages_of({}, {}, 1, ()).age == ()


@pytest.mark.parametrize("seconds", [30, 3600])
def test_a_long_window_keeps_the_mean_of_its_ages(seconds: int) -> None:
    given = series(seconds, workers=2.0)
    found = ages_of(given, {}, 1, ())
    assert 30 <= len(found.age) == len(found.workers) <= POINTS_MAX
    mean = np.mean([point.per_s for point in found.age])
    assert mean == pytest.approx(given["server"].column("frozen_xid_age").mean(), rel=0.01)
    assert {point.per_s for point in found.workers} == {2.0}


def test_hidden_workers_leave_the_ages() -> None:
    found = ages_of(series(60, workers=np.nan), {}, 1, ())
    assert len(found.age) == 61 and not found.workers


def with_ages(findings: Findings, **of: float) -> Findings:
    ages = {trial.trial: ages_of(series(60, **of), {}, 1, ()) for trial in findings.trials}
    of_series = {**findings.telemetry.of_series, AGES.name: ages}
    return replace(findings, telemetry=replace(findings.telemetry, of_series=of_series))


@pytest.mark.parametrize(("workers", "names"), [(0.0, ["age"]), (3.0, ["age", "autovacuum"])])
def test_each_block_has_a_chart_of_the_age_and_of_workers_that_ran(workers: float, names: list[str]) -> None:
    findings = with_ages(report_of(Synthetic(blocks=2, probed=True)).findings.first, workers=workers)
    (section,) = sections(findings)
    panels = section.plots()
    assert [panel.title for panel in panels] == [f"block {n}, {of}" for of in names for n in (1, 2)]
    titles = re.findall(r"<title>(.*?)</title>", panels[0].picture)
    assert "18: 2,800,000 xids at 28.0 s" in titles and "17: 500 xids at 30.0 s" in titles


def test_an_age_far_from_a_forced_vacuum_has_no_chart() -> None:
    findings = report_of(Synthetic(blocks=2, probed=True)).findings.first
    assert list(sections(with_ages(findings, growth=10_000, workers=3.0))) == []


def test_a_page_of_short_windows_has_no_such_chart() -> None:
    assert "oldest transaction ID" not in to_html(report_of(Synthetic(blocks=2, probed=True)))
