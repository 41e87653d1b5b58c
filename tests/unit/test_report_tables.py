"""Tables of a report that several formats share."""

import dataclasses

from report_forms import report_of, summarized
from synthetic_study import Synthetic

from pgdyno.report.result_tables import checks
from pgdyno.results.records import Check


def test_checks_are_in_the_order_of_their_numbers() -> None:
    findings = report_of(Synthetic(blocks=2)).findings.first
    told = [Check(f"condition {number}", True) for number in (1, 10, 11, 2, 9)] + [Check("mix", True)]
    trials = [dataclasses.replace(trial, checks=told) for trial in findings.trials]
    names = [row[0] for row in checks(dataclasses.replace(findings, trials=trials)).rows if row[0]]
    assert names == [*(f"condition {number}" for number in (1, 2, 9, 10, 11)), "mix"]


def test_a_narrow_terminal_breaks_no_verdict() -> None:
    names = ["on, off", "on, pglz", "off, off", "off, pglz"]
    built = report_of(Synthetic(names=names, effects=(1, 1, 2.5, 2.3), noise=0.1, blocks=6))
    for width in range(62, 100):
        rows = [line for line in summarized(built, width).splitlines() if line.startswith("on, pglz")]
        assert rows[0].split("[")[1].split()[2:3] == ["undecided"], width
