"""The page of many workloads: selection of cells, intervals, the heat map and its links, ``--versions``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_forms import checked_json, report_of, summarized
from synthetic_study import Synthetic

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.statistics.intervals import Method, student, summarize
from pgdyno.cli.run import read_study
from pgdyno.errors import UsageError
from pgdyno.features.matrix import section
from pgdyno.features.matrix.options import Versions, servers_of
from pgdyno.features.matrix.section import (
    Matrix,
    bisect_command,
    cells_of,
    costs_table,
    heat_map,
    level_of_page,
    matrix_in,
)
from pgdyno.features.plans.findings import PlanChange, PlanComparison
from pgdyno.report.html_format import to_html
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport
from pgdyno.results.records import TrialStatus
from pgdyno.study.cases import cases_of
from pgdyno.study.plan import Study
from pgdyno.study.study_file import StudyFile


def test_the_level_of_the_page_is_that_of_benjamini_and_hochberg() -> None:
    """Their example: 15 hypotheses, 4 rejected at 5%."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262]
    p += [0.5719, 0.6528, 0.7590, 1.0]
    assert level_of_page(p, 0.05) == pytest.approx(0.05 * 4 / 15)
    assert level_of_page([0.9, None, 0.8], 0.05) == pytest.approx(0.05 / 3)
    assert level_of_page([0.04, None], 0.05) == pytest.approx(0.05 / 2)
    assert level_of_page([], 0.05) > 0


def cases() -> list[Synthetic]:
    """Three workloads: 10% slower, equal, and 10% faster with a failing arm."""
    effects = {"slow one": (1.0, 0.9), "equal": (1.0, 1.0), "broken, too": (1.0, 1.1)}
    return [
        Synthetic(
            blocks=6,
            effects=of,
            levels={"workload": name},
            case=case,
            statuses={(2, 1): TrialStatus.FAILED} if "broken" in name else {},
        )
        for case, (name, of) in enumerate(effects.items())
    ]


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(*cases())


def matrix(built: StudyReport) -> Matrix:
    return matrix_in(built.findings)


def test_a_cell_has_the_effect_of_its_workload(built: StudyReport) -> None:
    found = matrix(built)
    assert (found.baseline, found.servers) == ("17", ["18"])
    assert found.workloads == ["workload slow one", "workload equal", "workload broken, too"]
    (slow,), (equal,), (broken,) = found.cells
    assert slow.differs and slow.change.value == pytest.approx(-10, abs=2)
    assert not equal.differs and equal.resolves > 0
    assert (broken.held_back, broken.differs) == ("an arm failed", False)


def test_all_formats_have_the_page(built: StudyReport) -> None:
    markdown = to_markdown(built)
    assert "All workloads against 17" in markdown
    assert "1 of 3 cells differ from 17: 0 better, 1 worse" in markdown
    assert "pgdyno bisect REL" in markdown.replace("\\", "")
    said = summarized(built)
    assert "1 of 3 cells differ" in said and re.search(r"slow one .*−\d+(\.\d)?\*", said)
    for text in (said, markdown):
        assert "slower in" not in text, "the reports of the workloads are not corrected for the page"
    assert "geometric mean of the ratios" in markdown
    assert '"an arm failed"' in checked_json(built)
    html = to_html(built)
    links = re.findall(r'<a href="#([^"]+)"><g>', html)
    assert links == ["workload-slow-one", "workload-equal", "workload-broken-too"]
    assert all(f'id="{link}"' in html for link in links)


def test_the_interval_of_a_cell_is_wider_than_that_of_its_workload(built: StudyReport) -> None:
    (slow,), *_ = matrix(built).cells
    alone = built.findings.cases[0].comparisons[0].primary
    assert slow.change.low < alone.percent.low


def test_few_blocks_have_values_but_no_differences() -> None:
    few = [replace(of, blocks=3, effects=(1.0, 0.5), statuses={}) for of in cases()]
    built = report_of(*few)
    assert [cell.held_back for cell in matrix(built).every] == ["too few blocks"] * 3
    assert all(cell.change.value < -40 for cell in matrix(built).every)
    said = summarized(built)
    assert "No cell of 3 is known to differ" in said and "Differences need 5 blocks" in said


def test_a_difference_that_the_report_of_its_workload_refuses_is_not_marked(built: StudyReport) -> None:
    """It depends on the warm-up, or is below the noise floor."""
    (slow,) = built.findings.cases[0].comparisons
    refused = replace(slow, decision=replace(slow.decision, difference=None))
    _, (own, cell) = cells_of([slow, refused], 0.95)
    assert own.differs and not cell.differs
    assert cell.held_back == "undecided in its report"
    assert cell.change.low is None


def test_a_cell_without_a_result_says_why(built: StudyReport) -> None:
    (slow,) = built.findings.cases[0].comparisons
    left_out = [
        replace(slow, censored=[1], primary=None),
        replace(slow, primary=None),
        replace(slow, unconfirmed=["18"]),
        replace(slow, is_trending=True),
    ]
    _, cells = cells_of(left_out, 0.95)
    assert [of.held_back for of in cells] == ["overloaded", "no valid block", "limit missed", "not steady"]


def test_only_significant_changes_of_costs_are_shown(built: StudyReport) -> None:
    table = costs_table(matrix(built), built.findings.cases)
    shown = {row[0]: "(" in row[-1] for row in table.rows if row[1].startswith("CPU")}
    for case in built.findings.cases:
        percent = case.comparisons[0].effects["server_cpu"].percent
        is_significant = percent.low > 0 or percent.high < 0
        assert shown[case.study.case] == (is_significant and not case.comparisons[0].is_held_back)
    assert any(shown.values())


def test_a_change_from_a_cost_near_zero_is_no_percentage(built: StudyReport) -> None:
    first, *others = built.findings.cases
    (comparison,) = first.comparisons
    cpu = comparison.effects["server_cpu"]
    percent = replace(cpu.percent, value=1900.0, low=1500.0, high=2300.0)
    effects = {**comparison.effects, "server_cpu": replace(cpu, percent=percent)}
    changed = replace(first, comparisons=[replace(comparison, effects=effects)])
    assert costs_table(matrix(built), [changed, *others]).rows[0][-1].endswith(" (> ×10)")


def test_a_cell_that_differs_has_its_largest_causes_and_any_cell_its_changed_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = report_of(*(replace(of, probed=True, statuses={}) for of in cases()[:2]))
    change = PlanChange("SELECT 1", "a", "b", ["Seq Scan on t"], ["Index Scan on t"], 6, 6)

    def plans_of(case: Findings) -> list[PlanComparison]:
        arms = [of.arm for of in case.arms]
        return [PlanComparison(*arms, 1, [change] if "equal" in case.study.case else [], {})]

    monkeypatch.setattr(section, "plans_of", plans_of)
    slow, equal = section.causes_table(matrix(built), built.findings.cases).rows
    assert slow[:2] == ["workload slow one", "18"] and slow[2] and not slow[3]
    assert equal[:3] == ["workload equal", "18", ""]
    assert equal[3] == "Seq Scan on t → Index Scan on t (“SELECT 1”)"


def test_a_study_without_the_factor_has_no_page() -> None:
    assert matrix_in(report_of(Synthetic()).findings) is None


@pytest.mark.parametrize("names", [("16", "17", "18"), ("16", "18")])
def test_workloads_with_other_arms_have_no_page_but_their_reports(names: tuple[str, ...]) -> None:
    """Exclusions remove an arm, or the baseline, from a workload."""
    fewer, other = (replace(of, statuses={}) for of in cases()[:2])
    effects = (1.0,) * len(names)
    built = report_of(fewer, replace(other, names=names, effects=effects))
    assert matrix_in(built.findings) is None
    shown = to_markdown(built)
    assert "All workloads against" not in shown and "18 vs. 17" in shown and "18 vs. 16" in shown


def test_false_discoveries_stay_below_the_limit() -> None:
    """64 cells in 16 rows with a common baseline, half of them different; tested by Student's t, 8 blocks."""
    random = np.random.default_rng(7)
    shares = []
    for _ in range(100):
        true = np.repeat([0.0, 0.03], 32).reshape(16, 4)
        baseline = random.normal(0, 0.02, (16, 1, 8))
        blocks = true[:, :, None] + random.normal(0, 0.02, (16, 4, 8)) - baseline
        p_values = [student(list(one), 0.95).p_value for one in blocks.reshape(64, 8)]
        level = level_of_page(p_values, 0.05)
        selected = np.array([p is not None and p <= level for p in p_values])
        false = selected & (true.ravel() == 0)
        shares.append(false.sum() / max(1, selected.sum()))
    assert np.mean(shares) < 0.05
    assert np.mean(shares) > 0.005  # it does select


def test_false_discoveries_stay_below_the_limit_if_the_study_ends_at_the_most_selected_cells() -> None:
    """Skewed noise and a common baseline, three looks."""
    random = np.random.default_rng(7)
    shares, selections = [], 0
    for _ in range(20):
        true = np.repeat([0.0, 0.1], 32).reshape(16, 4)
        noise = random.exponential(0.02, (16, 5, 12)) - 0.02
        blocks = (true[:, :, None] - noise[:, 1:] + noise[:, :1]).reshape(64, 12)
        looks = []
        for n in (5, 8, 12):
            found = [summarize(list(one[:n]), 0.95, Method.ANYTIME).p_value for one in blocks]
            level = level_of_page(found, 0.05)
            looks.append(np.array([p is not None and p <= level for p in found]))
        selected = max(looks, key=np.sum)
        shares.append((selected & (true.ravel() == 0)).sum() / max(1, selected.sum()))
        selections += selected.sum()
    assert np.mean(shares) < 0.05
    assert selections > 0.5 * 20 * 32


def study_of(workload: dict[str, object], *servers: str, **changed: object) -> Study:
    data = {
        "title": "x",
        "compare": ("server",),
        "drive": {"clients": 3},
        "factors": {"server": servers, "workload": {"a": workload}},
    }
    (case,) = cases_of(StudyFile.of(data | changed))
    return case.study


PGBENCH = {"kind": "pgbench", "scale": 10}


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (
            {**PGBENCH, "scripts": ("select-only", "tpcb-like@3"), "protocol": "prepared"},
            "--workload pgbench --scale 10 --builtin select-only --builtin tpcb-like@3 --protocol prepared",
        ),
        (
            {"kind": "sysbench", "script": "oltp_read_only", "tables": 4, "options": {"sum_ranges": "1"}},
            "--workload sysbench --script oltp_read_only --tables 4 --opt sum-ranges=1",
        ),
        (
            {"kind": "tpcc", "warehouses": 4, "calls": "statements"},
            "--workload tpcc --warehouses 4 --calls statements",
        ),
    ],
)
def test_a_cell_has_the_command_that_searches_its_commit(workload: dict[str, object], words: str) -> None:
    study = study_of(workload, "17.2", "14", "/opt/pg/bin", "17")
    begin = "pgdyno bisect REL_14_BETA1 REL_17_BETA1 --repository CLONE --clients 3"
    assert [bisect_command(study, arm) for arm in (1, 2, 3)] == [f"{begin} {words}", "", ""]


@pytest.mark.parametrize(
    ("script", "changed"),
    [
        ("select-only", {"drive": {"clients": 3, "rate": 50.0}}),
        ("select-only", {"settings": {"work_mem": "64MB"}}),
        ({"name": "own.sql", "text": "SELECT 1"}, {}),
    ],
)
def test_a_cell_that_a_bisection_would_not_repeat_has_no_command(
    script: object, changed: dict[str, object]
) -> None:
    assert bisect_command(study_of({**PGBENCH, "scripts": ("select-only",)}, "17", "14"), 1)
    assert not bisect_command(study_of({**PGBENCH, "scripts": (script,)}, "17", "14", **changed), 1)


def test_the_heat_map_names_every_cell(built: StudyReport) -> None:
    (panel,) = heat_map(matrix(built))
    assert panel.picture.count("<title>") == 3
    assert "step more" in panel.picture and "step less" not in panel.picture


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        *[("16..18", ["16", "17", "18"]), ("18, 17.5", ["18", "17.5"])],
        *[("18..17", None), ("18", None), ("14..99999999999", None)],
    ],
)
def test_versions_are_a_range_or_a_list(text: str, servers: list[str] | None) -> None:
    if servers is None:
        with pytest.raises(UsageError, match="two versions"):
            servers_of(text)
    else:
        assert servers_of(text) == servers


REFUSED_VERSIONS = {
    "17,17": "has the level 17 twice",
    "17,host=db password=hunter2": "a connection string requires a name",
    f"17,/{'x' * 60}": "level 1 requires a name of 1 to 60 characters",
}


def test_versions_replace_the_servers_of_a_study() -> None:
    data: dict[str, object] = {
        "title": "x",
        "compare": ("server",),
        "drive": {"clients": 1},
        "factors": {
            "server": ("15", "16"),
            "workload": {
                "a": {"kind": "pgbench", "variant": "select-only", "scale": 1},
                "b": {"kind": "tpcc", "warehouses": 1, "clients": 2},
            },
        },
    }
    changed = Versions(versions="17..18").changed(StudyFile.of(data))
    (a, b) = cases_of(changed)
    assert [arm.name for arm in a.study.arms] == ["17", "18"]
    assert (a.name, a.study.driving(0).clients) == ("a", 1)
    assert (b.name, b.study.driving(0).clients, b.study.driving(0).workload.kind) == ("b", 2, "tpcc")
    for versions, message in REFUSED_VERSIONS.items():
        with pytest.raises(UsageError, match=f"--versions: {message}"):
            Versions(versions=versions).changed(StudyFile.of(data))
    fixed = {**data, "server": "15", "compare": ("clients",), "factors": {"clients": (1, 2)}}
    fixed |= {"drive": {}, "workload": {"kind": "tpcc", "warehouses": 1}}
    with pytest.raises(UsageError, match="--versions requires"):
        Versions(versions="17..18").changed(StudyFile.of(fixed))


def test_the_bundled_study_has_many_workloads() -> None:
    found = cases_of(read_study("postgres-versions"))
    kinds = {case.study.driving(0).workload.kind for case in found}
    assert len(found) >= 16 and {"pgbench", "sysbench", "tpcc"} <= kinds
    assert (Path(__file__).parents[5] / "studies" / "postgres-versions.toml").is_file()
