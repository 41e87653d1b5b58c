"""Throughput dips in every report format: number, cost, coincident events."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest
from golden_reports import STUDIES
from report_forms import FORMS, case_in

from pgdyno.report.study_report import StudyReport


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> StudyReport:
    """Test data with three dips of arm 18 in two trials of a minute."""
    found = STUDIES["dips"](tmp_path_factory.mktemp("dips"))
    assert isinstance(found, StudyReport)
    return found


def test_the_page_marks_each_dip_and_names_its_cause(built: StudyReport) -> None:
    marks = re.findall(r"<polygon[^>]*><title>(.*?)</title>", FORMS["html"](built))
    assert [mark.replace("\u00a0", " ") for mark in marks] == [
        "dip of 50% from 3.0 s to 4.0 s: checkpoint",
        "dip of 25% from 5.0 s to 7.0 s: checkpoint",
        "dip of 10% from 9.0 s to 10.0 s: no coincident event",
    ]


def test_the_json_has_every_dip(built: StudyReport) -> None:
    (of_arm,) = case_in(json.loads(FORMS["json"](built)))["dips"].items()
    assert of_arm[0] == "1"
    assert [dip["causes"] for dip in of_arm[1]["dips"]] == [["checkpoint"], ["checkpoint"], []]


def test_the_csv_has_the_dips_of_each_trial_and_their_cost(built: StudyReport) -> None:
    rows = [row for row in csv.DictReader(io.StringIO(built.csv())) if row["metric"].startswith("dips.")]
    assert {row["arm"] for row in rows} == {"18"} and {row["better"] for row in rows} == {"less"}
    values = {(row["block"], row["metric"]): (float(row["value"]), row["unit"]) for row in rows}
    assert len(values) == len(rows) == 5 * 3 * 3
    first, second, *others = dict.fromkeys(row["block"] for row in rows)
    for block, whole, unexplained in ((first, (2, 3, 3000), (0, 0, 0)), (second, (1, 1, 300), (1, 1, 300))):
        at_checkpoints = np.subtract(whole, unexplained)
        for suffix, of in (("", whole), (":checkpoint", at_checkpoints), (":unexplained", unexplained)):
            found = [values[block, f"dips.{name}{suffix}"] for name in ("n", "time", "lost")]
            assert found == list(zip(of, ("dips", "s", "tx"), strict=True))
    assert all(value == 0 for (block, _), (value, _) in values.items() if block in others)
