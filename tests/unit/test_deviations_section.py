"""Deviations from TPC-C in reports: every one is listed with its clause, in every format."""

from __future__ import annotations

from pathlib import Path

from golden_reports import DIALECTS
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.study_findings import find_study
from pgdyno.caveats import Code
from pgdyno.report.answer import case_report
from pgdyno.report.background import deviations
from pgdyno.results.reader import Evidence
from pgdyno.workloads.tpcc.dialects import DEVIATIONS
from pgdyno.workloads.tpcc.dialects import DIALECTS as DIALECTS_OF_DRIVERS

OF_HAMMERDB = DIALECTS_OF_DRIVERS["hammerdb"].deviations


def findings_of(path: Path, wanted: Synthetic) -> Findings:
    write_study(path / "e", wanted)
    with Evidence(path / "e") as evidence:
        return find_study(evidence).first


def codes(findings: Findings) -> set[Code]:
    return {caveat.code for caveat in findings.caveats}


def test_each_deviation_of_an_arm_has_a_row_with_its_clause(tmp_path: Path) -> None:
    found = findings_of(tmp_path, DIALECTS)
    rows = deviations(found).rows
    assert [row[1] for row in rows] == [name for name in DEVIATIONS if name in OF_HAMMERDB]
    assert [row[2].rstrip("*") for row in rows] == [DEVIATIONS[row[1]].clause for row in rows]
    assert rows[0][0] == "dialect=hammerdb"
    assert any(
        table.title == "Deviations from TPC-C"
        for section in case_report(found).sections
        for table in section.tables
    )
    assert Code.TPCC_DEVIATIONS in codes(found)


def test_a_study_without_deviations_has_no_such_table_and_caveat(tmp_path: Path) -> None:
    found = findings_of(tmp_path, Synthetic())
    assert deviations(found).rows == []
    assert Code.TPCC_DEVIATIONS not in codes(found)


def test_the_json_has_them_by_arm(tmp_path: Path) -> None:
    arms = findings_of(tmp_path, DIALECTS).arms
    assert arms[1].deviations == [name for name in DEVIATIONS if name in OF_HAMMERDB]
    assert arms[0].deviations == []
