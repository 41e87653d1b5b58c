"""Plans: statements of scripts, names of nodes, comparison of arms, sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from example_studies import make_study
from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.study_findings import find_study
from pgdyno.features.plans.explain import (
    LINES_MAX,
    budget_s_of,
    digest,
    has_plan,
    node_name,
    plan_lines,
    statements_of_script,
)
from pgdyno.features.plans.findings import compare_plans
from pgdyno.features.plans.section import addresses, sections
from pgdyno.measure.telemetry_collection import ProbeError
from pgdyno.report.html_format import Contents
from pgdyno.results.reader import Evidence
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.defaults import Schedule


def test_a_script_gives_its_statements_with_a_plan() -> None:
    script = """\\set aid random(1, 100000 * \\
  :scale)
BEGIN;  -- no plan; really
SELECT a::text, ':x', $$;$$ FROM t
 WHERE aid = :aid AND b = :b AND c = :aid; VACUUM t;
UPDATE t SET a = E'\\';' WHERE b = :b \\; SELECT 1 \\gset p_
\\sleep 1 ms
END;
"""
    assert list(statements_of_script(script)) == [
        "SELECT a::text, ':x', $$;$$ FROM t WHERE aid = $1 AND b = $2 AND c = $1",
        "UPDATE t SET a = E'\\';' WHERE b = $1",
        "SELECT 1",
    ]
    assert list(statements_of_script("(SELECT 1) UNION (SELECT 2);")) == ["(SELECT 1) UNION (SELECT 2)"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/* app */ select 1", True),
        ("-- of the\n-- application\nUPDATE t SET a = 1", True),
        ("((SELECT 1) LIMIT 1)", True),
        ("VALUES(1)", True),
        ("/* SELECT */ VACUUM t", False),
        ("-- SELECT", False),
        ("/* SELECT 1", False),
        ("", False),
    ],
)
def test_comments_and_parentheses_may_precede_a_statement_with_a_plan(text: str, expected: bool) -> None:
    assert has_plan(text) == expected


@pytest.mark.parametrize(("schedule", "budget_s"), [("slices", 0.01), ("blocks", 0.01), ("duet", 0.005)])
def test_both_captures_of_a_block_take_at_most_a_hundredth_of_it(schedule: Schedule, budget_s: float) -> None:
    """A block has four slices of a second, in a duet two at a time. A capture may take its limit twice."""
    arms = parse_arms(["17", "18"])
    study = make_study(arms=arms, schedule=schedule, slice_s=1.0, rounds=2, clients=2)
    assert budget_s_of(study) == pytest.approx(budget_s)


def test_short_blocks_have_no_plans() -> None:
    study = make_study(arms=parse_arms(["17", "18"]), slice_s=0.4, rounds=2, clients=2)
    with pytest.raises(ProbeError, match="plans require 2 s"):
        budget_s_of(study)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ({"Node Type": "Seq Scan", "Relation Name": "t", "Parallel Aware": True}, "Parallel Seq Scan on t"),
        (
            {
                "Node Type": "Index Only Scan",
                "Scan Direction": "Backward",
                "Index Name": "i",
                "Relation Name": "t",
            },
            "Index Only Scan Backward using i on t",
        ),
        ({"Node Type": "Hash Join", "Join Type": "Left"}, "Hash Left Join"),
        ({"Node Type": "Nested Loop", "Join Type": "Inner"}, "Nested Loop"),
        (
            {"Node Type": "Aggregate", "Strategy": "Hashed", "Partial Mode": "Partial"},
            "Partial HashAggregate",
        ),
        ({"Node Type": "ModifyTable", "Operation": "Update", "Relation Name": "t"}, "Update on t"),
    ],
)
def test_nodes_have_the_names_of_explain(node: dict[str, object], name: str) -> None:
    assert node_name(node) == name


def plan(index_cond: str, node: str = "Index Scan", **more: object) -> list[str]:
    scan = {"Node Type": node, "Relation Name": "t", "Index Name": "i2", "Index Cond": index_cond, **more}
    return list(plan_lines({"Node Type": "Limit", "Plans": [scan]}))


def test_costs_and_literals_are_not_in_a_plan_and_conditions_not_in_its_hash() -> None:
    lines = plan("(a = 42) AND (b = 'it''s'::text) AND (c2 = $1)", **{"Total Cost": 8.3, "Plan Width": 4})
    assert lines == [
        "Limit",
        "  -> Index Scan using i2 on t",
        "       Index Cond: (a = ?) AND (b = ?::text) AND (c2 = $1)",
    ]
    assert digest(lines) == digest(plan("(a = $1)"))
    assert digest(lines) != digest(plan("(a = $1)", "Index Only Scan"))
    assert digest(lines) != digest(plan("(a = $1)", Filter="(b = 1)"))


def row(statement: str, lines: list[str]) -> dict[str, str]:
    return {"statement": statement, "source": "script", "hash": digest(lines), "plan": "\n".join(lines)}


def findings_of(path: Path, plans: dict[int, list[dict[str, str]]], *, changed_in: int) -> Findings:
    """Return a study of three blocks with plans by arm; those of arm 0 from block ``changed_in`` on."""
    write_study(path, Synthetic(blocks=3, schedule=Schedule.SLICES))
    with Evidence(path) as evidence:
        findings = find_study(evidence).first
    assert not any(of.after for of in findings.telemetry.by_trial.values())  # as in an older file
    assert not compare_plans([of.arm for of in findings.arms], findings.trials, {})
    by_trial = {
        trial.trial: replace(
            findings.telemetry.by_trial[trial.trial],
            after={"plans": plans[trial.arm if trial.block < changed_in else 0]},
        )
        for trial in findings.trials
    }
    return replace(findings, telemetry=replace(findings.telemetry, by_trial=by_trial))


def test_a_changed_plan_is_a_sentence_and_a_table_with_both_plans(tmp_path: Path) -> None:
    a, b = ["Seq Scan on t", "     Filter: (a = $1)"], ["Index Only Scan using i on t"]
    lost = {"statement": "SELECT x", "source": "script", "reason": 'column "x" does not exist'}
    plans = {0: [row("SELECT 1", a), row("SELECT 2", a), lost], 1: [row("SELECT 1", b), row("SELECT 2", a)]}
    findings = findings_of(tmp_path / "e.sqlite", plans, changed_in=2)
    head, body = sections(findings)
    said = "Seq Scan on t → Index Only Scan using i on t (“SELECT 1”, in 2 of 3 blocks)"
    assert head.sentences == head.brief == [f"Plan changed on 18: {said}."]
    side_by_side, left_out = body.tables
    assert side_by_side.rows == [[a[0], b[0]], ["\u00a0" * 5 + "Filter: (a = $1)", ""]]
    assert left_out.rows == [["SELECT x", 'column "x" does not exist']]


def test_plans_that_differ_after_their_stored_lines_say_so(tmp_path: Path) -> None:
    stored = ["Append", *(f"  -> Seq Scan on part_{n}" for n in range(LINES_MAX - 1))]
    plans = {
        of: [{**row("SELECT 1", [*stored, last]), "plan": "\n".join(stored)}]
        for of, last in enumerate(("  -> Seq Scan on last", "  -> Index Scan using i on last"))
    }
    head, _ = sections(findings_of(tmp_path / "e.sqlite", plans, changed_in=3))
    said = f"after the first {LINES_MAX} lines, which are equal (“SELECT 1”)"
    assert head.sentences == [f"Plan changed on 18: {said}."]


def test_the_address_of_a_plan_is_that_of_its_table_in_a_page(tmp_path: Path) -> None:
    statements = ("SELECT a, b FROM t", "SELECT a, c FROM t", "SELECT d")
    plans = {of: [row(text, [node]) for text in statements] for of, node in enumerate(("Seq Scan", "Sort"))}
    findings = findings_of(tmp_path / "e.sqlite", plans, changed_in=3)
    _, body = sections(findings)
    contents = Contents()
    in_page = [contents.address(table.title, "") for table in body.tables]
    assert in_page == list(addresses(findings).values()) and len({*in_page}) == 3


def test_equal_plans_say_nothing(tmp_path: Path) -> None:
    same = [row("SELECT 1", ["Seq Scan on t"])]
    (head,) = sections(findings_of(tmp_path / "e.sqlite", {0: same, 1: same}, changed_in=3))
    assert not head.sentences
    assert not head.brief


def test_a_statement_with_plans_in_one_block_is_not_listed_without_a_plan(tmp_path: Path) -> None:
    late = {"statement": "SELECT 1", "source": "script", "reason": "no time was left"}
    plans = {0: [row("SELECT 1", ["Seq Scan on t"])], 1: [late]}
    (head,) = sections(findings_of(tmp_path / "e.sqlite", plans, changed_in=2))
    assert not head.sentences
