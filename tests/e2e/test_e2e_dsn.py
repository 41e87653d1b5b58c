"""Servers that already run: objects that pgdyno creates and drops, and objects that it never changes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import SMALLEST, Program, measuring

from pgdyno.lab.dataset_loading import dataset_database_name
from pgdyno.results.reader import Evidence
from pgdyno.server.dsn import Dsn
from pgdyno.server.ownership_marker import lock_of, take_lock
from pgdyno.server.remote import Remote
from pgdyno.server.running import Server
from pgdyno.study.tpcc_parameters import TpccParameters

PRISTINE = dataset_database_name(TpccParameters(warehouses=1))
DRIVE = ("--clients", "2", "--warmup", "0.2s", "--window", "0.4s", "--json", "--quiet")


def execute(server: Server, statement: str, dbname: str = "postgres") -> None:
    with closing(server.connect(dbname)) as connection:
        connection.execute(statement)


@pytest.fixture(scope="module")
def theirs(running_server: Server) -> Server:
    """A server with a database of its user."""
    execute(running_server, "create database mine")
    execute(
        running_server, "create table t as select n, md5(n::text) from generate_series(1, 1000) n", "mine"
    )
    execute(running_server, "create table orders as select 1 as n", "mine")
    execute(running_server, "create role humble login")
    return running_server


def databases(server: Server) -> dict[str, object]:
    """Return every database with its OID, which changes if it is dropped and created again."""
    with closing(server.connect()) as connection:
        found = connection.execute(
            "select datname, array[oid::text, datdba::text, datacl::text,"
            " shobj_description(oid, 'pg_database')] from pg_database"
        ).fetchall()
    return dict(found)


def contents(server: Server, dbname: str = "mine") -> object:
    """Return all relations of a user's database with file and size, and a digest of the rows of the
    dataset.
    """
    with closing(server.connect(dbname)) as connection:
        relations = connection.execute(
            "select oid::regclass::text, relfilenode, pg_relation_size(oid) from pg_class"
            " where relkind in ('r', 'i', 'S', 'v') and oid >= 16384 order by 1"
        ).fetchall()
        digest = connection.execute("select md5(string_agg(t::text, ',' order by n)) from t").fetchone()
    return relations, digest


@pytest.fixture
def untouched(theirs: Server) -> Iterator[Server]:
    """Check that the user's databases are unchanged, including all rows."""
    before, rows = databases(theirs), contents(theirs)
    yield theirs
    after = databases(theirs)
    assert {name: after.get(name) for name in before} == before
    assert contents(theirs) == rows


def test_two_running_servers_are_compared_in_separate_databases(
    program: Program, untouched: Server, tmp_path: Path
) -> None:
    before = databases(untouched).keys() - {PRISTINE}  # possibly loaded by another test
    arms = (untouched.conninfo("postgres"), untouched.conninfo("postgres"))
    evidence = tmp_path / "e.sqlite"
    ended = program.compare(*arms, "--blocks", "2", "--evidence", evidence, "--json")
    assert ended.status == 0, ended.err
    found = ended.json()
    assert [arm["trials"] for arm in found["arms"]] == [{"ok": 2}] * 2
    codes = [caveat["code"] for caveat in found["caveats"]]
    assert {"server-not-restarted", "one-server"} <= {*codes}
    assert codes.count("one-server") == 1
    assert "probe-unavailable" not in codes  # missing WAL figures per arm are reported once
    with Evidence(evidence) as opened:
        assert [trial.server_cpu_s for trial in opened.trials()] == [None] * 4
        trials = [trial.trial for trial in opened.trials()]
        told = {reading.probe: reading.rows for trial in trials for reading in opened.readings(trial)}
    assert {probe for probe, rows in told.items() if rows is None} >= {"wal", "checkpoints", "wraparound"}
    assert told["database"]
    # The copies for trials are dropped. The pristine database is kept with a marker for the next study.
    assert databases(untouched).keys() - before == {PRISTINE}
    again = program.run("compare", "--resume", evidence, "--json")
    assert again.status == 0, again.err
    assert "loading" not in again.err
    assert [arm["name"] for arm in again.json()["arms"]] == [arm["name"] for arm in found["arms"]]
    assert databases(untouched).keys() - before == {PRISTINE}


def test_a_running_server_is_compared_with_a_build(
    program: Program, server: str, untouched: Server, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    ended = program.compare(server, untouched.conninfo(), "--blocks", "1", "--evidence", evidence, "--json")
    assert ended.status == 0, ended.err
    assert [arm["trials"] for arm in ended.json()["arms"]] == [{"ok": 1}] * 2
    with Evidence(evidence) as opened:
        assert [arm.server["provider"] == "dsn" for arm in opened.arms()] == [False, True]
        assert [bool(opened.server_log(trial.trial)) for trial in opened.trials()] == [True, False]
    assert not [name for name in databases(untouched) if "trial" in name]


def test_copies_that_a_killed_pgdyno_left_are_dropped_by_the_next_one(
    program: Program, untouched: Server, tmp_path: Path
) -> None:
    dsn, evidence = untouched.conninfo(), tmp_path / "e.sqlite"
    running = program.start("compare", *SMALLEST, "--window", "40s", "--evidence", evidence, dsn, dsn)
    running.until(lambda: measuring(evidence))
    running.signal(signal.SIGKILL)
    running.ended()
    assert program.survivors() == []
    assert len([name for name in databases(untouched) if "trial" in name]) == 2
    ended = program.compare(dsn, dsn, "--blocks", "1", "--evidence", tmp_path / "next.sqlite")
    assert ended.status == 0, ended.err
    assert not [name for name in databases(untouched) if "trial" in name]


def test_a_database_with_a_pgdyno_name_but_no_marker_is_not_changed(
    program: Program, server: str, untouched: Server, tmp_path: Path
) -> None:
    name = dataset_database_name(TpccParameters(warehouses=2))
    execute(untouched, f"create database {name}")
    execute(untouched, "create table precious as select 42 as n", name)
    before = databases(untouched)
    dsn = untouched.conninfo()
    ended = program.compare(dsn, dsn, "--warehouses", "2", "--evidence", tmp_path / "e.sqlite")
    assert ended.status == 1
    assert len(ended.complaints) == 1
    assert "already exists" in ended.complaints[0]
    assert databases(untouched) == before
    with closing(untouched.connect(name)) as connection:
        assert connection.execute("select n from precious").fetchone() == (42,)
    execute(untouched, f"drop database {name}")


def test_a_database_is_created_loaded_checked_and_driven_step_by_step(
    program: Program, untouched: Server
) -> None:
    dsn = untouched.conninfo("steps")
    loaded = program.run("load", dsn, "--json", "--quiet")
    assert loaded.status == 0, loaded.err
    assert loaded.json()["rows"]["customer"] == 30_000
    assert databases(untouched)["steps"][3].startswith("pgdyno ")  # type: ignore[index]
    again = program.run("load", dsn)
    assert again.status == 2
    assert "the database steps already exists" in again.err
    driven = program.run("drive", dsn, *DRIVE)
    assert driven.status == 0, driven.err
    assert driven.json()["complete"]
    assert driven.json()["counts"]["new_order"]["ok"] > 0
    checked = program.run("check", dsn, "--json")
    assert checked.status == 0, checked.err
    assert checked.json()["passed"]
    execute(untouched, "update warehouse set w_ytd = w_ytd + 1", "steps")
    broken = program.run("check", dsn, "--json")
    assert broken.status == 1
    assert {"condition 1", "condition 8"} <= {c["name"] for c in broken.json()["checks"] if not c["passed"]}
    execute(untouched, "drop database steps")


def test_a_load_that_does_not_end_leaves_no_database(program: Program, untouched: Server) -> None:
    dsn = untouched.conninfo("unfinished")
    before = databases(untouched)
    for wrong in (("--warehouses", "0"), ("--seed", "-5"), ("--seed", str(2**64))):
        refused = program.run("load", dsn, *wrong)
        assert refused.status == 2, refused.err
        assert len(refused.complaints) == 1
    running = program.start("load", dsn, "--warehouses", "2")
    running.until(lambda: "will take" in running.err.read_text())
    running.signal(signal.SIGINT)
    assert running.ended().status == 130
    assert databases(untouched) == before


def test_a_database_whose_creation_was_killed_is_removed(program: Program, untouched: Server) -> None:
    before = databases(untouched)
    waiting = (
        "select query from pg_stat_activity where wait_event_type = 'Lock' and query ~ '^create database'"
    )
    with closing(untouched.connect()) as observer, closing(untouched.connect()) as blocker:
        with blocker.transaction():
            blocker.execute("lock table pg_database in share mode")
            running = program.start("load", untouched.conninfo("steps"))
            (query,) = running.until(lambda: observer.execute(waiting).fetchone())
            running.signal(signal.SIGKILL)
            running.ended()
        # The server continues CREATE DATABASE for a disconnected client and then releases the lock.
        number = re.search("pgdyno_making_([0-9a-f]{16})", query)[1]  # type: ignore[index]
        observer.execute("select pg_advisory_lock(%s::bigint)", (int(number, 16),))
    assert databases(untouched).keys() - before.keys() == {f"pgdyno_making_{number}"}
    assert "already exists" in program.run("load", untouched.conninfo("mine")).err
    assert databases(untouched) == before


def test_an_incomplete_database_of_a_killed_load_is_reloaded_and_one_in_progress_is_not(
    program: Program, untouched: Server
) -> None:
    dsn = untouched.conninfo("half")
    running = program.start("load", dsn, "--warehouses", "2")
    running.until(lambda: "will take" in running.err.read_text())
    second = program.run("load", dsn)
    assert second.status == 2
    assert "another pgdyno is loading the database half" in second.complaints[0]
    running.signal(signal.SIGKILL)
    running.ended()
    assert program.survivors() == []
    for words in (("drive", dsn, *DRIVE), ("check", dsn)):
        refused = program.run(*words)
        assert refused.status == 1
        assert re.search(
            "is incomplete|contains no pgdyno dataset|contains no tpcc data", refused.complaints[0]
        )
    with closing(untouched.connect("half")):
        occupied = program.run("load", dsn)
    assert occupied.status == 1
    assert "it has other sessions: end them first" in occupied.complaints[0]
    again = program.run("load", dsn)
    assert again.status == 0, again.err
    assert "replacing the database half, which an interrupted load left incomplete" in again.err
    assert program.run("check", dsn).status == 0
    assert "already exists" in program.run("load", dsn).err
    execute(untouched, "drop database half")


def test_two_studies_at_once_load_the_pristine_database_once(
    program: Program, theirs: Server, tmp_path: Path
) -> None:
    dsn, remote = theirs.conninfo(), Remote(Dsn(theirs.conninfo()))
    remote.drop(PRISTINE)
    with closing(theirs.connect()) as first_in_line:
        take_lock(first_in_line, lock_of(PRISTINE))
        both = [
            program.start("compare", *SMALLEST, "--blocks", "1", "--evidence", tmp_path / name, dsn, dsn)
            for name in ("one.sqlite", "two.sqlite")
        ]
        for running in both:
            err = running.err
            running.until(lambda err=err: f"{PRISTINE}: waiting for another pgdyno" in err.read_text())
        assert not remote.has_database(PRISTINE)
    ended = [running.ended() for running in both]
    assert [one.status for one in ended] == [0, 0], [one.err for one in ended]
    assert sum(one.err.count(f"{PRISTINE}: copy") for one in ended) == 1


def test_into_existing_works_in_the_named_database_and_only_there(
    program: Program, untouched: Server, tmp_path: Path
) -> None:
    execute(untouched, "create database named")
    execute(untouched, "create database other")
    before = databases(untouched)
    dsn = untouched.conninfo("named")
    loaded = program.run("load", dsn, "--into-existing", "--quiet")
    assert loaded.status == 0, loaded.err
    # Without a marker it belongs to the user: each command that changes it needs an explicit option.
    unsaid = program.run("drive", dsn, *DRIVE)
    assert unsaid.status == 1
    assert "was not created by pgdyno: add --into-existing" in unsaid.complaints[0]
    driven = program.run("drive", dsn, *DRIVE, "--into-existing")
    assert driven.status == 0, driven.err
    evidence = tmp_path / "e.sqlite"
    twice = program.compare(dsn, f"{dsn} sslmode=prefer", "--into-existing", "--evidence", evidence)
    assert twice.status == 2
    assert "are the same database" in twice.complaints[0]
    other = untouched.conninfo("other")
    assert program.run("load", other, "--into-existing", "--quiet").status == 0
    ended = program.compare(dsn, other, "--into-existing", "--blocks", "1", "--evidence", evidence, "--json")
    assert ended.status == 0, ended.err
    assert databases(untouched) == before
    execute(untouched, "drop database named")
    execute(untouched, "drop database other")


@pytest.mark.parametrize("command", ["load", "drive", "compare"])
def test_unmarked_tables_are_not_changed_even_in_the_named_database(
    program: Program, untouched: Server, command: str
) -> None:
    dsn = untouched.conninfo("mine")
    arms = [dsn, dsn] if command == "compare" else [dsn]
    ended = program.run(command, *arms, "--into-existing", "--quiet")
    assert ended.status == 1
    assert len(ended.complaints) == 1
    assert ended.err.splitlines() == ended.complaints


PGBENCH = (
    "create table pgbench_branches (bid int not null, bbalance int, filler char(88));"
    "create table pgbench_tellers (tid int not null, bid int, tbalance int, filler char(84));"
    "create table pgbench_accounts (aid int not null, bid int, abalance int, filler char(84));"
    "create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));"
    "insert into pgbench_branches select 1, 7, '';"
    "insert into pgbench_tellers select n, 1, 7, '' from generate_series(1, 10) n;"
    "insert into pgbench_accounts select n, 1, n, 'precious' from generate_series(1, 1000) n;"
    "insert into pgbench_history select 1, 1, n, 1, now(), '' from generate_series(1, 50) n"
)
"""Tables as created by pgbench -i, with other data."""


@pytest.fixture
def somebodys(theirs: Server) -> Iterator[Server]:
    """A server whose database ``bank`` has pgbench's tables, not loaded by pgdyno."""
    execute(theirs, "create database bank")
    execute(theirs, PGBENCH, "bank")
    yield theirs
    execute(theirs, "drop database bank with (force)")


def rows_of_bank(server: Server) -> object:
    """Return every row of the four tables."""
    with closing(server.connect("bank")) as connection:
        return [
            connection.execute(f"select * from pgbench_{name} order by 1, 2, 3").fetchall()
            for name in ("branches", "tellers", "accounts", "history")
        ]


@pytest.mark.parametrize(
    "words",
    [
        ("load", "--workload", "pgbench", "--into-existing"),
        ("load", "--workload", "pgbench", "--into-existing", "--accounts-copy", "--scale", "2"),
        ("load", "--workload", "pgbench"),
        ("load", "--workload", "pgbench", "--replace"),
        ("load", "--into-existing", "--replace"),
        ("drive", "--workload", "pgbench", *DRIVE),
        ("drive", "--into-existing", *DRIVE),
        ("compare", "--workload", "pgbench", "--scale", "1", "--into-existing", "--blocks", "1"),
        ("compare", "--into-existing", "--blocks", "1"),
    ],
)
def test_rows_of_pgbench_tables_that_pgdyno_did_not_load_survive_every_command(
    program: Program, somebodys: Server, words: tuple[str, ...]
) -> None:
    before, dsn = rows_of_bank(somebodys), somebodys.conninfo("bank")
    arms = [dsn, dsn] if words[0] == "compare" else [dsn]
    refused = program.run(words[0], *arms, *words[1:])
    assert refused.status in (1, 2), refused.err
    assert len(refused.complaints) == 1
    assert rows_of_bank(somebodys) == before


def test_pgbench_tables_of_others_are_replaced_only_with_replace(program: Program, somebodys: Server) -> None:
    load = ("load", somebodys.conninfo("bank"), "--workload", "pgbench", "--into-existing", "--quiet")
    refused = program.run(*load)
    assert refused.status == 1
    assert "pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers" in refused.complaints[0]
    assert "which pgdyno did not load" in refused.complaints[0]
    assert "--into-existing --replace" in refused.complaints[0]
    replaced = program.run(*load, "--replace", "--partitions", "2")
    assert replaced.status == 0, replaced.err
    # The tables now have the marker: the next load replaces them without an option, but not next to one
    # without it.
    assert program.run(*load, "--accounts-copy").status == 0
    again = program.run(*load)
    assert again.status == 0, again.err
    with closing(somebodys.connect("bank")) as connection:
        assert connection.execute("select to_regclass('pgbench_accounts_copy')").fetchone() == (None,)
    execute(somebodys, "comment on table pgbench_history is 'the audit'", "bank")
    execute(somebodys, "insert into pgbench_history values (1, 1, 1, 1, now(), '')", "bank")
    before = rows_of_bank(somebodys)
    refused = program.run(*load)
    assert refused.status == 1
    assert "has pgbench_history, which pgdyno did not load" in refused.complaints[0]
    assert rows_of_bank(somebodys) == before


def test_a_rejected_load_keeps_a_copy_of_the_accounts(program: Program, somebodys: Server) -> None:
    execute(somebodys, "create table pgbench_accounts_copy as table pgbench_accounts", "bank")
    execute(somebodys, "comment on table pgbench_accounts_copy is 'made by pgdyno'", "bank")
    refused = program.run(
        *("load", somebodys.conninfo("bank"), "--workload", "pgbench", "--into-existing", "--quiet")
    )
    assert refused.status == 1
    with closing(somebodys.connect("bank")) as connection:
        assert connection.execute("select count(*) from pgbench_accounts_copy").fetchone() == (1000,)


@pytest.mark.parametrize(
    "row",
    [
        "('tpcc', 'many', '1', 'f', '1')",
        "('tpcc', '1', '1', 'f', NULL)",
        "('tpcc', '1', repeat('9', 5000), 'f', '1')",
        "('tpcc', '-1', '1', 'f', '1')",
        "('tpcc', '1', '1', 'f', '1'), ('tpcc', '2', '1', 'f', '1')",
        "(E'\\x1b[31m[red]', E'\\x1b', '', '', '')",
    ],
)
def test_a_malformed_ownership_marker_is_named_and_never_a_traceback(
    program: Program, theirs: Server, row: str
) -> None:
    execute(theirs, "create database odd")
    execute(
        theirs, "create table pgdyno_dataset (workload text, scale text, seed text, format text, c_load text)"
        f"; insert into pgdyno_dataset values {row}", "odd"
    )  # fmt: skip
    dsn = theirs.conninfo("odd")
    for words in (("drive", dsn, *DRIVE), ("compare", dsn, dsn, "--into-existing")):
        refused = program.run(*words)
        assert refused.status == 1
        assert len(refused.complaints) == 1
        assert "the row of pgdyno_dataset in odd is malformed" in refused.complaints[0]
        assert "\x1b" not in refused.err
    execute(theirs, "drop database odd")


def test_into_existing_without_a_running_server_is_rejected(program: Program, server: str) -> None:
    refused = program.compare(server, server, "--into-existing")
    assert refused.status == 2
    assert "--into-existing requires a DSN" in refused.complaints[0]


def test_missing_privileges_for_databases_are_reported(program: Program, untouched: Server) -> None:
    dsn = f"{untouched.conninfo()} user=humble"
    ended = program.compare(dsn, dsn)
    assert ended.status == 1
    assert "ALTER ROLE humble CREATEDB" in ended.complaints[0]
    execute(untouched, "create database closed")
    execute(
        untouched,
        "create table pgdyno_dataset (workload text, scale int, seed int, format int, c_load int)",
        "closed",
    )
    ended = program.run("drive", f"{untouched.conninfo('closed')} user=humble", *DRIVE)
    assert ended.status == 1
    assert "permission denied" in ended.complaints[0]
    execute(untouched, "drop database closed")
