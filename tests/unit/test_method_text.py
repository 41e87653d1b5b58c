"""The text on how a study was measured."""

from dataclasses import replace

import pytest
from report_forms import report_of
from synthetic_study import Synthetic

from pgdyno.analysis.case_findings import Findings
from pgdyno.report.background import method_paragraphs
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Study


def with_plan(findings: Findings, plan: Study) -> Findings:
    return replace(findings, study=replace(findings.study, plan=plan))


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"cache_state": "cold"}, "is restarted with a cold page cache"),
        (
            {"cache_state": "prewarmed"},
            "every table and index is read, into shared buffers if pg_prewarm is available",
        ),
        ({"recovery": True}, "Each trial ends with a crash of the server, a timed recovery"),
        ({"vacuum_after": True}, "After the measured part all tables are vacuumed"),
        (
            {"transactions": 125_000, "window_s": None, "schedule": Schedule.BLOCKS},
            "125,000 transactions of each client per arm and block",
        ),
        ({"warmup_workload": None}, None),
    ],
    ids=lambda of: str(next(iter(of.items()))) if isinstance(of, dict) else "",
)
def test_every_step_of_the_plan_is_in_the_text(plan: dict[str, object], sentence: str | None) -> None:
    findings = report_of(Synthetic()).findings.first
    if sentence is None:
        plan, sentence = (
            {"warmup_workload": findings.study.plan.workload},
            "warm-up has a workload of its own",
        )
    changed = with_plan(findings, findings.study.plan.model_copy(update=plan))
    assert sentence not in method_paragraphs(findings)[0]
    assert sentence in method_paragraphs(changed)[0]


def test_windows_of_transactions_discard_nothing() -> None:
    findings = report_of(Synthetic()).findings.first
    plan = findings.study.plan.model_copy(update={"transactions": 1000})
    texts = [method_paragraphs(one)[0] for one in (findings, with_plan(findings, plan))]
    assert ["of each discarded" in text for text in texts] == [True, False]
