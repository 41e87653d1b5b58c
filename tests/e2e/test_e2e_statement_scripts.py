"""From the statements of a running database to a comparison with its scripts."""

from __future__ import annotations

import re
from pathlib import Path

from program import Program

from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.server_account import Account
from pgdyno.study.script_files import LIST, STUB

SHOP = Path(__file__).parents[1] / "data" / "shop" / "load"
SMALL = (
    *("--clients", "2", "--seed", "7", "--blocks", "1", "--no-aa", "--json"),
    *("--schedule", "slices", "--slice", "0.2s", "--warmup", "0.2s", "--window", "0.4s"),
)
STATEMENTS = (
    "SELECT count(*) FROM purchase WHERE customer_id = 5 AND bought_on BETWEEN '2025-07-01' AND '2025-08-01'",
    "SELECT id FROM customer WHERE lower(email) = 'c7@example.org' LIMIT 3",
    "INSERT INTO purchase (customer_id, product_id, amount, bought_on) VALUES (1, 2, 3, '2026-01-01')",
    "UPDATE customer SET profile = '{}' WHERE id = ANY ('{1,2}'::int[])",
    "SELECT count(*) FROM purchase WHERE bought_on > now() - make_interval(days => 30)",
)


def test_scripts_from_statements_are_measured_and_the_report_has_their_coverage(
    program: Program, server: str, build: Build, account: Account, server_dir: Path, tmp_path: Path
) -> None:
    cluster = Cluster(build, server_dir / "data", account)
    cluster.initdb(InitOptions(sync=False))
    with cluster.start({"shared_preload_libraries": "pg_stat_statements"}) as origin:
        with origin.connect() as connection:
            for text in ((SHOP / "schema.sql").read_text(), (SHOP / "rows.sql").read_text(), "ANALYZE"):
                connection.execute(text.encode())
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute("SELECT pg_stat_statements_reset()")
            for text in STATEMENTS * 2:
                connection.execute(text.encode())
        directory = tmp_path / "load"
        command = ("workload", "from-statements", origin.conninfo(), "-o", directory, "--json")
        made = program.run(*command, "--min-coverage", "0.1%")
    assert made.status == 0, made.err
    assert len(made.json()["scripts"]) == len(STATEMENTS)

    compare = ("compare", *SMALL, "--data", SHOP, "-f", directory, "--evidence", tmp_path / "e.sqlite")
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
    assert [arm["trials"] for arm in result["arms"]] == [{"ok": 1}] * 2
    assert round(result["coverage"], 3) == 0.333
    assert "covers 33% of the recorded time" in result["comparisons"][0]["sentence"]
    assert [one["severity"] for one in result["caveats"] if one["code"] == "low-coverage"] == ["high"]
