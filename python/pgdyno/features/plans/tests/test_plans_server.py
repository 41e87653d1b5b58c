"""Plans of a real server: nothing is executed, and arms with other plans differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import run_small, small_study

from pgdyno.cli.report import read_report
from pgdyno.features.plans.explain import capture
from pgdyno.features.plans.findings import plans_of
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.server.builds import Build
from pgdyno.server.processes import Server
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

pytestmark = pytest.mark.server


def test_statements_are_explained_without_execution(running_server: Server) -> None:
    with running_server.connect() as owner:
        owner.execute("CREATE TABLE planned (a int PRIMARY KEY, b text)")
        owner.execute("INSERT INTO planned SELECT i, 'x' FROM generate_series(1, 1000) AS i")
        owner.execute("ANALYZE planned")
        scripts = [
            "SELECT b FROM planned WHERE a = :a; DELETE FROM planned WHERE a < 100;",
            "INSERT INTO planned VALUES (:new, 'y');\nSELECT nothing FROM planned;",
            "WITH gone AS (DELETE FROM planned RETURNING a) SELECT count(*) FROM gone;",
            "DROP TABLE planned;",
        ]
        with running_server.connect() as connection:
            found = {str(row["statement"]): row for row in capture(connection, scripts, 10.0)}
        with running_server.connect() as connection:
            (two,) = capture(connection, ["SELECT 1 \\; DELETE FROM planned"[:8]], 10.0)
        assert list(found) == [
            "SELECT b FROM planned WHERE a = $1",
            "DELETE FROM planned WHERE a < 100",
            "INSERT INTO planned VALUES ($1, 'y')",
            "SELECT nothing FROM planned",
            "WITH gone AS (DELETE FROM planned RETURNING a) SELECT count(*) FROM gone",
        ]
        assert "Index Scan using planned_pkey on planned" in str(
            found["SELECT b FROM planned WHERE a = $1"]["plan"]
        )
        assert found["SELECT nothing FROM planned"]["reason"] == 'column "nothing" does not exist'
        assert [text for text, of in found.items() if "reason" in of] == ["SELECT nothing FROM planned"]
        assert two["plan"] == "Result"
        row = owner.execute("SELECT count(*), max(a) FROM planned").fetchone()
        assert row == (1000, 1000)
        owner.execute("DROP TABLE planned")


def test_a_second_statement_in_a_text_is_refused(
    running_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT 1; CREATE TABLE created_by_explain ()"
    monkeypatch.setattr("pgdyno.features.plans.explain.statements_of_script", lambda _: [text])
    with running_server.connect() as connection:
        (row,) = capture(connection, [""], 10.0)
        assert "multiple commands" in str(row["reason"])
        found = connection.execute("SELECT to_regclass('created_by_explain')").fetchone()
        assert found == (None,)


def test_a_study_reports_the_statement_whose_plan_differs(build: Build, tmp_path: Path) -> None:
    text = "\\set aid random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"

    scripts = (
        Script(name="read", text=text, weight=3),
        Script(name="branch", text="SELECT bid FROM pgbench_branches WHERE bid = 1;\n"),
    )
    off = "enable_indexscan=off,enable_bitmapscan=off,enable_indexonlyscan=off"
    study = small_study(
        [f"A={build.bin_dir}", f"B={build.bin_dir},{off}"],
        workload=PgbenchParameters(scale=1, scripts=scripts),
        probes=("plans",),
        blocks_max=2,
        aa=False,
    )
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    report = read_report(path)
    findings = report.findings.first
    assert {trial.status for trial in findings.trials} == {TrialStatus.OK}
    (comparison,) = plans_of(findings)
    assert comparison.compared == 2
    (change,) = comparison.changes
    assert (change.blocks, change.differing) == (2, 2)
    said = "Index Scan using pgbench_accounts_pkey on pgbench_accounts → Seq Scan on pgbench_accounts"
    assert said in to_markdown(report).replace("\\", "")
