"""Scripts from the statements of a real server: nothing is written there, and every script works."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from server_of_major import build_of
from typer.testing import CliRunner

from pgdyno.cli.main import app
from pgdyno.errors import PgdynoError, ServerError, UsageError
from pgdyno.features.statements.scripts import read_load, read_tables, reading_session
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import Dsn
from pgdyno.server.processes import Cluster, Connection, Server
from pgdyno.workloads.pgbench.parameters import STUB, Script, read_directory

pytestmark = pytest.mark.server

SHOP = Path(__file__).parents[5] / "tests" / "data" / "shop" / "load"
SECRET = "c7@example.org"

WITH_SCRIPT = (
    "SELECT count(*) FROM purchase WHERE customer_id = 5",
    "SELECT p.id, c.email FROM purchase AS p JOIN customer AS c ON c.id = customer_id "
    f"WHERE lower(c.email) = '{SECRET}' AND bought_on BETWEEN '2025-07-01' AND '2025-08-01' LIMIT 10",
    "SELECT * FROM product WHERE id = ANY ('{1,2,3}'::int[]) OFFSET 1",
    "SELECT * FROM product WHERE id IN (1, 2, 3) AND name LIKE 'product%'",
    "INSERT INTO purchase (customer_id, product_id, amount, bought_on) VALUES (1, 2, 3, '2026-01-01')",
    "INSERT INTO purchase VALUES (9000001, 2, 3, 1, '2026-01-01') RETURNING id",
    f"INSERT INTO customer (id, email, profile) VALUES (900001, 'x', '{{\"mail\": \"{SECRET}\"}}')",
    "INSERT INTO sold VALUES (5, 0) ON CONFLICT (product_id) DO UPDATE SET amount = sold.amount + 2",
    "UPDATE product SET stock = stock - 1 WHERE id = 4 AND stock > 3",
    "UPDATE customer SET id = 900001, email = 'y', profile = '{}' WHERE id = 900001",
    "WITH w AS (SELECT customer_id AS c FROM purchase WHERE product_id = 4) SELECT FROM w WHERE c = 17",
    "SELECT date_trunc('month', bought_on), extract(year FROM bought_on), interval '1 day', "
    "substring('ab' FROM 1 FOR 1) FROM purchase WHERE bought_on > date '2025-09-01' GROUP BY 1, 2",
    "SELECT count(*) FROM purchase WHERE upper(id::text) LIKE upper('17%')",
    "DELETE FROM purchase WHERE id = 9000001",
    "SELECT stock FROM product WHERE id = 4 FOR UPDATE",
)
WITH_STUB = (
    "SELECT count(*) FROM purchase WHERE bought_on > now() - make_interval(days => 30)",
    "SELECT count(*) FROM purchase WHERE bought_on > now() - 30 * interval '1 day' AND amount > 1",
    "SELECT profile FROM customer WHERE profile ->> 'city' = 'c1'",
    "SELECT nextval('order_number')",
)
WITHOUT_SCRIPT = {
    "DELETE FROM customer WHERE id = 900001": "referenced",
    "INSERT INTO sold SELECT id, 0 FROM product WHERE id > 900": "unique",
    "SELECT count(*) FROM pg_class WHERE relname = 'x'": "system",
    "VACUUM product": "utility",
    "INSERT INTO bulk SELECT generate_series(1, 10000)": "one_off",
}
ONCE = "SELECT sum(stock) FROM product"


@pytest.fixture(scope="module", params=[OLDEST_MAJOR, NEWEST_MAJOR])
def shop(
    request: pytest.FixtureRequest, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    """A shop that records its statements, and has executed each of them twice, but ONCE."""
    build = build_of(Cache.open(), request.param)
    with (
        new_cluster(build) as cluster,
        cluster.start({"shared_preload_libraries": "pg_stat_statements"}) as server,
    ):
        with server.connect() as connection:
            connection.execute("CREATE DATABASE shop")
        with server.connect("shop") as connection:
            for name in ("schema.sql", "rows.sql"):
                connection.execute((SHOP / name).read_bytes())
            connection.execute("ANALYZE")
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute("CREATE ROLE reader LOGIN")
            connection.execute("CREATE TABLE bulk (n integer)")
            connection.execute("SELECT pg_stat_statements_reset()")
            for _ in range(2):
                for text in (*WITH_SCRIPT, *WITH_STUB, *WITHOUT_SCRIPT):
                    connection.execute(text.encode())
            connection.execute(ONCE)
        yield server


def from_statements(server: Server, output: Path, *arguments: str, dsn: str = "") -> Any:
    """Make scripts of any coverage: the times of so few executions are arbitrary."""
    command = ["workload", "from-statements", dsn or server.conninfo("shop"), "-o", str(output), "--json"]
    ended = CliRunner().invoke(app, [*command, "--min-coverage", "0.0001%", *arguments])
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def test_statements_become_scripts_that_work_with_weights_and_the_others_have_reasons(
    shop: Server, tmp_path: Path
) -> None:
    result = from_statements(shop, tmp_path / "load")
    scripts = {one["file"]: (tmp_path / "load" / one["file"]).read_text() for one in result["scripts"]}
    assert len(scripts) == len(WITH_SCRIPT) + len(WITH_STUB)
    assert {one["weight"] for one in result["scripts"]} == {2}
    reasons = [one["reason"] for one in result["left_out"]]
    assert sorted(reasons) == sorted([*WITHOUT_SCRIPT.values(), *["one_off"] * 2])  # ONCE and the reset
    shares = sum(one["share"] for one in (*result["scripts"], *result["left_out"]))
    assert shares == pytest.approx(1)
    for path in (tmp_path / "load").iterdir():
        assert SECRET not in path.read_text()
    assert "\\sample p1 FROM public.purchase.customer_id" in "".join(scripts.values())
    require_working(shop, scripts.values())
    read = read_directory_without_stubs(tmp_path / "load")
    assert sum(script.share or 0 for script in read) == pytest.approx(result["coverage"], abs=1e-4)


def read_directory_without_stubs(directory: Path) -> tuple[Script, ...]:
    """Return the scripts, which are refused until the marks of their stubs are removed."""
    marked = [path for path in sorted(directory.glob("*.sql")) if STUB in path.read_text()]
    assert len(marked) == len(WITH_STUB)
    for path in marked:
        with pytest.raises(UsageError, match=r"contains an unedited stub.*then delete this line"):
            read_directory(directory)
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if not line.startswith(STUB)))
    return read_directory(directory)


def require_working(shop: Server, scripts: Iterable[str]) -> None:
    """The values of \\sample are read here: whether scripts work does not depend on the engine's own."""
    with shop.connect("shop") as connection:
        connection.execute("SET pg_stat_statements.track = none")
        for text in scripts:
            if "'stub_" in text:
                continue  # to be edited
            for _ in range(3):
                with connection.transaction(force_rollback=True):
                    connection.execute(with_drawn_values(connection, text).encode())


def with_drawn_values(connection: Connection, script: str) -> str:
    """Return the statement of a script with the values of its variables; numbers have no quotes."""
    statement = "\n".join(line for line in script.splitlines() if not line.startswith(("--", "\\")))
    values = {}
    for command in re.findall(r"^\\(.*)$", script, re.MULTILINE):
        if found := re.fullmatch(r"sample (\w+) FROM (\S+)\.(\S+) (uniform|frequency)", command):
            name, table, column = found[1], found[2], found[3]
            constant = (
                f"CASE (SELECT typcategory FROM pg_type WHERE oid = pg_typeof({column})) "
                f"WHEN 'N' THEN {column}::text ELSE quote_literal({column}::text) END"
            )
            query = f"SELECT {constant} FROM {table} WHERE {column} IS NOT NULL"
            row = connection.execute(f"{query} ORDER BY random() LIMIT 1".encode()).fetchone()
            values[name] = str(row[0])
        else:
            found = re.fullmatch(r"set (\w+) random\((\d+), \d+\)", command)
            assert found
            values[found[1]] = found[2]
    return re.sub(r"(?<!:):([a-z]\w*)", lambda of: values[of[1]], statement)


def test_statements_of_a_transaction_in_the_log_become_one_script(shop: Server, tmp_path: Path) -> None:
    insert, update, lock = WITH_SCRIPT[4], WITH_SCRIPT[8], WITH_SCRIPT[-1]
    entries = [
        {"dbname": "shop", "session_id": session, "vxid": "3/7", "message": f"statement: {text}"}
        for session in ("a", "b")
        for text in ("BEGIN ISOLATION LEVEL REPEATABLE READ", lock, insert, update, "COMMIT")
    ]
    alone = {"dbname": "shop", "session_id": "c", "vxid": "4/0"}
    entries += [{**alone, "message": f"statement: {text}"} for text in WITH_STUB * 2]
    (tmp_path / "log.json").write_text("\n".join(map(json.dumps, entries)))
    result = from_statements(shop, tmp_path / "load", "--log", str(tmp_path / "log.json"))
    of_several = [one for one in result["scripts"] if len(one["queryids"]) == 3]
    assert [(one["weight"], one["calls"]) for one in of_several] == [(2, 2.0)]
    assert len(result["scripts"]) == len(WITH_SCRIPT) + len(WITH_STUB) - 2
    stubs = {one["type"] for script in result["scripts"] for one in script["parameters"] if one["stub"]}
    assert stubs == {"text", "regclass"}  # numbers and intervals have the range of the log
    text = (tmp_path / "load" / of_several[0]["file"]).read_text()
    pattern = (
        r"\nBEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT stock FROM product WHERE id = :s1p1 FOR UPDATE;\n"
        r"INSERT INTO purchase .*:s2p4\);\nUPDATE product .* WHERE id = :s1p1 AND stock > .*;\nEND;\n$"
    )
    assert re.search(pattern, text)
    assert sum(one["share"] for one in (*result["scripts"], *result["left_out"])) == pytest.approx(1)


def test_limits_name_what_is_beyond_them(shop: Server, tmp_path: Path) -> None:
    few = from_statements(shop, tmp_path / "load", "--limit", "3")
    assert len(few["scripts"]) == 3
    assert {one["reason"] for one in few["left_out"]} >= {"beyond", "utility"}
    share = (few["scripts"][0]["share"] + few["scripts"][1]["share"]) / 2
    one = from_statements(shop, tmp_path / "load", "--share", f"{share:.9%}", "--overwrite")
    assert [script["file"] for script in one["scripts"]] == [few["scripts"][0]["file"]]


def test_scripts_with_a_small_share_of_the_time_are_refused_and_nothing_is_written(
    shop: Server, tmp_path: Path
) -> None:
    command = ["workload", "from-statements", shop.conninfo("shop"), "-o", str(tmp_path / "load")]
    refused = CliRunner().invoke(app, [*command, "--limit", "1", "--min-coverage", "99.999%"]).exception
    assert isinstance(refused, PgdynoError)
    assert re.search(
        r"cover [\d.]+% of the recorded time, less than 99\.999%.* --min-coverage [\d.]+%", str(refused)
    )
    assert not (tmp_path / "load").exists()


def test_the_tables_of_statements_have_their_keys_and_those_of_their_partitions(shop: Server) -> None:
    dsn = Dsn(shop.conninfo("shop"))
    with pytest.raises(ServerError, match="in a read-only transaction"), reading_session(dsn) as connection:
        connection.execute("CREATE TABLE t ()")
    with reading_session(dsn) as connection:
        tables = read_tables(connection, [("", "purchase"), ("public", "customer"), ("", "none")])
    assert set(tables) == {("", "purchase"), ("public", "customer")}
    purchase, customer = tables["", "purchase"], tables["public", "customer"]
    assert purchase.is_unique("id")
    assert purchase.columns["id"].has_default
    assert 250 < (purchase.columns["bought_on"].width or 0) < 500
    assert customer.unique_keys == {("id",), ("email",)}
    assert customer.mode("id") == "uniform"


def test_a_schema_without_access_hides_its_statements_only(shop: Server, tmp_path: Path) -> None:
    with shop.connect("shop") as connection:
        connection.execute("CREATE SCHEMA private CREATE TABLE t (a int)")
        connection.execute("CREATE ROLE monitor LOGIN IN ROLE pg_read_all_stats")
        for _ in range(2):
            connection.execute("SELECT a FROM private.t WHERE a = 1")
        try:
            dsn = f"{shop.conninfo('shop')} user=monitor"
            result = from_statements(shop, tmp_path / "load", dsn=dsn)
        finally:
            connection.execute("DROP SCHEMA private CASCADE")
    assert len(result["scripts"]) == len(WITH_SCRIPT) + len(WITH_STUB)
    details = [one["detail"] for one in result["left_out"] if one["reason"] == "not_prepared"]
    assert details == ["permission denied for schema private"]


def test_errors_have_remedies(shop: Server, tmp_path: Path) -> None:
    with shop.connect("postgres") as connection:
        connection.execute("CREATE DATABASE quiet")
        connection.execute("ALTER DATABASE quiet SET pg_stat_statements.track = none")
    with shop.connect("quiet") as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
    for dsn, remedy in (
        (f"{shop.conninfo('shop')} user=reader", "GRANT pg_read_all_stats TO reader"),
        (shop.conninfo("postgres"), "CREATE EXTENSION pg_stat_statements"),
        (shop.conninfo("quiet"), "has no statement of the database quiet"),
    ):
        with pytest.raises(ServerError, match=remedy), reading_session(Dsn(dsn)) as one:
            read_load(one)
    command = ["workload", "from-statements", shop.conninfo("shop"), "-o", str(tmp_path)]
    (tmp_path / "mine").touch()
    assert isinstance(CliRunner().invoke(app, command).exception, UsageError)
