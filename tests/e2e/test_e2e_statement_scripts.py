"""From the statements of a running database to a comparison with its scripts."""

from __future__ import annotations

from pathlib import Path

from program import Program

from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.server_account import Account

SHOP = Path(__file__).parents[1] / "data" / "shop" / "load"
SMALL = (
    *("--clients", "2", "--seed", "7", "--blocks", "1", "--json"),
    *("--schedule", "slices", "--slice", "0.2s", "--warmup", "0.2s", "--window", "0.4s"),
)
STATEMENTS = (
    "SELECT count(*) FROM purchase WHERE customer_id = 5 AND bought_on BETWEEN '2025-07-01' AND '2025-08-01'",
    "SELECT id FROM customer WHERE lower(email) = 'c7@example.org' LIMIT 3",
    "INSERT INTO purchase (customer_id, product_id, amount, bought_on) VALUES (1, 2, 3, '2026-01-01')",
    "UPDATE customer SET profile = '{}' WHERE id = ANY ('{1,2}'::int[])",
)


def test_scripts_from_statements_are_measured(
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
            for text in STATEMENTS:
                connection.execute(text.encode())
        dsn = origin.conninfo()
        made = program.run("workload", "from-statements", dsn, "-o", tmp_path / "load", "--json")
    assert made.status == 0, made.err
    assert len(made.json()["scripts"]) == len(STATEMENTS)
    load = ("--data", SHOP, "-f", tmp_path / "load", "--evidence", tmp_path / "e.sqlite")
    ended = program.run("compare", *SMALL, *load, server, server)
    assert ended.status == 0, ended.err
    assert [arm["trials"] for arm in ended.json()["arms"]] == [{"ok": 1}] * 2
