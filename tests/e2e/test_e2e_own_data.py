"""Data of the user, end to end: names, invariants, a study file, and scripts from recorded statements."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from program import COUNTED, Program

from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.server.processes import Cluster
from pgdyno.workloads.pgbench.parameters import LIST, STUB

SHOP = Path(__file__).parents[1] / "data" / "shop"
SMALL = (*("--clients", "2", "--seed", "7", "--blocks", "1", "--json"), *COUNTED)
SCRIPTS = ("-f", f"{SHOP / 'buy.sql'}@3", "-f", SHOP / "look.sql")

STUDY = """
title = "shop"
compare = ["settings"]
server = "SERVER"
[workload]
kind = "pgbench"
data = "shop"
protocol = "prepared"
[[workload.scripts]]
name = "found"
text = '''FOUND'''
[[workload.scripts]]
name = "joined"
text = "JOINED"
[factors.settings.default]
work_mem = "4MB"
[factors.settings.more]
work_mem = "8MB"
[drive]
clients = 1
[run]
schedule = "blocks"
transactions = 60
warmup = "0.2s"
repeats = 1
stop = "budget"
aa = false
"""

FOUND = """\\sample email FROM customer.email
\\sample p FROM "purchase".product_id frequency
SELECT 1 / count(*) FROM customer WHERE email = :email;
SELECT 1 / (SELECT count(*) FROM purchase WHERE product_id = :p);
"""
"""A row that does not exist would divide by zero."""

JOINED = "SELECT count(*) FROM purchase_2025 AS p JOIN product ON product.id = p.product_id;"

PLANTED = "Planted-4711"

WRONG = {
    "cast.sql": "SELECT email::int FROM customer WHERE id < :c;",
    "twice.sql": "INSERT INTO customer SELECT 900 + id, email, profile FROM customer LIMIT 1;",
    "raise.sql": "DO $$ BEGIN RAISE EXCEPTION '%', (SELECT min(email) FROM customer); END $$;",
}
"""Scripts whose errors contain values of rows."""


def test_a_named_shop_is_measured_with_invariants_and_loaded_once_and_no_output_has_its_rows(
    program: Program, server: str, tmp_path: Path
) -> None:
    shutil.copytree(SHOP / "load", tmp_path / "load")
    with (tmp_path / "load" / "rows.sql").open("a") as rows:
        rows.write(f"UPDATE customer SET email = '{PLANTED}-' || id;\n")
    added = program.run("data", "add", "shop", tmp_path / "load", "--json")
    assert added.status == 0, added.err
    assert added.json()["form"] == "scripts"
    scripts = [*SCRIPTS]
    for name, text in WRONG.items():
        # Sometimes right, so that the study goes on.
        sometimes = f"\\set c random(1, 9)\n\\if :c > 5\n{text}\n\\else\nSELECT 1;\n\\endif\n"
        (tmp_path / name).write_text(sometimes)
        scripts += ["-f", str(tmp_path / name)]
    pages = ("--html", tmp_path / "e.html", "--evidence", tmp_path / "e.sqlite")
    own = ("--data", "shop", *scripts, "--check", SHOP / "sold.sql", *pages)
    ended = program.run("compare", *SMALL, *own, server, f"{server},work_mem=8MB")
    assert ended.status == 0, ended.err
    assert ended.trials == [{"ok": 1}] * 2
    with Evidence(tmp_path / "e.sqlite") as opened:
        for trial in opened.trials():
            names = [check.name for check in trial.checks if check.name.startswith("invariant")]
            assert len(names) == 2
            assert "server log" in {check.name for check in trial.checks}
            assert all(check.passed for check in trial.checks)
        assert opened.study().plan.workload.shape()["data"] == added.json()["digest"]
    codes = (b"22P02", b"23505", b"P0001")
    assert any(code in (tmp_path / "e.sqlite").read_bytes() for code in codes)
    written = [path for path in tmp_path.iterdir() if path.is_file() and path.name.startswith("e.")]
    assert len(written) >= 2
    for path in written:
        assert PLANTED.encode() not in path.read_bytes(), path
    assert PLANTED not in ended.out + ended.err
    require_samples_and_scripts_by_name(program, server, added.json()["digest"])
    shown = program.run("data", "show", "shop", "--json").json()
    assert len(shown["datasets"]) == 1
    assert [one["name"] for one in program.run("data", "list", "--json").json()["data"]] == ["shop"]
    assert program.run("data", "remove", "shop").status == 0
    assert program.run("data", "list", "--json").json() == {"data": []}
    assert "data-" not in program.run("cache", "list", "--json").out


def require_samples_and_scripts_by_name(program: Program, server: str, digest: str) -> None:
    """Run the study file on the named data, which are loaded already."""
    folder = program.folder
    study = STUDY.replace("SERVER", server).replace("FOUND", FOUND).replace("JOINED", JOINED)
    (folder / "s.toml").write_text(study)
    ended = program.run("run", "s.toml", "--json", "--evidence", "s.sqlite")
    assert ended.status == 0, ended.err
    assert "loading" not in ended.err
    (queries,) = ended.case["queries"]
    assert {change["name"] for change in queries["changes"]} == {"found", "joined"}
    assert (queries["kind"], queries["uncompared"]) == ("script", [])
    with Evidence(folder / "s.sqlite") as opened:
        assert opened.study().plan.workload.shape()["data"] == digest
        assert not any(trial.failures for trial in opened.trials())
        samples = [arm.dataset["samples"] for arm in opened.arms()]
    assert samples[0] == samples[1]
    assert {name: of["values"] for name, of in samples[0].items()} == {
        "customer.email": 200,
        '"purchase".product_id frequency': 2000,
    }


def test_a_violated_invariant_excludes_the_trial_and_shows_no_row(
    program: Program, server: str, tmp_path: Path
) -> None:
    (tmp_path / "no_orders.sql").write_text(
        "SELECT id FROM purchase WHERE bought_on = '2026-03-01' AND id > 3000\n"
    )
    own = ("--data", SHOP / "load", *SCRIPTS, "--check", tmp_path / "no_orders.sql", "--evidence")
    ended = program.run("compare", *SMALL, *own, tmp_path / "e.sqlite", server, server)
    assert ended.status == 1, ended.err
    assert "no block is valid" in ended.err
    with Evidence(tmp_path / "e.sqlite") as opened:
        for trial in opened.trials():
            assert trial.status is TrialStatus.EXCLUDED
            assert f"{tmp_path / 'no_orders.sql'}: SELECT id FROM purchase" in trial.reason
            assert trial.reason.endswith(" rows")


def test_wrong_requests_are_refused_before_the_measurement(
    program: Program, server: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.sql").write_text("SELECT nothing FROM purchase;\n")
    (tmp_path / "some.sql").write_text("SELECT id FROM customer\n")
    (tmp_path / "absent.sql").write_text("\\sample c FROM custmer.id\nSELECT :c;\n")
    (tmp_path / "form.sql").write_text("SELECT 1;\n\\sample c FROM id\nSELECT :c;\n")
    data, evidence = ("--data", SHOP / "load"), ("--evidence", tmp_path / "e.sqlite")
    look = ("-f", SHOP / "look.sql")
    for arguments, status, message in (
        ((*data, "-f", tmp_path / "wrong.sql"), 1, 'column "nothing" does not exist'),
        ((*data, "-f", tmp_path / "absent.sql"), 1, 'relation "custmer" does not exist'),
        ((*data, "-f", tmp_path / "form.sql"), 2, "does not have the form table.column"),
        (("--workload", "pgbench", "-f", tmp_path / "absent.sql"), 2, "requires --data"),
        ((*data, *look, "--check", tmp_path / "some.sql"), 1, "returned 200 rows before the measurement"),
        (("--data", "nothing", *look), 2, "there are no data 'nothing'"),
        ((*data, *look, "--workload", "sysbench"), 2, "requires --workload pgbench"),
    ):
        ended = program.run("compare", *SMALL, *arguments, *evidence, server, server)
        assert (ended.status, message in ended.err) == (status, True), ended.err
        assert not (tmp_path / "e.sqlite").exists()


STATEMENTS = (
    "SELECT count(*) FROM purchase WHERE customer_id = 5 AND bought_on BETWEEN '2025-07-01' AND '2025-08-01'",
    "SELECT id FROM customer WHERE lower(email) = 'c7@example.org' LIMIT 3",
    "INSERT INTO purchase (customer_id, product_id, amount, bought_on) VALUES (1, 2, 3, '2026-01-01')",
    "UPDATE customer SET profile = '{}' WHERE id = ANY ('{1,2}'::int[])",
    "SELECT count(*) FROM purchase WHERE bought_on > now() - make_interval(days => 30)",
)


def test_scripts_from_statements_are_measured_and_the_report_has_their_coverage(
    program: Program, server: str, cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.start({"shared_preload_libraries": "pg_stat_statements"}) as origin:
        with origin.connect() as connection:
            for text in (
                *((SHOP / "load" / name).read_text() for name in ("schema.sql", "rows.sql")),
                "ANALYZE",
            ):
                connection.execute(text.encode())
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute("SELECT pg_stat_statements_reset()")
            for text in STATEMENTS * 2:
                connection.execute(text.encode())
        directory = tmp_path / "load"
        command = ("workload", "from-statements", origin.conninfo(), "-o", directory, "--json")
        made = program.run(*command, "--min-coverage", "0.001%")
    assert made.status == 0, made.err
    assert len(made.json()["scripts"]) == len(STATEMENTS)

    data = ("--data", SHOP / "load", "-f", directory)
    compare = ("compare", *SMALL, *data, "--evidence", tmp_path / "e.sqlite")
    refused = program.run(*compare, server, server)
    assert refused.status == 2
    assert "argument days of make_interval: edit the range of p1" in refused.err

    (report,) = [path for path in directory.glob("*.sql") if STUB in path.read_text()]
    report.write_text(re.sub(f"^{STUB}.*\n", "", report.read_text(), flags=re.MULTILINE))
    shares = re.sub("^share = .*$", "share = 0.0666", (directory / LIST).read_text(), flags=re.MULTILINE)
    (directory / LIST).write_text(shares)
    ended = program.run(*compare, server, server)
    assert ended.status == 0, ended.err
    result = ended.json()
    assert ended.trials == [{"ok": 1}] * 2
    assert round(ended.case["coverage"], 3) == 0.333
    assert "covers 33% of the recorded time" in result["sentences"][""]["answer"][0]
    assert ("low-coverage", "changes_answer") in {(one["code"], one["rank"]) for one in result["caveats"]}
