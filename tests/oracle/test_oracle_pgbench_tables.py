"""pgbench's tables from the engine compared with those of ``pgbench -i`` on the newest server: rows, columns,
constraints. crates/pgdyno-pgbench/tests/server/initialise.rs compares them on the installed one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

import psycopg
import pytest
from server_of_major import build_of

from pgdyno.server.builds import NEWEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.engine import Engine, Event
from pgdyno.server.processes import Cluster, Server

pytestmark = pytest.mark.server
PGBENCH = shutil.which("pgbench", path=os.environ.get("PGDYNO_TEST_PG_BIN") or os.environ.get("PATH"))

SCHEMA = (
    # Flags for heirs of a partition's constraint are omitted: it has none.
    """SELECT attrelid::regclass::text, attnum, attname, format_type(atttypid, atttypmod), attnotnull
         FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relname LIKE 'pgbench%' AND relkind IN ('r', 'p') AND attnum > 0 ORDER BY 1, 2""",
    """SELECT relname, relkind, reloptions, relpersistence, reltablespace,
              pg_get_expr(relpartbound, pg_class.oid)
         FROM pg_class WHERE relname LIKE 'pgbench%' ORDER BY 1""",
    """SELECT conrelid::regclass::text, conname, contype, convalidated, conislocal, coninhcount,
              conparentid <> 0, pg_get_constraintdef(oid)
         FROM pg_constraint WHERE conrelid::regclass::text LIKE 'pgbench%' ORDER BY 1, 2""",
    """SELECT pg_get_indexdef(indexrelid), indisprimary, indisvalid
         FROM pg_index WHERE indrelid::regclass::text LIKE 'pgbench%' ORDER BY 1""",
)
ROWS = (
    "SELECT tableoid::regclass::text, count(*), md5(string_agg(t::text, ',' ORDER BY aid))"
    " FROM pgbench_accounts t GROUP BY 1 ORDER BY 1",
    "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY tid)) FROM pgbench_tellers t",
    "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY bid)) FROM pgbench_branches t",
    "SELECT count(*) FROM pgbench_history",
)

CASES = [
    pytest.param(
        {"scale": 2, "fillfactor": 70, "tablespace": "pg_default", "index_tablespace": "pg_default"},
        "-s2 -F70 --tablespace=pg_default --index-tablespace=pg_default",
        id="fillfactor, tablespaces",
    ),
    pytest.param(
        {"scale": 1, "partitions": 4, "partition_method": "hash", "foreign_keys": True},
        "-s1 --partitions=4 --partition-method=hash --foreign-keys",
        id="hash partitions, foreign keys",
    ),
    pytest.param(
        {"scale": 1, "steps": "dtGvp", "unlogged": True}, "-s1 -IdtGvp --unlogged", id="by the server"
    ),
    pytest.param({"scale": 1, "steps": "dtpfgv"}, "-s1 -Idtpfgv", id="keys before rows"),
    pytest.param(
        {"scale": 1, "partitions": 2, "steps": "dtp fgg"}, "-s1 --partitions=2 -Idtpfg", id="filled twice"
    ),
]


@pytest.fixture(scope="module")
def server(new_cluster: Callable[[Build], AbstractContextManager[Cluster]]) -> Iterator[Server]:
    newest = build_of(Cache.open(), NEWEST_MAJOR)
    with new_cluster(newest) as cluster, cluster.start({"shared_buffers": "32MB"}) as running:
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    yield from _database(server, "ours")


@pytest.fixture
def other(server: Server) -> Iterator[str]:
    yield from _database(server, "theirs")


def _database(server: Server, name: str) -> Iterator[str]:
    with closing(server.connect()) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield server.conninfo(name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def load(conninfo: str, into_existing: bool = True, **workload: Any) -> list[Event]:
    of_pgbench = {"conninfo": conninfo, "workload": {"kind": "pgbench", **workload}}
    with Engine(
        "load", {**of_pgbench, "seed": 0, "connections": 2, "into_existing": into_existing}
    ) as engine:
        return list(engine.events())


def loaded(conninfo: str, **workload: Any) -> Event:
    result = load(conninfo, **workload)[-1]
    assert result["event"] == "result", result
    return result


def ask(conninfo: str, query: str) -> list[Any]:
    with closing(psycopg.connect(conninfo)) as connection:
        return connection.execute(query.encode()).fetchall()


def carry_out(conninfo: str, statement: str) -> None:
    with closing(psycopg.connect(conninfo, autocommit=True)) as connection:
        connection.execute(statement.encode())


def counts(conninfo: str) -> list[int]:
    tables = ("accounts", "tellers", "branches", "history")
    return [ask(conninfo, f"SELECT count(*) FROM pgbench_{table}")[0][0] for table in tables]


@pytest.mark.skipif(PGBENCH is None, reason="NO PGBENCH: there is none to compare with")
@pytest.mark.parametrize(("workload", "options"), CASES)
def test_the_tables_are_those_of_the_real_pgbench(
    database: str, other: str, workload: dict[str, Any], options: str
) -> None:
    subprocess.run([PGBENCH, "-i", "-q", *options.split(), other], check=True, capture_output=True)
    result = loaded(database, **workload)
    for query in (*SCHEMA, *ROWS):
        assert ask(database, query) == ask(other, query)
    assert list(result["rows"].values()) == [
        ask(other, f"SELECT count(*) FROM {table}")[0][0] for table in result["rows"]
    ]


def test_rows_are_frozen_as_they_are_copied(database: str) -> None:
    loaded(database, scale=1, partitions=2, steps="dtg")
    carry_out(database, "CREATE EXTENSION pageinspect")
    # Both hint bits of the inserting transaction together mean frozen.
    flags = "SELECT DISTINCT t_infomask & 768 FROM heap_page_items(get_raw_page('pgbench_accounts_2', 0))"
    assert ask(database, flags) == [(768,)]


def test_steps_are_reported_at_their_start_and_timed(database: str) -> None:
    events = load(database, scale=1, steps="dt gvp", foreign_keys=True)
    assert [event["step"] for event in events if event["event"] == "step"] == list("dtgvpf")
    result = events[-1]
    assert [step["step"] for step in result["steps"]] == list("dtgvpf")
    assert set(result["phases_s"]) == {"create", "copy", "vacuum", "index"}
    assert result["rows"]["pgbench_accounts"] == 100_000
    assert events[0]["tables"]["pgbench_accounts"]["rows"] == 100_000


def test_a_conflicting_view_is_not_changed(database: str) -> None:
    carry_out(database, "CREATE VIEW pgbench_history AS SELECT 1 AS tid")
    assert "pgbench_history exists" in load(database, scale=1)[-1]["message"]
    assert ask(database, "SELECT tid FROM pgbench_history") == [(1,)]


def test_a_step_that_fails_later_and_a_load_that_may_not_replace_tables_leave_the_rows(database: str) -> None:
    failed = load(database, scale=1, steps="dtgpp")[-1]
    assert (failed["stage"], failed["sqlstate"]) == ("index", "42P16")
    refused = load(database, into_existing=False, scale=2)[-1]
    assert "already has tables of these names" in refused["message"]
    assert counts(database) == [100_000, 10, 1, 0]


def test_keys_too_small_for_the_scale_are_an_error(database: str) -> None:
    loaded(database, scale=1, steps="t")
    failed = load(database, scale=30_000, steps="g")[-1]
    assert "too small for 3000000000 accounts" in failed["message"]
