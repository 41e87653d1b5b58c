"""Servers that already run: objects that pgdyno creates and drops, and objects that it never changes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import TINY, Program, measuring, write_study

from pgdyno.features.running_server.arms import dataset_database_name
from pgdyno.features.running_server.remote import Remote, lock_of, take_lock
from pgdyno.results.reader import Evidence
from pgdyno.server.connections import Dsn
from pgdyno.server.processes import Server
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pooler import Pooler


def analytical(path: Path, *servers: str | Path, **run: object) -> Path:
    """Write a study of analytical queries of one client, whose data have a copy of the accounts."""
    return write_study(
        path,
        servers,
        workload={"kind": "pgbench", "scale": 1, "variant": "analytical"},
        drive={"clients": 1},
        run={"slice": "0.5s", "warmup": "0.2s", "budget": "1h", **run},
    )


PRISTINE = dataset_database_name(PgbenchParameters(scale=1, accounts_copy=True))
WINDOW = ("--warmup", "0.2s", "--window", "3s", "--json", "--quiet")
"""Longer than a pause of the machine."""

DRIVE = ("--clients", "2", "--rate", "50", *WINDOW)

IN_PGBENCH = ("--workload", "pgbench")


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


def test_running_servers_are_compared_in_copies_of_a_database_that_two_studies_load_once(
    program: Program, server: str, untouched: Server, tmp_path: Path
) -> None:
    before, dsn = databases(untouched).keys(), untouched.conninfo("postgres")
    # Copies that a killed pgdyno left are dropped by the next one.
    killed = tmp_path / "killed.sqlite"
    study = analytical(tmp_path / "killed.toml", dsn, dsn, window="40s")
    running = program.start("run", study, "--evidence", killed)
    running.until(lambda: measuring(killed))
    running.signal(signal.SIGKILL)
    assert "copy of the accounts" in running.ended().err
    assert program.survivors() == []
    assert len([name for name in databases(untouched) if "trial" in name]) == 2

    one_block = {"window": "1s", "repeats": 1}
    studies = [
        analytical(tmp_path / "dsns.toml", dsn, dsn, **one_block),
        analytical(tmp_path / "build.toml", server, dsn, **one_block),
    ]
    remote, files = Remote(Dsn(dsn)), [tmp_path / "dsns.sqlite", tmp_path / "build.sqlite"]
    remote.drop(PRISTINE)
    with closing(untouched.connect()) as first_in_line:
        take_lock(first_in_line, lock_of(PRISTINE))
        both = [
            program.start("run", study, "--evidence", file, "--json")
            for study, file in zip(studies, files, strict=True)
        ]
        for running in both:
            err = running.err
            running.until(lambda err=err: f"{PRISTINE}: waiting for another pgdyno" in err.read_text())
        assert not remote.has_database(PRISTINE)
    ended = [running.ended() for running in both]
    assert [one.status for one in ended] == [0, 0], [one.err for one in ended]
    assert sum(one.err.count(f"{PRISTINE}: copy of the accounts") for one in ended) == 1
    # The copies for trials are dropped. The pristine database is kept with a marker for the next study.
    assert databases(untouched).keys() - before == {PRISTINE}

    assert [one.trials for one in ended] == [[{"ok": 1}] * 2] * 2
    caveats = ended[0].json()["caveats"]
    codes = [caveat["code"] for caveat in caveats]
    assert {"server-not-restarted", "one-server"} <= {*codes}
    assert codes.count("one-server") == 1
    # Missing WAL figures per arm are reported once.
    absent = [caveat["sentence"] for caveat in caveats if caveat["code"] == "telemetry-missing"]
    assert not any("checkpoints" in sentence for sentence in absent)
    with Evidence(files[0]) as opened:
        assert [trial.server_cpu_s for trial in opened.trials()] == [None] * 2
        trials = [trial.trial for trial in opened.trials()]
        told = {reading.probe: reading.rows for trial in trials for reading in opened.readings(trial)}
    assert {probe for probe, rows in told.items() if rows is None} >= {"wal", "checkpoints", "wraparound"}
    assert told["database"]
    with Evidence(files[1]) as opened:
        assert [arm.server["provider"] == "dsn" for arm in opened.arms()] == [False, True]
        assert [bool(opened.server_log(trial.trial)) for trial in opened.trials()] == [True, False]
    again = program.succeed("compare", "--resume", files[0], "--json")
    assert "loading" not in again.err
    assert [of["arm"] for of in again.case["arms"]] == [of["arm"] for of in ended[0].case["arms"]]
    assert databases(untouched).keys() - before == {PRISTINE}


def test_a_database_with_a_pgdyno_name_but_no_marker_is_not_changed(
    program: Program, untouched: Server, tmp_path: Path
) -> None:
    name = dataset_database_name(PgbenchParameters(scale=2))
    execute(untouched, f"create database {name}")
    execute(untouched, "create table precious as select 42 as n", name)
    before = databases(untouched)
    dsn = untouched.conninfo()
    ended = program.refuse("compare", *TINY, dsn, dsn, "--scale", "2", "--evidence", tmp_path / "e.sqlite")
    assert "already exists" in ended.complaint
    assert databases(untouched) == before
    with closing(untouched.connect(name)) as connection:
        assert connection.execute("select n from precious").fetchone() == (42,)
    execute(untouched, f"drop database {name}")


def test_a_database_is_created_loaded_checked_and_driven_step_by_step(
    program: Program, untouched: Server
) -> None:
    dsn = untouched.conninfo("steps")
    loaded = program.succeed("load", dsn, "--json", "--quiet")
    assert loaded.json()["rows"]["customer"] == 30_000
    assert databases(untouched)["steps"][3].startswith("pgdyno ")  # type: ignore[index]
    again = program.run("load", dsn)
    assert again.status == 2
    assert "the database steps already exists" in again.err
    driven = program.succeed("drive", dsn, *DRIVE)
    assert driven.json()["complete"]
    assert sum(kind["ok"] for kind in driven.json()["counts"].values()) > 0
    # A client that keys and thinks starts its second transaction after four seconds.
    slow = program.run("drive", dsn, *WINDOW, "--pacing", "keying-and-thinking", "--clients", "20")
    assert sum(kind["ok"] for kind in slow.json()["counts"].values()) <= 20
    checked = program.succeed("check", dsn, "--json")
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
        program.refuse("load", dsn, *wrong, status=2)
    running = program.start("load", dsn, *IN_PGBENCH, "--scale", "50")
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
    running = program.start("load", dsn, *IN_PGBENCH, "--scale", "50")
    running.until(lambda: "will take" in running.err.read_text())
    second = program.refuse("load", dsn, *IN_PGBENCH, status=2)
    assert "another pgdyno is loading the database half" in second.complaint
    running.signal(signal.SIGKILL)
    running.ended()
    assert program.survivors() == []
    for words in (("drive", dsn, *DRIVE), ("check", dsn)):
        refused = program.refuse(*words, *IN_PGBENCH)
        assert re.search("is incomplete|contains no pgdyno dataset|contains no pgbench", refused.complaint)
    with closing(untouched.connect("half")):
        occupied = program.run("load", dsn, *IN_PGBENCH)
    assert occupied.status == 1
    assert "it has other sessions: end them first" in occupied.complaint
    again = program.succeed("load", dsn, *IN_PGBENCH)
    assert "replacing the database half, which an interrupted load left incomplete" in again.err
    assert program.run("check", dsn, *IN_PGBENCH).status == 0
    assert "already exists" in program.run("load", dsn, *IN_PGBENCH).err
    execute(untouched, "drop database half")


def test_into_existing_works_in_the_named_database_and_only_there(
    program: Program, untouched: Server, tmp_path: Path
) -> None:
    execute(untouched, "create database named")
    execute(untouched, "create database other")
    before = databases(untouched)
    dsn = untouched.conninfo("named")
    program.succeed("load", dsn, *IN_PGBENCH, "--into-existing", "--quiet")
    # Without a marker it belongs to the user: each command that changes it needs an explicit option.
    unsaid = program.refuse("drive", dsn, *IN_PGBENCH, *DRIVE)
    assert "was not created by pgdyno: add --into-existing" in unsaid.complaint
    program.succeed("drive", dsn, *IN_PGBENCH, *DRIVE, "--into-existing")
    evidence = tmp_path / "e.sqlite"
    twice = program.refuse(
        "compare", *TINY, dsn, f"{dsn} sslmode=prefer", "--into-existing", "--evidence", evidence, status=2
    )
    assert "are the same database" in twice.complaint
    other = untouched.conninfo("other")
    assert program.run("load", other, *IN_PGBENCH, "--into-existing", "--quiet").status == 0
    program.succeed("compare", *TINY, dsn, other, "--into-existing", "--evidence", evidence)
    assert databases(untouched) == before
    execute(untouched, "drop database named")
    execute(untouched, "drop database other")


TABLES = (
    "create table orders as select 1 as n;"
    "create table pgbench_branches (bid int not null, bbalance int, filler char(88));"
    "create table pgbench_tellers (tid int not null, bid int, tbalance int, filler char(84));"
    "create table pgbench_accounts (aid int not null, bid int, abalance int, filler char(84));"
    "create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));"
    "insert into pgbench_branches select 1, 7, '';"
    "insert into pgbench_tellers select n, 1, 7, '' from generate_series(1, 10) n;"
    "insert into pgbench_accounts select n, 1, n, 'precious' from generate_series(1, 1000) n;"
    "insert into pgbench_history select 1, 1, n, 1, now(), '' from generate_series(1, 50) n;"
    "create table pgbench_accounts_copy as table pgbench_accounts;"
    "comment on table pgbench_accounts_copy is 'made by pgdyno'"
)
"""A table with a name of tpcc's, tables as created by pgbench -i, with other data, and a copy of pgdyno's."""


@pytest.fixture
def somebodys(theirs: Server) -> Iterator[Server]:
    """A server whose database ``bank`` has tables that pgdyno did not load."""
    execute(theirs, "create database bank")
    execute(theirs, TABLES, "bank")
    yield theirs
    execute(theirs, "drop database bank with (force)")


def rows_of_bank(server: Server) -> object:
    """Return every row of each table."""
    with closing(server.connect("bank")) as connection:
        names = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        return {
            name: connection.execute(f"select t::text from {name} as t order by 1").fetchall()
            for (name,) in names
        }


COMMANDS = (
    ("load", *IN_PGBENCH, "--into-existing"),
    ("load", *IN_PGBENCH, "--into-existing", "--accounts-copy", "--scale", "2"),
    ("load", *IN_PGBENCH),
    ("load", *IN_PGBENCH, "--replace"),
    ("load", "--into-existing"),
    ("load", "--into-existing", "--replace"),
    ("drive", *IN_PGBENCH, *DRIVE),
    ("drive", "--into-existing", *DRIVE),
    ("compare", *IN_PGBENCH, "--scale", "1", "--into-existing", "--blocks", "1"),
    ("compare", "--into-existing", "--blocks", "1"),
)


def test_rows_of_tables_that_pgdyno_did_not_load_survive_every_command(
    program: Program, somebodys: Server
) -> None:
    before, dsn = rows_of_bank(somebodys), somebodys.conninfo("bank")
    for command, *options in COMMANDS:
        refused = program.run(command, *([dsn, dsn] if command == "compare" else [dsn]), *options)
        assert refused.status in (1, 2), refused.err
        assert len(refused.complaints) == 1, refused.err
        assert rows_of_bank(somebodys) == before, (command, *options)


def test_pgbench_tables_of_others_are_replaced_only_with_replace(program: Program, somebodys: Server) -> None:
    load = ("load", somebodys.conninfo("bank"), "--workload", "pgbench", "--into-existing", "--quiet")
    refused = program.refuse(*load)
    assert "pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers" in refused.complaint
    assert "which pgdyno did not load" in refused.complaint
    assert "--into-existing --replace" in refused.complaint
    program.succeed(*load, "--replace", "--partitions", "2")
    # The tables now have the marker: the next load replaces them without an option, but not next to one
    # without it.
    assert program.run(*load, "--accounts-copy").status == 0
    program.succeed(*load)
    with closing(somebodys.connect("bank")) as connection:
        assert connection.execute("select to_regclass('pgbench_accounts_copy')").fetchone() == (None,)
    execute(somebodys, "comment on table pgbench_history is 'the audit'", "bank")
    execute(somebodys, "insert into pgbench_history values (1, 1, 1, 1, now(), '')", "bank")
    before = rows_of_bank(somebodys)
    refused = program.refuse(*load)
    assert "has pgbench_history, which pgdyno did not load" in refused.complaint
    assert rows_of_bank(somebodys) == before


def test_a_copy_of_the_accounts_without_the_mark_of_pgdyno_belongs_to_the_user(
    program: Program, somebodys: Server
) -> None:
    load = ("load", somebodys.conninfo("bank"), "--workload", "pgbench", "--into-existing", "--quiet")
    for comment in ("null", "'made by hand'"):
        execute(somebodys, f"comment on table pgbench_accounts_copy is {comment}", "bank")
        before = rows_of_bank(somebodys)
        for options in (("--replace",), ("--replace", "--accounts-copy")):
            refused = program.refuse(*load, *options)
            assert "the table pgbench_accounts_copy in bank was not created by pgdyno" in refused.complaint
            assert rows_of_bank(somebodys) == before


MALFORMED = (
    "('tpcc', 'many', '1', 'f', '1')",
    "('tpcc', '1', '1', 'f', NULL)",
    "('tpcc', '1', repeat('9', 5000), 'f', '1')",
    "('tpcc', '-1', '1', 'f', '1')",
    "('tpcc', '1', '1', 'f', '1'), ('tpcc', '2', '1', 'f', '1')",
    "(E'\\x1b[31m[red]', E'\\x1b', '', '', '')",
)


def test_a_malformed_ownership_marker_is_named_and_never_a_traceback(
    program: Program, theirs: Server
) -> None:
    execute(theirs, "create database odd")
    columns = "workload text, scale text, seed text, format text, c_load text"
    execute(theirs, f"create table pgdyno_dataset ({columns})", "odd")
    dsn = theirs.conninfo("odd")
    for row in MALFORMED:
        execute(theirs, f"truncate pgdyno_dataset; insert into pgdyno_dataset values {row}", "odd")
        for words in (("drive", dsn, *DRIVE), ("compare", dsn, dsn, "--into-existing")):
            refused = program.refuse(*words)
            assert "the row of pgdyno_dataset in odd is malformed" in refused.complaint
            assert "\x1b" not in refused.err
    execute(theirs, "drop database odd")


def test_missing_privileges_for_databases_are_reported(program: Program, untouched: Server) -> None:
    dsn = f"{untouched.conninfo()} user=humble"
    ended = program.refuse("compare", *TINY, dsn, dsn)
    assert "ALTER ROLE humble CREATEDB" in ended.complaint
    execute(untouched, "create database closed")
    execute(
        untouched,
        "create table pgdyno_dataset (workload text, scale int, seed int, format int, c_load int)",
        "closed",
    )
    ended = program.refuse("drive", f"{untouched.conninfo('closed')} user=humble", *DRIVE)
    assert "permission denied" in ended.complaint
    execute(untouched, "drop database closed")


POOLED = (
    ("load", "pooled"),
    ("load", "postgres", "--into-existing", *IN_PGBENCH),
    ("drive", "postgres", "--into-existing", *IN_PGBENCH, *DRIVE),
    ("check", "postgres"),
    ("compare", "postgres", "postgres"),
    ("compare", "postgres", "template1", "--into-existing"),
)


def test_no_command_works_through_transaction_pooling_and_none_leaves_a_lock(
    program: Program, theirs: Server
) -> None:
    seen = (
        "select (select array_agg(datname order by datname) from pg_database),"
        " (select count(*) from pg_locks where locktype = 'advisory'),"
        " (select count(*) from pg_stat_activity where state like 'idle in transaction%')"
    )
    databases = {"pooled", "postgres", "template1"}
    with Pooler(theirs) as between, closing(theirs.connect()) as observer:
        before = observer.execute(seen).fetchone()
        for words in POOLED:
            refused = program.refuse(*(between.dsn(word) if word in databases else word for word in words))
            assert "transaction pooling" in refused.complaint
            assert "connect directly" in refused.complaint
            assert observer.execute(seen).fetchone() == before
