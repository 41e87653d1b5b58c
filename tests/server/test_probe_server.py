"""Probes with the oldest, a middle and the newest server: they count work done by the test."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from server_of_major import build_of

from pgdyno.analysis.telemetry.samples import (
    BACKGROUND,
    GAUGES,
    OF_STATEMENT,
    WORKER,
    WORKER_ON_CPU,
    WORKER_TIMES,
)
from pgdyno.measure import server_probes as probe_server
from pgdyno.measure.host_counters import scheduled
from pgdyno.measure.sampler import WorkerTimes, backends_by_wait, sample, sample_waits
from pgdyno.measure.server_probes import PROBES, STATTUPLE_TIMEOUT_S, ProbeReading, find_clients, read_probe
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, Connection, Server
from pgdyno.study.defaults import Absence

pytestmark = pytest.mark.server

SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    "autovacuum": "off",  # these tests count only their own work
    "checkpoint_timeout": "1h",
    "max_replication_slots": "2",
    "fsync": "off",  # each test has its own database; no test measures durability
}


# pytest groups tests by the version, so each server starts once.
@pytest.fixture(scope="module", params=[15, NEWEST_MAJOR, OLDEST_MAJOR])
def server(
    request: pytest.FixtureRequest, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    with new_cluster(build_of(Cache.open(), request.param)) as cluster, cluster.start(SETTINGS) as running:
        with running.connect("template1") as connection:
            connection.execute("create extension pg_stat_statements")
            connection.execute("create extension pgstattuple")
            connection.execute("create role humble login")
            connection.execute("create role watcher login")
            connection.execute("grant pg_monitor to watcher")
        yield running


on_one_version = pytest.mark.parametrize("server", [15], indirect=True)
"""Runs a test whose statements are the same for every version on one of them."""


@pytest.fixture
def major(server: Server) -> int:
    return server.build.version.major


@pytest.fixture
def database(server: Server, major: int) -> str:
    """A database per test. Before it, the sessions of earlier ones end: they report statistics of the whole
    server, such as pg_stat_io, at the latest then.
    """
    others = "select 1 - count(*) from pg_stat_activity where backend_type = 'client backend'"
    with server.connect() as connection:
        until(lambda: scalar(connection, others), 0)
        number = len(connection.execute("select from pg_database").fetchall())
        connection.execute(f"create database test_{number}")
        if major >= 15:
            # From now on these changes count as reported, so that they do not arrive during a test.
            connection.execute("select pg_stat_force_next_flush()")
    return f"test_{number}"


@pytest.fixture
def probe(server: Server, database: str) -> Iterator[Connection]:
    """Connection of the probes."""
    with server.connect(database) as connection:
        yield connection


@pytest.fixture
def work(server: Server, database: str) -> Iterator[Connection]:
    """Connection of the workload."""
    with server.connect(database) as connection:
        yield connection


@contextmanager
def connected_as(server: Server, user: str, dbname: str) -> Iterator[Connection]:
    with psycopg.connect(make_conninfo(server.conninfo(dbname), user=user), autocommit=True) as connection:
        yield connection


def rows_of(reading: ProbeReading) -> list[dict[str, Any]]:
    assert reading.rows is not None, reading.reason
    assert reading.took_s > 0
    return [dict(row) for row in reading.rows]


def row_of(connection: Connection, probe: str, /, **where: Any) -> dict[str, Any]:
    found = [row for row in rows_of(read_probe(connection, probe)) if where.items() <= row.items()]
    assert len(found) == 1, found
    return found[0]


def until(value: Callable[[], Any], reached: Any) -> None:
    """Poll until the statistics arrive, some time after the work."""
    while value() < reached:
        pass


def do_and_leave(server: Server, database: str, *statements: str) -> None:
    """Execute in a separate session, which reports its statistics at the latest when it ends."""
    with server.connect(database) as connection:
        for statement in statements:
            connection.execute(statement)


def scalar(connection: Connection, statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def test_a_probe_reads_numbers_and_texts_or_a_reason(
    server: Server, probe: Connection, work: Connection, major: int
) -> None:
    work.execute("create table t (a int primary key, b text)")
    said = server.log()
    readings = {name: read_probe(probe, name) for name in PROBES}
    assert [reading.probe for reading in readings.values()] == list(PROBES)
    if major < 16:
        assert readings.pop("io").absence is Absence.VERSION
    for name, reading in readings.items():
        rows = rows_of(reading)
        assert reading.reason == ""
        assert rows or name in ("replication", "locks")
        assert {type(value) for row in rows for value in row.values()} <= {int, float, str}
    assert "ERROR" not in server.log()[len(said) :]
    assert probe.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert scalar(probe, "show transaction_read_only") == "on"
    assert scalar(probe, "show statement_timeout") == "5s"


def test_seven_executions_raise_the_calls_by_seven(probe: Connection, work: Connection) -> None:
    work.execute("create table t as select g as a from generate_series(1, 10) as g")
    select = "select  a\n  from t where a = any(%s)"

    def find() -> dict[str, Any]:
        return row_of(probe, "statements", query="select a from t where a = any($1)")

    work.execute(select, ([1, 2],))
    before = find()
    for _ in range(7):
        work.execute(select, ([1, 2, 3],))
    after = find()
    assert after["queryid"] == before["queryid"]
    assert (after["calls"] - before["calls"], after["rows"] - before["rows"]) == (7, 21)
    assert after["shared_blks_hit"] - before["shared_blks_hit"] == 7
    assert after["mean_exec_time"] * 8 == pytest.approx(after["total_exec_time"])
    assert after["min_exec_time"] <= after["mean_exec_time"] <= after["max_exec_time"]
    assert after["stddev_exec_time"] >= 0


def test_the_statements_of_probes_are_not_counted(server: Server, database: str) -> None:
    def everything(connection: Connection) -> set[tuple[str, int]]:
        return {(row["query"], row["calls"]) for row in rows_of(read_probe(connection, "statements"))}

    with server.connect(database) as superuser, connected_as(server, "watcher", database) as watcher:
        before = everything(superuser)
        for connection in (superuser, watcher):
            for name in PROBES:
                read_probe(connection, name)
            for _ in range(7):
                sample(connection)
                sample_waits(connection)
        assert everything(watcher) == everything(superuser) == before
    with server.connect(database) as other:
        marked = "from pg_stat_statements where query like '%pgdyno probe%'"
        users = {user for (user,) in other.execute(f"select pg_get_userbyid(userid) {marked}").fetchall()}
        assert "watcher" in users and scalar(other, "select current_user") not in users


def test_a_statement_within_a_function_is_distinguished_if_the_version_supports_it(
    probe: Connection, work: Connection, major: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.execute("set pg_stat_statements.track = 'all'")
    inner = "select count(*) from generate_series(1, 1000)"
    work.execute(f"create function f() returns bigint language plpgsql as $$ begin return ({inner}); end $$")
    for _ in range(3):
        work.execute("select f()")
    rows = rows_of(read_probe(probe, "statements"))
    nested = [row for row in rows if "generate_series" in row["query"] and "create" not in row["query"]]
    (outer,) = (row for row in rows if row["query"] == "select f()")
    assert nested
    told = [1, *[0 for _ in nested]] if major >= 14 else [None, *[None for _ in nested]]
    assert [row.get("toplevel") for row in (outer, *nested)] == told
    monkeypatch.setattr(probe_server, "ROWS_MAX", 0)
    others = rows_of(read_probe(probe, "statements"))
    assert [row.get("toplevel") for row in others] == ([0, 1] if major >= 14 else [None])
    assert sum(row["calls"] for row in others) == sum(row["calls"] for row in rows)


@on_one_version
def test_the_processes_of_clients_are_found_with_their_kernel_counters(
    probe: Connection, work: Connection
) -> None:
    clients = find_clients(probe)
    assert work.info.backend_pid in clients
    assert probe.info.backend_pid not in clients
    before = scheduled([work.info.backend_pid])
    if before is None:
        pytest.skip("NOT TESTED: this kernel does not count how long processes are ready (CONFIG_SCHED_INFO)")
    work.execute("select count(*) from generate_series(1, 200000)")
    after = scheduled([work.info.backend_pid])
    assert after is not None
    assert after.on_cpu_s > before.on_cpu_s
    assert after.ready_s >= before.ready_s
    assert after.switches > before.switches


@on_one_version
def test_a_statement_that_names_a_password_is_not_quoted(probe: Connection, work: Connection) -> None:
    work.execute("create role loved login password 'hunter2'")
    work.execute("select 'hunter3' as password")
    work.execute("drop role loved")
    queries = [row.get("query", "") for row in rows_of(read_probe(probe, "statements"))]
    assert "<a statement that names a password>" in queries
    assert "select $1 as password" in queries
    assert not [query for query in queries if "hunter" in query]


@on_one_version
def test_entries_beyond_the_limit_are_summed(
    probe: Connection, work: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        work.execute(f"create table t{number} as select generate_series(1, {10**number}) as a")
        work.execute(f"analyze t{number}")
    work.execute("select pg_stat_force_next_flush()")  # the counts do not change between two readings
    until(lambda: sum(row["analyze_count"] for row in rows_of(read_probe(probe, "relations"))), 5)
    whole = {name: rows_of(read_probe(probe, name)) for name in ("statements", "relations")}
    monkeypatch.setattr(probe_server, "ROWS_MAX", 2)
    for name, column in (("statements", "calls"), ("relations", "bytes"), ("relations", "reltuples")):
        rows = rows_of(read_probe(probe, name))
        assert [row["kind"] == "others" for row in rows] == [False, False, True]
        assert sum(row[column] for row in rows) == sum(row[column] for row in whole[name])
        assert rows[0] == whole[name][0]
        assert rows[-1][name] == len(whole[name]) - 2
    assert sum(row["reltuples"] for row in whole["relations"]) == 11111


@on_one_version
def test_an_older_extension_on_a_newer_server_is_read_with_its_columns(server: Server) -> None:
    do_and_leave(server, "postgres", "create database elsewhere template template0")
    with server.connect("elsewhere") as connection:
        connection.execute('create schema "an odd place"')
        connection.execute("create extension pg_stat_statements schema \"an odd place\" version '1.8'")
        connection.execute("create table t (a int)")
        connection.execute("insert into t values (1)")
        row = row_of(connection, "statements", query="insert into t values ($1)")
        assert "toplevel" not in row
        assert row["calls"] == 1
        assert row["wal_bytes"] > 0


def test_rows_that_are_written_are_counted_by_table(
    server: Server, database: str, probe: Connection, work: Connection
) -> None:
    work.execute("create table t (a int, b int) with (fillfactor = 40)")
    work.execute("create index i on t (a)")

    def table() -> dict[str, Any]:
        return row_of(probe, "relations", name="t")

    before = row_of(probe, "database")
    do_and_leave(
        server,
        database,
        "insert into t select g, 0 from generate_series(1, 1000) as g",
        "update t set b = 1 where a <= 100",
        "update t set a = -a where a <= 10",
        "delete from t where a > 990",
    )
    until(lambda: table()["n_tup_del"], 10)
    found = table()
    assert found["n_tup_ins"] == 1000
    assert found["n_tup_upd"] == 110
    assert found["n_tup_hot_upd"] == 100
    assert found["n_live_tup"] == 990
    assert 20 <= found["n_dead_tup"] <= 120  # referenced only by the index; the others may have been pruned
    after = row_of(probe, "database")
    for column, expected in (("tup_inserted", 1000), ("tup_updated", 110), ("tup_deleted", 10)):
        # The catalogs' rows for the table and its index may be included.
        assert expected <= after[column] - before[column] < expected + 100
    assert found["bytes"] == scalar(work, "select pg_relation_size('t')")
    assert found["total_bytes"] == scalar(work, "select pg_total_relation_size('t')")
    index = row_of(probe, "relations", name="i")
    assert (index["kind"], index["table_name"]) == ("index", "t")
    assert index["bytes"] == scalar(work, "select pg_relation_size('i')")
    do_and_leave(server, database, "vacuum analyze t")
    until(lambda: table()["analyze_count"], 1)
    found = table()
    assert (found["vacuum_count"], found["autovacuum_count"], found["n_dead_tup"]) == (1, 0, 0)
    assert found["reltuples"] == 990


def test_blocks_are_counted_whether_they_were_there(
    server: Server, database: str, probe: Connection, work: Connection
) -> None:
    do_and_leave(
        server,
        database,
        "create table t as select g as a, repeat('x', 1000) as b from generate_series(1, 700) as g",
    )
    blocks = scalar(work, "select pg_relation_size('t') / current_setting('block_size')::int")
    until(lambda: row_of(probe, "relations", name="t")["n_tup_ins"], 700)
    before = row_of(probe, "blocks", kind="user")
    begun = row_of(probe, "relations", name="t")
    do_and_leave(server, database, *["select count(*) from t"] * 3)
    until(lambda: row_of(probe, "relations", name="t")["seq_scan"], begun["seq_scan"] + 3)
    after = row_of(probe, "blocks", kind="user")
    touched = {name: after[name] - before[name] for name in ("heap_blks_hit", "heap_blks_read")}
    assert sum(touched.values()) == 3 * blocks
    assert touched["heap_blks_read"] == 0
    assert row_of(probe, "blocks", kind="system")["heap_blks_hit"] > 0


def test_wal_is_counted_in_bytes(server: Server, database: str, probe: Connection, major: int) -> None:
    before = row_of(probe, "wal")
    do_and_leave(server, database, "select pg_logical_emit_message(true, 'probe', repeat('x', 1000000))")
    after = row_of(probe, "wal")
    # Besides the message: page and record headers, and full-page images of catalogs.
    assert 1_000_000 < after["lsn_bytes"] - before["lsn_bytes"] < 1_500_000
    if major >= 14:
        until(lambda: row_of(probe, "wal")["wal_bytes"], before["wal_bytes"] + 1_000_000)
        after = row_of(probe, "wal")
        assert after["wal_bytes"] - before["wal_bytes"] < 1_500_000
        assert after["wal_records"] > before["wal_records"]
    else:
        assert after.keys() == {"lsn_bytes"}


def test_a_checkpoint_is_counted(probe: Connection, work: Connection, major: int) -> None:
    # In this order, because the message of an earlier checkpoint may arrive in between.
    sampled, before = sample(probe), row_of(probe, "checkpoints")
    work.execute("create table t as select generate_series(1, 10000) as a")
    work.execute("checkpoint")
    until(lambda: row_of(probe, "checkpoints")["num_requested"], before["num_requested"] + 1)
    until(lambda: row_of(probe, "checkpoints")["buffers_written"], before["buffers_written"] + 40)
    after = row_of(probe, "checkpoints")
    if major >= 15:  # up to version 14, those of databases of other tests may arrive only now
        assert after["num_requested"] - before["num_requested"] == 1
    assert after["write_time"] >= before["write_time"]
    assert sample(probe)["num_requested"] - sampled["num_requested"] >= 1
    assert sample(probe)["buffers_written"] == after["buffers_written"]


@pytest.fixture(scope="module", params=[16, 17, NEWEST_MAJOR])
def small(
    request: pytest.FixtureRequest, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    """A server with few shared buffers, and without libraries."""
    settings = {"shared_buffers": "16MB", "autovacuum": "off", "fsync": "off"}
    with new_cluster(build_of(Cache.open(), request.param)) as cluster, cluster.start(settings) as running:
        yield running


def test_blocks_that_scans_of_large_tables_write_count_as_written_by_backends(small: Server) -> None:
    do_and_leave(
        small,
        "postgres",
        "create table t as select repeat('x', 1000) as b from generate_series(1, 14000)",
        "update t set b = repeat('y', 1000)",
        "select count(*) from t",
    )
    with small.connect("postgres") as probe:
        until(lambda: scalar(probe, "select -count(*) from pg_stat_activity where datname <> ''"), -1)
        others, written = ("checkpointer", "background writer"), Counter[str]()
        for row in rows_of(read_probe(probe, "io")):
            if row["object"] == "relation" and row["backend_type"] not in others:
                written[row["context"]] += row.get("write_bytes", 0) + row.get("extend_bytes", 0)
        assert written["bulkread"] >= 500 * 8192
        assert row_of(probe, "checkpoints")["buffers_backend"] >= written.total() / 8192
        assert sample(probe)["buffers_backend"] >= written.total() / 8192


@pytest.mark.parametrize("small", [17], indirect=True)
def test_a_library_that_was_not_loaded_is_named(small: Server) -> None:
    with small.connect("postgres") as connection:
        connection.execute("create extension pg_stat_statements")
        reason = read_probe(connection, "statements").reason
    assert "shared_preload_libraries" in reason


def test_a_temporary_file_is_counted_with_its_bytes(
    server: Server, database: str, probe: Connection, work: Connection
) -> None:
    work.execute("create table t as select g as a from generate_series(1, 50000) as g")
    work.execute("analyze t")
    before, sampled = row_of(probe, "database"), sample(probe)
    do_and_leave(
        server,
        database,
        "set max_parallel_workers_per_gather = 0",
        "set work_mem = '64kB'",
        "select from (select a from t order by a desc offset 49999) as last",
    )
    until(lambda: row_of(probe, "database")["temp_files"], before["temp_files"] + 1)
    after = row_of(probe, "database")
    assert after["temp_files"] - before["temp_files"] == 1
    # 50,000 numbers of 8 bytes with 4 bytes of length each, written once, or at most twice while runs are
    # merged.
    assert 600_000 < after["temp_bytes"] - before["temp_bytes"] < 1_300_000
    assert sample(probe)["temp_bytes"] - sampled["temp_bytes"] == after["temp_bytes"] - before["temp_bytes"]


def test_a_backend_that_waits_for_a_lock_is_sampled(
    server: Server, database: str, probe: Connection, work: Connection
) -> None:
    work.execute("create table t as select 1 as a")
    with server.connect(database) as holder, server.connect(database) as waiter:
        holder.execute("begin")
        holder.execute("lock table t")
        waiting = threading.Thread(target=waiter.execute, args=["begin; lock table t in share mode"])
        waiting.start()
        try:
            until(lambda: sample(probe)["waiting_backends"], 1)
            (locked,) = [row for row in rows_of(read_probe(probe, "locks")) if not row["granted"]]
            assert (locked["locktype"], locked["mode"], locked["locks"]) == ("relation", "ShareLock", 1)
            assert locked.get("longest_wait_s", 0) >= 0
            held = row_of(probe, "locks", mode="AccessExclusiveLock", granted=1, locktype="relation")
            assert held["locks"] == 1
            assert of_clients(sample_waits(probe)) == {"Lock/relation": 1}
            assert sample(probe)["active_backends"] == 1
            waits = row_of(probe, "waits", wait_event_type="Lock")
            assert (waits["wait_event"], waits["processes"], waits["state"]) == ("relation", 1, "active")
            assert row_of(probe, "waits", state="idle in transaction")["processes"] == 1
            assert "a relation was locked" in read_probe(probe, "relations").reason
        finally:
            holder.execute("rollback")
            waiting.join()
    assert of_clients(sample_waits(probe)) == {}


def test_states_are_sampled_by_statement(probe: Connection, work: Connection, major: int) -> None:
    if major >= 14:
        work.execute("set compute_query_id = on")

    def sleep() -> None:
        with suppress(psycopg.errors.QueryCanceled):
            work.execute("select pg_sleep(600)")

    sleeping = threading.Thread(target=sleep)
    sleeping.start()
    try:
        until(lambda: sample_waits(probe).get("Timeout/PgSleep", 0), 1)
        seen = sample_waits(probe)
        query = "select query_id::text from pg_stat_activity where pid = %s"
        ids = probe.execute(query, [work.info.backend_pid]).fetchall() if major >= 14 else []
    finally:
        work.cancel()
        sleeping.join()
    found = {name: n for name, n in seen.items() if name.startswith(OF_STATEMENT)}
    assert found == {f"{OF_STATEMENT}{of} Timeout/PgSleep": 1 for (of,) in ids}


@on_one_version
@pytest.mark.parametrize(("of_type", "backends"), [("IO", 1), ("LWLock", 0)])
def test_only_io_of_a_process_without_a_client_is_background_wal(
    probe: Connection, of_type: str, backends: int
) -> None:
    row = f"(1, 'walwriter', null::int, null::oid, '{of_type}', 'WALWrite', null::bigint, null::text, '')"
    columns = "pid, backend_type, leader_pid, datid, wait_event_type, wait_event, query_id, state"
    rows = f"(VALUES {row}) AS activity ({columns}, application_name)"
    text = probe_server.statement("sample_waits", 15).replace("pg_stat_get_activity(NULL)", rows)
    assert rows in text
    seen = backends_by_wait(probe_server.fetch(probe, sql.SQL(text)))
    assert seen[f"{BACKGROUND}wal"] == backends


RUNS_MAX = 50
"""Maximum number of runs of a query until its workers are seen in the wanted state."""

PARALLEL = [
    "set parallel_setup_cost = 0",
    "set parallel_tuple_cost = 0",
    "set min_parallel_table_scan_size = 0",
    "set max_parallel_workers_per_gather = 2",
    # In 10, the first page has one row, which takes longer than the start of workers, which read the others.
    "create table parts (a text)",
    "alter table parts alter a set storage plain",
    "alter table parts set (parallel_workers = 2)",
    "insert into parts values (repeat('x', 8000))",
    "insert into parts select 'x' from generate_series(1, 400)",
    "create function burn(n float) returns int parallel safe cost 10000 language plpgsql as"
    " 'begin for i in 1..1e7 * n loop null; end loop; return 1; end'",
]


@pytest.mark.parametrize(
    ("condition", "state"),
    [("pg_sleep({}) is not null", "worker Timeout/PgSleep"), ("burn({}) > 0", "worker running")],
)
def test_a_backend_that_waits_for_parallel_workers_is_sampled_in_their_states(
    probe: Connection, work: Connection, major: int, condition: str, state: str
) -> None:
    for statement in PARALLEL:
        work.execute(statement)
    if major > 10:
        work.execute("set parallel_leader_participation = off")

    is_seen = threading.Event()

    def run() -> None:
        with suppress(psycopg.errors.QueryCanceled):
            slower_first = condition.format("case when length(a) > 1 then 0.5 else 0.1 end")
            for _ in range(RUNS_MAX):  # in 10, the leader reads rows, too, and may wait at the end only
                work.execute(f"select count(*) from parts where {slower_first}")
                if is_seen.is_set():
                    break

    running = threading.Thread(target=run)
    workers, seen = WorkerTimes(), dict[str, float]()
    running.start()
    try:
        while state not in seen or (state == "worker running" and seen.get(WORKER_ON_CPU) == 0):
            assert running.is_alive()
            seen = of_clients(sample_waits(probe, workers))
        # Two workers have the time of one backend.
        states = {name: n for name, n in seen.items() if name not in WORKER_TIMES}
        assert all(name.startswith(WORKER) for name in states)
        assert sum(states.values()) == pytest.approx(1.0)
        if WORKER_ON_CPU not in seen:
            assert scheduled([work.info.backend_pid]) is None  # a kernel without CONFIG_SCHED_INFO
    finally:
        is_seen.set()
        work.cancel()
        running.join()
    assert of_clients(sample_waits(probe, workers)) == {}


@on_one_version
def test_errors_of_a_prepared_sample_are_those_of_psycopg(
    server: Server, database: str, probe: Connection
) -> None:
    assert of_clients(sample_waits(probe)) == {}
    with server.connect(database) as other:
        other.execute("select pg_terminate_backend(%s)", [probe.info.backend_pid])
    with pytest.raises(psycopg.Error):
        until(lambda: len(sample_waits(probe)), 10**6)
    assert probe.closed
    with server.connect(database) as another:
        another.execute("prepare sample_waits as select 1")
        with pytest.raises(psycopg.errors.DuplicatePreparedStatement):
            sample_waits(another)
        assert scalar(another, "select 1") == 1  # the connection can still be used


def of_clients(seen: Mapping[str, float]) -> dict[str, float]:
    return {wait: n for wait, n in seen.items() if not wait.startswith((BACKGROUND, OF_STATEMENT))}


def test_reading_uses_no_transaction_id(probe: Connection, work: Connection) -> None:
    work.execute("create table t (a int)")
    before = row_of(probe, "wraparound")
    for name in PROBES:
        read_probe(probe, name)
    assert row_of(probe, "wraparound") == before
    work.execute("insert into t values (1)")
    after = row_of(probe, "wraparound")
    assert after["next_xid"] - before["next_xid"] == 1
    assert after["frozen_xid_age"] - before["frozen_xid_age"] == 1
    assert after["autovacuum_freeze_max_age"] == 200_000_000


def test_a_slot_keeps_wal(probe: Connection, work: Connection) -> None:
    assert rows_of(read_probe(probe, "replication")) == []
    work.execute("select pg_create_physical_replication_slot('kept', true)")
    before = row_of(probe, "replication", kind="slot", name="kept")
    work.execute("select pg_logical_emit_message(true, 'probe', repeat('x', 1000000))")
    after = row_of(probe, "replication", kind="slot", name="kept")
    work.execute("select pg_drop_replication_slot('kept')")
    assert before["active"] == 0
    assert 1_000_000 < after["retained_bytes"] - before["retained_bytes"] < 1_500_000


@on_one_version
@pytest.mark.parametrize("exact", [True, False])
def test_dead_rows_are_found_in_the_pages(
    probe: Connection, work: Connection, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.execute("create table t as select g as a, repeat('x', 100) as b from generate_series(1, 1000) as g")
    work.execute("create index i on t (a)")
    work.execute("delete from t where a % 4 = 0")
    if not exact:
        monkeypatch.setattr(probe_server, "EXACT_BYTES_MAX", 0)
    table = row_of(probe, "pgstattuple", name="t")
    assert table["exact"] == int(exact)
    assert table["dead_tuple_count"] == 250
    assert table["tuple_count"] == 750
    assert table["bytes"] == scalar(work, "select pg_relation_size('t')")
    indexes = [row for row in rows_of(read_probe(probe, "pgstattuple")) if row["kind"] == "index"]
    assert [row["name"] for row in indexes] == (["i"] if exact else [])
    assert all(50 < row["avg_leaf_density"] <= 100 for row in indexes)
    assert scalar(probe, "show statement_timeout") == "5s"


def test_a_reset_shows(probe: Connection, work: Connection, major: int) -> None:
    work.execute("select pg_stat_reset()")
    until(lambda: "stats_reset" in row_of(probe, "database"), True)
    first = row_of(probe, "database")["stats_reset"]
    work.execute("select pg_stat_reset()")
    until(lambda: row_of(probe, "database")["stats_reset"] > first, True)
    counted = row_of(probe, "statements", query="select pg_stat_reset()")
    work.execute("select pg_stat_statements_reset()")
    work.execute("select pg_stat_reset()")
    again = row_of(probe, "statements", query="select pg_stat_reset()")
    assert again["calls"] == 1 < counted["calls"]
    if major >= 14:
        assert again["stats_reset"] > counted["stats_reset"]
    before = row_of(probe, "checkpoints")["bgwriter_stats_reset"]
    work.execute("select pg_stat_reset_shared('bgwriter')")
    until(lambda: row_of(probe, "checkpoints")["bgwriter_stats_reset"] > before, True)


def test_a_sample_has_all_that_the_version_has(probe: Connection, major: int) -> None:
    found = sample(probe)
    query = probe_server.statement("sample", major).partition("\nFROM ")[0]
    assert found.keys() == set(re.findall(r"^    \S.*\bAS (\w+),?$", query, re.MULTILINE))
    assert ("num_done" in found, "wal_fpi" in found) == (major >= 18, major >= 14)
    assert {type(value) for value in found.values()} == {float}
    later = sample(probe)
    assert all(later[name] >= found[name] for name in found.keys() - GAUGES)
    assert all(value >= 0 for value in found.values())


def test_a_user_without_privileges_gets_a_remedy(server: Server, database: str, probe: Connection) -> None:
    do_and_leave(server, database, "create table t as select 1 as a")
    with (
        connected_as(server, "humble", database) as humble,
        connected_as(server, "watcher", database) as watcher,
    ):
        reasons = {name: read_probe(humble, name).reason for name in PROBES}
        assert "GRANT pg_read_all_stats TO humble, or pg_monitor" in reasons["statements"]
        assert "GRANT pg_stat_scan_tables TO humble, or pg_monitor" in reasons["pgstattuple"]
        for name in ("wal", "checkpoints", "database", "blocks", "relations", "wraparound", "locks"):
            assert reasons[name] == ""
        assert "GRANT pg_read_all_stats TO humble, or pg_monitor" in reasons["waits"]
        with connected_as(server, "humble", database):
            waits = rows_of(read_probe(humble, "waits"))
        assert [row["processes"] for row in waits if not row["hidden"]] == [1]
        assert sum(row["hidden"] for row in waits) > 1
        assert read_probe(watcher, "statements").reason == read_probe(watcher, "pgstattuple").reason == ""
        assert sample(watcher).keys() == sample(probe).keys()
        with server.connect(database):
            seen = sample(humble)
        assert {"autovacuum_workers", "oldest_xmin_age", "active_backends"}.isdisjoint(seen)
        assert {"xact_commit", "lsn_bytes", "num_requested"} <= seen.keys()
        hidden, *known = (
            {name for name in sample_waits(of) if name.startswith(BACKGROUND)}
            for of in (humble, watcher, probe)
        )
        assert not hidden and known[0] == known[1]


@on_one_version
def test_a_missing_extension_or_library_is_named(server: Server) -> None:
    said = server.log()
    with server.connect("postgres") as connection:
        assert "CREATE EXTENSION pg_stat_statements" in read_probe(connection, "statements").reason
        assert read_probe(connection, "pgstattuple").reason == (
            "requires an extension in the database postgres: CREATE EXTENSION pgstattuple"
        )
    assert "ERROR" not in server.log()[len(said) :]


@on_one_version
def test_a_search_that_takes_too_long_is_abandoned(
    probe: Connection, work: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.execute("create table t as select g as a from generate_series(1, 300000) as g")

    def set_ms(connection: Connection, timeout_s: int) -> None:
        connection.execute(f"set statement_timeout = {1 if timeout_s == STATTUPLE_TIMEOUT_S else 5000}")

    monkeypatch.setattr(probe_server, "set_statement_timeout", set_ms)
    assert f"{STATTUPLE_TIMEOUT_S} s" in read_probe(probe, "pgstattuple").reason
    assert scalar(probe, "show statement_timeout") == "5s"


@on_one_version
def test_a_lost_connection_is_an_error(server: Server, work: Connection) -> None:
    with server.connect() as lost:
        read_probe(lost, "wal")
        work.execute("select pg_terminate_backend(%s)", (lost.info.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            until(lambda: read_probe(lost, "wal").reason, "z")
        with pytest.raises(psycopg.OperationalError):
            sample(lost)


@on_one_version
def test_a_transaction_of_somebody_elses_is_not_touched(work: Connection) -> None:
    work.execute("begin")
    with pytest.raises(psycopg.ProgrammingError, match="autocommit"):
        read_probe(work, "wal")
    assert work.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


@on_one_version
def test_a_database_without_an_encoding_is_read_as_far_as_its_texts_are_utf_8(
    server: Server, database: str
) -> None:
    do_and_leave(server, "postgres", "create database raw encoding 'SQL_ASCII' template template0")
    with server.connect("raw") as work, server.connect("raw") as probe:
        work.execute("set client_encoding = 'SQL_ASCII'")
        work.execute('create table "Größe" (a int)'.encode())
        assert row_of(probe, "relations", name="Größe")["n_tup_ins"] == 0
        work.execute('create table "Größe" (a int)'.encode("latin1"))
        assert 'for encoding "UTF8"' in read_probe(probe, "relations").reason
        assert row_of(probe, "database")["xact_commit"] >= 0
    with server.connect(database) as work, server.connect(database) as probe:
        assert "pg_stat_statements_reset()" in read_probe(probe, "statements").reason
        work.execute("select pg_stat_statements_reset()")
        assert read_probe(probe, "statements").reason == ""


@pytest.mark.parametrize("server", [NEWEST_MAJOR], indirect=True)
def test_io_is_counted_in_bytes(server: Server, database: str, probe: Connection, work: Connection) -> None:
    def extended() -> int:
        return sum(
            row.get("extend_bytes", 0)
            for row in rows_of(read_probe(probe, "io"))
            if row["object"] == "relation"
        )

    before = extended()
    do_and_leave(
        server, database, "create table t as select repeat('x', 1000) as b from generate_series(1, 7000)"
    )
    size = scalar(work, "select pg_relation_size('t')")
    until(extended, before + size)
    # Besides the table: its free space map, the index of its TOAST table, and catalogs.
    assert extended() - before < size + 50 * 8192
