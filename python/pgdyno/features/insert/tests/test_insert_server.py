"""insert on a server: loaded rows, operations against plain SQL, and the state in which phases begin."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from driven_database import drive, load, rows_of, scalar

from pgdyno.cli.options import expanded
from pgdyno.errors import DatasetError
from pgdyno.features.insert.data import HEAP, SECONDARY, InsertBenchmark, extents, known_extents
from pgdyno.features.insert.parameters import InsertParameters
from pgdyno.features.runs import command
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Maker
from pgdyno.server.builds import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, Connection, InitOptions, Server
from pgdyno.server.snapshots import restore
from pgdyno.workloads.workload import fit_distribution

check = expanded(command.check)
pytestmark = pytest.mark.server

ROWS = 20_000
P_MIN = 1e-6
COLUMNS = "dateandtime, cashregisterid, customerid, productid, price, data"
DOMAINS = {"cashregisterid": 1000, "customerid": 100_000, "productid": 10_000, "price": 500}
LOADED = {"done": "l.x"}
"""Change of a specification that runs a later phase on loaded data."""


def parameters(**given: object) -> InsertParameters:
    return InsertParameters.model_validate({"phase": "l.i1", "rows": ROWS, **given})


@pytest.fixture(scope="module")
def queue(running_server: Server) -> Iterator[str]:
    load(running_server, "insert", parameters(queues=2))
    yield "insert"


# ----------------------------------------------------------------------
# Loaded rows
# ----------------------------------------------------------------------


def test_loaded_rows_have_their_distributions(running_server: Server, queue: str) -> None:
    with closing(running_server.connect(queue)) as conn:
        for table in ("pi1", "pi2"):
            keys = f"SELECT count(*), min(transactionid), max(transactionid) FROM {table}"
            assert rows_of(conn, keys) == [(ROWS, 1, ROWS)]
            for column, values in DOMAINS.items():
                found = np.array(rows_of(conn, f"SELECT {column} FROM {table}"))[:, 0]
                assert found.max() < values
                bins = np.bincount(found * 50 // values, minlength=50)
                fit = fit_distribution(bins.tolist(), np.full(50, 1 / 50))
                assert fit.p_value > P_MIN, (column, fit)
        data = [row[0] for row in rows_of(conn, "SELECT data FROM pi1")]
        lengths = np.bincount([len(one) for one in data], minlength=21)
        assert fit_distribution(lengths[10:].tolist(), np.full(11, 1 / 11)).p_value > P_MIN
        assert not lengths[:10].any()
        text = "".join(data)
        assert text.count("a") / len(text) == pytest.approx(0.66, abs=0.02)
        assert re.fullmatch("[A-Za-z0-9+/]*", text)
        newest = rows_of(conn, "SELECT min(dateandtime)::text, max(dateandtime)::text FROM pi1")
        assert newest == [("2025-12-31 23:59:59", "2026-01-01 00:00:00")]
        InsertBenchmark(parameters(queues=2)).require(conn)


def test_keys_indexes_and_sequence_are_those_of_the_benchmark(running_server: Server, queue: str) -> None:
    with closing(running_server.connect(queue)) as conn:
        rows = rows_of(conn, "SELECT indexdef FROM pg_indexes WHERE tablename = 'pi2' ORDER BY indexname")
        found = [re.sub(r".*\((.*)\)", r"\1", row[0]) for row in rows]
        wanted = ("marketsegment", "pdc", None, "registersegment")
        assert found == [SECONDARY[name] if name else "transactionid" for name in wanted]
        of_pi1 = "attrelid = 'pi1'::regclass AND attnum > 0"
        nullable = f"SELECT attname FROM pg_attribute WHERE {of_pi1} AND NOT attnotnull ORDER BY attnum"
        assert rows_of(conn, nullable) == [("dateandtime",), ("data",)]
        assert rows_of(
            conn, "SELECT seqcache FROM pg_sequence WHERE seqrelid = 'pi1_transactionid_seq'::regclass"
        ) == [(1000,)]
        assert scalar(conn, "SELECT nextval('pi2_transactionid_seq')") == ROWS + 1


def test_the_data_of_the_first_phase_have_no_rows_and_no_secondary_index(running_server: Server) -> None:
    own = parameters(phase="l.i0")
    load(running_server, "empty", own)
    assert check(running_server.conninfo("empty"), workload="insert") == 0
    result = drive(running_server, "empty", own, clients=3, seconds=0.3)
    assert result.counters["rows_inserted"] == 100 * result.totals["insert"]["ok"] > 0
    with closing(running_server.connect("empty")) as conn:
        InsertBenchmark(own).require(conn)
        assert scalar(conn, "SELECT count(*) FROM pi1") == result.counters["rows_inserted"]
        assert scalar(conn, "SELECT count(*) FROM pg_indexes WHERE tablename = 'pi1'") == 1


def test_indexes_are_created_again_and_again_and_are_valid(running_server: Server) -> None:
    own = parameters(phase="l.x")
    load(running_server, "indexed", own)
    checks = InsertBenchmark(own).checks(3, restored=False)
    with closing(running_server.connect("indexed")) as conn:
        InsertBenchmark(own).require(conn)
        assert scalar(conn, "SELECT count(*) FROM pg_indexes WHERE tablename = 'pi1'") == 1
        checks.begin(conn)
    start = log_all(running_server, "indexed")
    result = drive(running_server, "indexed", own, clients=1, transactions=7)
    sent = statements(running_server.log()[start:])
    created = [one.split()[2] for one in sent if one.startswith("CREATE INDEX")]
    wanted = {f"pi1_{name}" for name in SECONDARY}
    assert [{*created[i : i + 3]} for i in (0, 3)] == [wanted, wanted]
    assert result.totals == {"index": result.totals["index"]} and result.totals["index"]["ok"] == 7
    ended = checks.end(lambda: running_server.connect("indexed"), result, running_server.log()[start:])
    assert [one for one in ended if not one.passed] == []
    assert check(running_server.conninfo("indexed"), workload="insert") == 0


# ----------------------------------------------------------------------
# Operations: their statements in the server log, and what plain SQL makes of them.
# ----------------------------------------------------------------------

ENTRY = re.compile(r"LOG:  statement: (.*)")
ROW = re.compile(r"\('([^']*)',(\d+),(\d+),(\d+),(\d+)\.00,'([^']*)'\)")


def statements(text: str) -> list[str]:
    """Return the statements in the log."""
    return [of[1] for entry in re.sub(r"\n\t", " ", text).splitlines() if (of := ENTRY.search(entry))]


def log_all(server: Server, name: str) -> int:
    """Let the server log all statements of a database. Return where its log ends."""
    with closing(server.connect()) as conn:
        conn.execute(f"ALTER DATABASE {name} SET log_statement = 'all'".encode())
    return len(server.log())


@pytest.mark.parametrize(("phase", "batch"), [("l.i1", 50), ("l.i2", 5)])
def test_inserts_and_deletes_leave_what_plain_sql_leaves(
    running_server: Server, phase: str, batch: int
) -> None:
    name, own, times = f"writes{batch}", parameters(phase=phase, rows=10_000), 300
    load(running_server, name, parameters(rows=10_000))
    with closing(running_server.connect()) as conn:
        conn.execute(f"CREATE DATABASE {name}_copy TEMPLATE {name}".encode())
    start = log_all(running_server, name)
    result = drive(running_server, name, own, clients=2, transactions=times, changed=LOADED)
    sent = statements(running_server.log()[start:])
    inserts = [one for one in sent if one.startswith("INSERT")]
    deletes = [one for one in sent if one.startswith("DELETE")]
    assert (len(inserts), len(deletes)) == (times, times)
    assert result.counters["rows_inserted"] == result.counters["rows_deleted"] == times * batch
    assert result.counters["deletes_short"] == 0
    ahead = np.cumsum([one.startswith("INSERT") - one.startswith("DELETE") for one in sent])
    assert abs(ahead).max() <= 9, "neither gets more than eight statements ahead"
    with closing(running_server.connect(f"{name}_copy")) as conn:
        place = f"INSERT INTO pi1 ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)"
        found = [ROW.findall(one) for one in inserts]
        assert {len(rows) for rows in found} == {batch}
        with conn.cursor() as cursor:
            cursor.executemany(place.encode(), [row for rows in found for row in rows])
        oldest = f"SELECT transactionid FROM pi1 ORDER BY 1 FETCH FIRST {times * batch} ROWS ONLY"
        which = "WHERE pi1.transactionid = oldest.transactionid"
        conn.execute(f"WITH oldest AS ({oldest}) DELETE FROM pi1 USING oldest {which}".encode())
        expected = rows_of(conn, "SELECT * FROM pi1 ORDER BY transactionid")
    with closing(running_server.connect(name)) as conn:
        assert rows_of(conn, "SELECT * FROM pi1 ORDER BY transactionid") == expected
        assert len(expected) == 10_000


def test_queries_return_what_python_sorts_and_looks_up(running_server: Server) -> None:
    load(running_server, "queries", parameters())
    start = log_all(running_server, "queries")
    # The first row would be inserted after minutes or hours.
    alone = {**LOADED, "deletes": False, "batch": 1, "rows_per_s": 1e-6}
    read = {}
    for kind, phase in (("range", "qr100"), ("point", "qp100")):
        own = parameters(phase=phase)
        result = drive(running_server, "queries", own, clients=3, seconds=0.3, changed=alone)
        read[kind] = result.counters["rows_read"]
        assert result.totals[kind]["ok"] > 0
        assert result.totals["insert"]["ok"] == 0
        assert (result.counters["ranges_short"], result.counters["points_empty"]) == (0, 0)
    sent = statements(running_server.log()[start:])
    prepared = {of[1]: of[2] for one in sent if (of := re.match(r"PREPARE (\w+) \([^)]*\) AS (.*)", one))}
    executed = [of.groups() for one in sent if (of := re.match(r"EXECUTE (\w+) \((.*)\)", one))]
    with closing(running_server.connect("queries")) as conn:
        every = rows_of(conn, f"SELECT transactionid, {COLUMNS} FROM pi1")
        names = ("transactionid", *COLUMNS.split(", "))
        counts = Counter[str]()
        for name, (columns, is_above) in RANGES.items():
            places = [names.index(column) for column in columns.split(", ")]
            ordered = sorted(tuple(row[place] for place in places) for row in every)
            starts = Counter(int(text) for of, text in executed if of == name)
            for start_at, times in starts.items():
                first = bisect_left(ordered, (start_at + is_above,))
                counts["range"] += times * min(10, len(ordered) - first)
            for start_at in list(starts)[:40]:
                first = bisect_left(ordered, (start_at + is_above,))
                found = rows_of(conn, prepared[name].replace("$1", str(start_at)))
                assert found == ordered[first : first + 10]
        by_key = {row[0]: row for row in every}
        points = [list(map(int, text.split(","))) for of, text in executed if of == "point"]
        counts["point"] = sum(len(by_key.keys() & set(keys)) for keys in points)
        statement = re.sub(r"\$(\d+)", lambda of: str(points[0][int(of[1]) - 1]), prepared["point"])
        places = [names.index(column) for column in ("transactionid", "productid", "data")]
        wanted = [by_key[key] for key in sorted({*points[0]} & by_key.keys())]
        assert sorted(rows_of(conn, statement)) == [tuple(row[i] for i in places) for row in wanted]
    assert read == counts


RANGES = {
    "market": ("productid, customerid, price", False),
    "register": ("cashregisterid, customerid, price", True),
    "pdc": ("price, dateandtime, customerid", False),
}
"""Columns of each range query, and whether it begins above its value."""


def test_a_rate_is_kept_beside_queries(running_server: Server, queue: str) -> None:
    own = parameters(phase="qr1000", queues=2)
    result = drive(running_server, queue, own, clients=6, seconds=2.0, changed=LOADED)
    for kind in ("insert", "delete"):
        # 20 statements a second of each table.
        assert 60 <= result.totals[kind]["ok"] <= 80
    assert result.totals["range"]["ok"] > 0


def test_a_phase_is_refused_on_data_after_another_step(running_server: Server, queue: str) -> None:
    own = parameters(phase="qr100", queues=2)
    with pytest.raises(AssertionError, match=r"begins after l\.i2, and the last step of the data is l\.x"):
        drive(running_server, queue, own, clients=6, seconds=0.1)


# ----------------------------------------------------------------------
# Checks
# ----------------------------------------------------------------------


def test_checks_pass_after_each_phase_and_find_each_damage(
    running_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    name, own = "checked", parameters(phase="qp1000")
    load(running_server, name, parameters())

    def connect() -> Connection:
        return running_server.connect(name)

    for phase in ("l.i1", "qr1000", "qp1000"):
        checks = InsertBenchmark(own).checks(3, restored=False)
        with closing(connect()) as conn:
            checks.begin(conn)
        start = len(running_server.log())
        result = drive(running_server, name, parameters(phase=phase), clients=3, seconds=0.4, changed=LOADED)
        ended = checks.end(connect, result, running_server.log()[start:])
        assert [one for one in ended if not one.passed] == []
    assert check(running_server.conninfo(name), workload="insert") == 0, capsys.readouterr().out
    with closing(connect()) as conn:
        conn.execute(b"DELETE FROM pi1 WHERE transactionid = (SELECT max(transactionid) FROM pi1)")
    failed = [one.name for one in checks.end(connect, result, "") if not one.passed]
    assert failed == ["rows conserved"]
    with closing(connect()) as conn:
        conn.execute(b"DROP INDEX pi1_pdc")
    assert "valid indexes" in [one.name for one in checks.end(connect, result, "") if not one.passed]
    assert check(running_server.conninfo(name), workload="insert") == 1
    assert "valid indexes" in capsys.readouterr().out


def test_the_rows_that_indexes_must_return_are_counted_without_an_index(
    running_server: Server, queue: str
) -> None:
    with closing(running_server.connect(queue)) as conn:
        conn.execute(b"SET enable_seqscan = off")
        assert "Seq Scan on pi2" in str(rows_of(conn, f"EXPLAIN {HEAP.format(table='pi2')}"))


def test_data_of_other_parameters_are_refused_with_the_remedy(running_server: Server, queue: str) -> None:
    with closing(running_server.connect(queue)) as conn:
        rows = "have rows 20000, not 30000: use rows 20000, or load them with"
        with pytest.raises(DatasetError, match=rf"{rows} .* --phase l\.i1 --rows 30000 --queues 2$"):
            InsertBenchmark(parameters(rows=30_000, queues=2)).require(conn)
        step = r"have done l\.x, not l\.i2: use phase l\.i1, or name a version"
        with pytest.raises(DatasetError, match=step):
            InsertBenchmark(parameters(phase="qr100", queues=2)).require(conn)
    with (
        closing(running_server.connect()) as conn,
        pytest.raises(DatasetError, match=r"no complete insert data: load them with .* --phase l\.i1 --rows"),
    ):
        InsertBenchmark(parameters()).require(conn)


def test_a_load_replaces_its_own_tables_but_none_of_the_user(running_server: Server) -> None:
    own = parameters(rows=10_000)
    load(running_server, "replaced", own)
    load(running_server, "replaced", own, into_existing=True)
    with closing(running_server.connect("replaced")) as conn:
        conn.execute(b"CREATE TABLE pi7 (a int)")
    with pytest.raises(DatasetError, match="pi7, which pgdyno did not load"):
        load(running_server, "replaced", own, into_existing=True)


# ----------------------------------------------------------------------
# Phases
# ----------------------------------------------------------------------


def test_each_phase_begins_with_what_those_before_left(
    build: Build, server_dir: Path, account: Account
) -> None:
    maker = Maker(
        Cache.at(server_dir / "cache", account), 0, lambda _: None, Interruption(), InitOptions(sync=False)
    )
    found = {}
    for phase in ("l.i0", "l.x", "l.i1", "l.i2", "qr100"):
        own = parameters(phase=phase, rows=10_000, inserts=5000)
        folder = server_dir / phase
        with maker.hold(build, own) as dataset:
            restore(dataset.snapshot, folder, account)
        with Cluster(build, folder, account).start() as server, closing(server.connect("insert")) as conn:
            InsertBenchmark(own).require(conn)
            known, read = known_extents(own)["pi1"], extents(conn)["pi1"]
            assert (known.rows, known.lowest if known.rows else 0) == (read.rows, read.lowest)
            keys = "SELECT count(*), min(transactionid), max(transactionid) FROM pi1"
            visible = "SELECT relallvisible = relpages FROM pg_class WHERE relname = 'pi1'"
            found[phase] = (*rows_of(conn, keys)[0], scalar(conn, visible) if phase[0] == "q" else None)
    assert found == {
        "l.i0": (0, None, None, None),
        "l.x": (10_000, 1, 10_000, None),
        "l.i1": (10_000, 1, 10_000, None),
        # 80 statements of 50 rows, then 200 of 5 in a session with other numbers of the sequence.
        "l.i2": (10_000, 4001, 14_000, None),
        "qr100": (10_000, 5001, 15_000, True),
    }
