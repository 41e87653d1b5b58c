"""Plans of a real server: nothing is executed, and arms with other plans differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from server_of_major import build_of
from small_study import run_small, small_study

from pgdyno.cli.report import read_report
from pgdyno.features.plans.explain import capture
from pgdyno.features.plans.findings import plans_of
from pgdyno.measure.server_probes import MissingObject
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.server.builds import NEWEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, Server
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", params=[15, NEWEST_MAJOR])
def planned(
    request: pytest.FixtureRequest, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    """A server before and after GENERIC_PLAN (16)."""
    with new_cluster(build_of(Cache.open(), request.param)) as cluster, cluster.start() as server:
        yield server


def test_statements_are_explained_without_execution(planned: Server) -> None:
    with planned.connect() as owner:
        owner.execute("CREATE TABLE planned (a int PRIMARY KEY, b text)")
        owner.execute("INSERT INTO planned SELECT i, 'x' FROM generate_series(1, 1000) AS i")
        owner.execute("ANALYZE planned")
        scripts = [
            "SELECT b FROM planned WHERE a = :a; DELETE FROM planned WHERE a < 100;",
            "INSERT INTO planned VALUES (:new, 'y');\nSELECT nothing FROM planned;",
            "WITH gone AS (DELETE FROM planned RETURNING a) SELECT count(*) FROM gone;",
            "DROP TABLE planned;",
        ]
        with planned.connect() as connection:
            found = {str(row["statement"]): row for row in capture(connection, scripts, 10.0)}
        with planned.connect() as connection:
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


PARTITIONED = """
CREATE TABLE orders (day int, id int) PARTITION BY RANGE (day);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (1) TO (2);
CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (2) TO (3)"""
BY_DAY = "SELECT count(*) FROM orders WHERE day = :day;"


def test_a_generic_plan_has_its_partitions_from_16_on(planned: Server) -> None:
    with planned.connect() as owner:
        for statement in PARTITIONED.split(";"):
            owner.execute(statement.encode())
        with planned.connect() as connection:
            (row,) = capture(connection, [BY_DAY], 10.0)
        if planned.build.version.major >= 16:
            assert "Seq Scan on orders_1" in str(row["plan"]) and "Seq Scan on orders_2" in str(row["plan"])
        else:
            assert "no partition in a generic plan" in str(row["reason"])
        owner.execute("DROP TABLE orders")


def test_without_the_privilege_to_keep_errors_out_of_the_log_no_plan_is_captured(planned: Server) -> None:
    """A superuser, and from 15 on a user that may set log_min_messages, leave no error in the log."""
    missing = ["SELECT nothing FROM nowhere;"]
    with planned.connect() as owner:
        owner.execute("CREATE ROLE humble LOGIN")
        before = planned.log()
        with connected(planned, "humble") as connection:
            with pytest.raises(MissingObject, match="requires a superuser"):
                capture(connection, missing, 10.0)
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        owner.execute("GRANT SET ON PARAMETER log_min_messages TO humble")
        for user in ("humble", owner.info.user):
            with connected(planned, user) as connection:
                (row,) = capture(connection, missing, 10.0)
                assert row["reason"] == 'relation "nowhere" does not exist'
        assert "ERROR" not in planned.log()[len(before) :]
        with connected(planned, "humble") as connection, pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT nothing FROM nowhere")
        assert "nowhere" in planned.log()[len(before) :]  # the log is the one that is read
        owner.execute("REVOKE SET ON PARAMETER log_min_messages FROM humble")
        owner.execute("DROP ROLE humble")


def connected(server: Server, user: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(make_conninfo(server.conninfo(), user=user), autocommit=True)


def test_a_second_statement_in_a_text_is_refused(planned: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT 1; CREATE TABLE created_by_explain ()"
    monkeypatch.setattr("pgdyno.features.plans.explain.statements_of_script", lambda _: [text])
    with planned.connect() as connection:
        (row,) = capture(connection, [""], 10.0)
        assert "multiple commands" in str(row["reason"])
        found = connection.execute("SELECT to_regclass('created_by_explain')").fetchone()
        assert found == (None,)


def test_a_study_reports_the_statement_whose_plan_differs(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks are shorter than those of a real study."""
    monkeypatch.setattr("pgdyno.features.plans.explain.BLOCK_S_MIN", 0.0)
    monkeypatch.setattr("pgdyno.features.plans.explain.BLOCK_SHARE_MAX", 100.0)
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
        blocks_max=1,
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
    assert (change.blocks, change.differing) == (1, 1)
    said = "Index Scan using pgbench_accounts_pkey on pgbench_accounts → Seq Scan on pgbench_accounts"
    assert said in to_markdown(report).replace("\\", "")
