"""Throughput dips in every report format: number, cost, coincident events."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_forms import FORMS, only
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.causes.throughput_dips import ArmDips, Coincidence, Dip
from pgdyno.analysis.telemetry.events import Event
from pgdyno.cli.report import read_report
from pgdyno.report import dips_section
from pgdyno.report.case_report import case_report
from pgdyno.report.csv_format import to_csv
from pgdyno.report.study_report import StudyReport

CHECKPOINTS = Coincidence(Event.CHECKPOINT, 2, 0.1, 0.004, is_cause=True)
CHANCE = Coincidence(Event.WAL_SEGMENT, 3, 2.5, 0.6, is_cause=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> StudyReport:
    """Test data with three dips of arm 18 in 60 s."""
    path = tmp_path_factory.mktemp("dips") / "e"
    write_study(path, Synthetic(blocks=6, probed=True))
    study = read_report(path)
    (findings,) = study.findings.cases
    trial = next(trial.trial for trial in findings.trials if trial.arm == 1)
    found = [
        Dip(trial, 3, 1, 3.0, 4.0, 0.5, 1500.0, [Event.CHECKPOINT]),
        Dip(trial, 5, 2, 5.0, 7.0, 0.25, 1500.0, [Event.CHECKPOINT]),
        Dip(trial, 9, 1, 9.0, 10.0, 0.1, 300.0),
    ]
    trials = [one.trial for one in findings.trials if one.arm == 1]
    of_arm = ArmDips(found, [CHECKPOINTS, CHANCE], 1, 60, 60.0, 180_000.0, trials)
    with_dips = replace(findings, dips={1: of_arm})
    return replace(
        study, findings=replace(study.findings, cases=[with_dips]), cases={"": case_report(with_dips)}
    )


@pytest.mark.parametrize("form", ["terminal", "md", "html"])
def test_the_sentence_contains_number_causes_and_cost_of_dips(built: StudyReport, form: str) -> None:
    text = " ".join(re.sub(r"\\(.)", r"\1", FORMS[form](built)).replace("\u00a0", " ").split())
    (sentence,) = only(built).dips
    assert sentence.replace("\u00a0", " ") in text and "3" in sentence and "1.8%" in sentence
    assert dips_section.TITLE in text


def test_the_table_has_a_row_per_cause_and_one_for_unexplained_dips(built: StudyReport) -> None:
    assert built.only is not None
    (table,) = (table for table in built.only.tables if table.title == dips_section.TITLE)
    assert table.rows == [
        ["18", "all", "3", "–", "6.7", "1.8"],
        ["", "checkpoint", "2", "0.10", "5.0", "1.7"],
        ["", "no coincident event", "1", "–", "1.7", "0.17"],
    ]
    assert "1 peak of 18" in table.note.replace("\u00a0", " ")


def test_the_page_marks_each_dip_and_names_its_cause(built: StudyReport) -> None:
    marks = re.findall(r"<polygon[^>]*><title>(.*?)</title>", FORMS["html"](built))
    assert [mark.replace("\u00a0", " ") for mark in marks] == [
        "dip of 50% from 3.0 s to 4.0 s: checkpoint",
        "dip of 25% from 5.0 s to 7.0 s: checkpoint",
        "dip of 10% from 9.0 s to 10.0 s: no coincident event",
    ]


def test_the_json_has_every_dip(built: StudyReport) -> None:
    arms = json.loads(FORMS["json"](built))["arms"]
    assert arms[0]["dips"] is None
    assert [dip["causes"] for dip in arms[1]["dips"]["dips"]] == [["checkpoint"], ["checkpoint"], []]


def test_the_csv_has_the_dips_of_each_trial_and_their_cost(built: StudyReport) -> None:
    rows = [row for row in csv.DictReader(io.StringIO(to_csv(built))) if row["metric"].startswith("dips.")]
    assert {row["arm"] for row in rows} == {"18"} and {row["better"] for row in rows} == {"less"}
    values = {(row["block"], row["metric"]): (float(row["value"]), row["unit"]) for row in rows}
    assert len(values) == len(rows) == 6 * 3 * 3
    first = rows[0]["block"]
    assert {metric: of for (block, metric), of in values.items() if block == first} == {
        "dips.n": (3, "dips"),
        "dips.time": (4.0, "s"),
        "dips.lost": (3300.0, "tx"),
        "dips.n:checkpoint": (2, "dips"),
        "dips.time:checkpoint": (3.0, "s"),
        "dips.lost:checkpoint": (3000.0, "tx"),
        "dips.n:unexplained": (1, "dips"),
        "dips.time:unexplained": (1.0, "s"),
        "dips.lost:unexplained": (300.0, "tx"),
    }
    assert all(value == 0 for (block, _), (value, _) in values.items() if block != first)


def test_without_dips_there_is_no_section(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(blocks=6, probed=True))
    report = read_report(tmp_path / "e").only
    assert report is not None
    assert report.dips == []
    assert dips_section.TITLE not in [table.title for table in report.tables]
