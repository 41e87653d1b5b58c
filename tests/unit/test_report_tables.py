"""Tables of a report that several formats share."""

import dataclasses
from pathlib import Path

from report_forms import summarized
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.case_findings import Findings
from pgdyno.cli.report import read_report
from pgdyno.report.result_tables import checks
from pgdyno.results.records import Check


def test_checks_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(blocks=2))
    only = read_report(tmp_path / "e").only
    assert only is not None
    findings: Findings = only.findings
    told = [Check(f"condition {number}", True) for number in (1, 10, 11, 2, 9)] + [Check("mix", True)]
    trials = [dataclasses.replace(trial, checks=told) for trial in findings.trials]
    names = [row[0] for row in checks(dataclasses.replace(findings, trials=trials)).rows if row[0]]
    assert names == [*(f"condition {number}" for number in (1, 2, 9, 10, 11)), "mix"]


def test_a_narrow_terminal_breaks_no_verdict(tmp_path: Path) -> None:
    names = ["on, off", "on, pglz", "off, off", "off, pglz"]
    write_study(tmp_path / "e", Synthetic(names=names, effects=(1, 1, 2.5, 2.3), noise=0.1, blocks=6))
    built = read_report(tmp_path / "e")
    for width in range(62, 100):
        rows = [line for line in summarized(built, width).splitlines() if line.startswith("on, pglz")]
        assert rows[0].split("[")[1].split()[2:3] == ["undecided"], width
