"""The report of a study of several cases: what holds over them, and each by itself."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from synthetic_study import Synthetic, write_study
from test_report import FORMS, on_terminal, plain

from pgdyno.caveats import Caveat, Code
from pgdyno.cli.report import read_report
from pgdyno.report.study import StudyReport

CHANGE = {"key": "workload.warehouses", "before": "2000", "after": "16", "why": "the memory is smaller"}
CASES = (
    Synthetic(effects=(1, 1.2), levels={"clients": "8"}, blocks=6, changes=[CHANGE]),
    Synthetic(effects=(1, 0.9), levels={"clients": "64"}, blocks=6, seed=2),
    Synthetic(effects=(1, 1.2), levels={"clients": "500"}, blocks=6, seed=3),
)


@pytest.fixture
def built(tmp_path: Path) -> StudyReport:
    write_study(tmp_path / "e", *CASES)
    return read_report(tmp_path / "e")


def test_the_headline_counts_the_verdicts_and_tells_the_average(built: StudyReport) -> None:
    (headline,) = built.headlines
    assert headline.claim == "18 against 17, in 3 cases: faster in 2 and slower in 1"
    assert "on the average over the cases" in headline.basis and "6 blocks" in headline.basis


def test_the_average_is_the_geometric_mean_of_the_ratios(built: StudyReport) -> None:
    (over,) = built.findings.over_cases
    primaries = [comparison.primary for comparison in over.comparisons.values()]
    means = [np.mean(list(primary.log_ratios.values())) for primary in primaries if primary is not None]
    assert over.average is not None and len(means) == 3
    assert over.average.spread.mean == pytest.approx(float(np.mean(means)))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_every_case(built: StudyReport, form: str) -> None:
    text = plain(FORMS[form](built))
    for case in ("clients 8", "clients 64", "clients 500"):
        assert case in text


@pytest.mark.parametrize("form", ["terminal", "md", "html", "json"])
def test_what_was_fitted_is_said(built: StudyReport, form: str) -> None:
    text = FORMS[form](built)
    assert "workload.warehouses" in text and "the memory is smaller" in text


def test_programs_get_each_case_as_they_get_a_comparison(built: StudyReport) -> None:
    found = json.loads(FORMS["json"](built))
    assert [case["levels"] for case in found["cases"]] == [{"clients": n} for n in ("8", "64", "500")]
    assert [case["verdict"] for case in found["cases"]] == ["faster", "slower", "faster"]
    assert found["over_cases"][0]["verdicts"] == {"faster": 2, "slower": 1}
    rows = list(csv.DictReader(io.StringIO(FORMS["csv"](built))))
    assert {row["case"] for row in rows} == {"clients 8", "clients 64", "clients 500"}


def test_a_caveat_of_some_cases_says_which(tmp_path: Path) -> None:
    stolen = Caveat(Code.BUILDS_DIFFER, {"difference": "gcc against clang"})
    alone = Synthetic(levels={"clients": "9"}, caveats=[stolen])
    write_study(tmp_path / "e", *CASES, alone)
    text = " ".join(plain(on_terminal(read_report(tmp_path / "e"))).split())
    assert "- clients 9: " in text and "gcc against clang" in text
