"""Data and transactions of dialects of tpcc on a server: schema, counts, statements, checks."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgdyno.cli.options import expanded
from pgdyno.errors import DatasetError, UsageError
from pgdyno.features.runs import command
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Place, load_data
from pgdyno.measure.engine_runs import PlannedSlice, drive_specification, run_drive
from pgdyno.results.records import Role
from pgdyno.server.engine import TargetResult
from pgdyno.server.processes import Server
from pgdyno.study.plan import Driving
from pgdyno.workloads.server_log import check_log, counted_in
from pgdyno.workloads.tpcc.data import Tpcc
from pgdyno.workloads.tpcc.parameters import TpccParameters

check, drive_command = expanded(command.check), expanded(command.drive)
pytestmark = pytest.mark.server

DATA = Path(__file__).parents[1] / "data" / "sysbench_tpcc"
"""Schema and statements of sysbench-tpcc, from the catalog and the log of a server that it drove."""

CLIENTS = 4
DRIVES_MAX = 20
"""The transactions of one seed may not have all pairs of statements."""

HAMMERDB: dict[str, tuple[str, str, str]] = {
    "warehouse": (
        "w_id integer, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), "
        "w_city varchar(20), w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(16,2)",
        "",
        "w_id",
    ),
    "district": (
        "d_w_id integer, d_next_o_id integer, d_id smallint, d_ytd numeric(12,2), d_tax numeric(4,4), "
        "d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20), d_city varchar(20), "
        "d_state char(2), d_zip char(9)",
        "",
        "d_w_id, d_id",
    ),
    "customer": (
        "c_since timestamptz, c_id integer, c_w_id integer, c_d_id smallint, c_payment_cnt smallint, "
        "c_delivery_cnt smallint, c_first varchar(16), c_middle char(2), c_last varchar(16), "
        "c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), "
        "c_phone char(16), c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4), "
        "c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_data varchar(500)",
        "",
        "c_w_id, c_d_id, c_id | c_w_id, c_d_id, c_last, c_first, c_id",
    ),
    "history": (
        "h_date timestamptz, h_c_id integer, h_c_w_id integer, h_w_id integer, h_c_d_id smallint, "
        "h_d_id smallint, h_amount numeric(6,2), h_data varchar(24)",
        "h_c_id",
        "",
    ),
    "item": (
        "i_id integer, i_im_id integer, i_name varchar(24), i_price numeric(5,2), i_data varchar(50)",
        "",
        "i_id",
    ),
    "stock": (
        "s_i_id integer, s_w_id integer, s_ytd integer, s_quantity smallint, s_order_cnt smallint, "
        "s_remote_cnt smallint, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), "
        "s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), "
        "s_dist_09 char(24), s_dist_10 char(24), s_data varchar(50)",
        "",
        "s_i_id, s_w_id",
    ),
    "new_order": ("no_w_id integer, no_o_id integer, no_d_id smallint", "", "no_w_id, no_d_id, no_o_id"),
    "orders": (
        "o_entry_d timestamptz, o_id integer, o_w_id integer, o_c_id integer, o_d_id smallint, "
        "o_carrier_id smallint, o_ol_cnt smallint, o_all_local smallint",
        "o_carrier_id",
        "o_w_id, o_d_id, o_id | o_w_id, o_d_id, o_c_id, o_id",
    ),
    "order_line": (
        "ol_delivery_d timestamptz, ol_o_id integer, ol_w_id integer, ol_i_id integer, "
        "ol_supply_w_id integer, ol_d_id smallint, ol_number smallint, ol_quantity smallint, "
        "ol_amount numeric(6,2), ol_dist_info char(24)",
        "ol_delivery_d, ol_amount, ol_dist_info",
        "ol_w_id, ol_d_id, ol_o_id, ol_number",
    ),
}
"""The schema of HammerDB without partitions: columns, those that can be null, and keys of unique indexes."""

COUNTS = {"warehouse": 1, "district": 10, "customer": 30_000, "history": 30_000, "orders": 30_000}
COUNTS |= {"new_order": 9_000, "stock": 100_000, "item": 100_000}

SCHEMA = """
    SELECT string_agg(
               attname || ' ' || replace(replace(replace(format_type(atttypid, atttypmod),
                   'character varying', 'varchar'), 'character', 'char'),
                   'timestamp with time zone', 'timestamptz'), ', ' ORDER BY attnum),
           coalesce(string_agg(attname, ', ' ORDER BY attnum) FILTER (WHERE NOT attnotnull), '')
      FROM pg_attribute
     WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""
KEYS = """
    SELECT coalesce(string_agg(keys, ' | ' ORDER BY NOT indisprimary, keys), '')
      FROM pg_index,
           LATERAL (SELECT string_agg(attname, ', ' ORDER BY place) AS keys
                      FROM unnest(indkey::int[]) WITH ORDINALITY AS key (number, place)
                      JOIN pg_attribute ON attrelid = indrelid AND attnum = number) AS named
     WHERE indrelid = %s::regclass AND indisunique
"""
INDEXES = """
    SELECT replace(pg_get_indexdef(indexrelid), 'public.', '')
      FROM pg_index WHERE indrelid = %s::regclass ORDER BY 1
"""
FOREIGN_KEYS = """
    SELECT conname || ' ' || pg_get_constraintdef(oid)
      FROM pg_constraint WHERE contype = 'f' AND convalidated AND conname ~ %s ORDER BY 1
"""


def parameters(**given: Any) -> TpccParameters:
    return TpccParameters.model_validate({"warehouses": 1, **given})


def copy_database(server: Server, name: str, original: str) -> str:
    """Copy a database, without WAL if the version has the choice."""
    strategy = " STRATEGY file_copy" if server.build.version.major >= 15 else ""
    with closing(server.connect()) as conn:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {original}{strategy}".encode())
    return name


def loaded(server: Server, name: str, workload: TpccParameters) -> str:
    """Make a database with the data of a workload."""
    with closing(server.connect()) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    load(server, name, workload)
    return name


def load(server: Server, name: str, workload: TpccParameters, into_existing: bool = False) -> None:
    place = Place(server.conninfo(name), lambda: server.connect(name), into_existing)
    load_data(place, workload, Interruption(), lambda *_: None, lambda _: None, connections=2)


@pytest.fixture(scope="module")
def hammerdb(loading_server: Server) -> str:
    return loaded(loading_server, "hammerdb", parameters(dialect="hammerdb"))


@pytest.fixture(scope="module")
def sysbench(loading_server: Server) -> str:
    of_sysbench = parameters(dialect="sysbench", warehouses=2, table_sets=2)
    return loaded(loading_server, "sysbench", of_sysbench)


@pytest.fixture(scope="module")
def spec(loading_server: Server, sysbench: str) -> str:
    """The data of the specification, loaded in place of others, beside a table of the user."""
    copy_database(loading_server, "spec", sysbench)
    with closing(loading_server.connect("spec")) as conn:
        conn.execute("CREATE TABLE orders3 (of_the_user integer)")
    load(loading_server, "spec", parameters(), into_existing=True)
    return "spec"


def scalar(conn: psycopg.Connection[tuple[Any, ...]], statement: str, *values: object) -> Any:
    row = conn.execute(statement.encode(), values or None).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row


def test_a_database_of_the_dialect_hammerdb_has_its_schema_and_counts(
    loading_server: Server, hammerdb: str
) -> None:
    with closing(loading_server.connect(hammerdb)) as conn:
        found = {table: (*scalar(conn, SCHEMA, table), scalar(conn, KEYS, table)) for table in HAMMERDB}
        assert found == HAMMERDB
        counts = {table: scalar(conn, f"SELECT count(*) FROM {table}") for table in COUNTS}
        assert counts == COUNTS
        bad = scalar(conn, "SELECT count(*) FROM customer WHERE c_credit = 'BC'")
        assert 14_500 < bad < 15_500
        assert scalar(conn, "SELECT bool_and((ol_amount > 0) = (ol_delivery_d IS NOT NULL)) FROM order_line")
        assert scalar(conn, "SELECT c_load FROM pgdyno_dataset") == 123
        customers = "SELECT count(DISTINCT (o_d_id, o_c_id)), bool_and(o_c_id >= o_id) FROM orders"
        n, none_before = scalar(conn, customers)
        assert 14_700 < n < 15_300 and none_before


SUFFIXED = {"new_order": "new_orders"}
"""Tables of sysbench-tpcc with another name than in the specification."""


def described(conn: psycopg.Connection[tuple[Any, ...]], number: int) -> dict[str, Any]:
    """Columns, those that can be null, and indexes of a set of tables, and its foreign keys."""
    found: dict[str, Any] = {}
    for table in COUNTS | {"order_line": 0}:
        name = f"{SUFFIXED.get(table, table)}{number}"
        columns, nullable = scalar(conn, SCHEMA, name)
        indexes = [row[0] for row in conn.execute(INDEXES, [name])]
        found[name] = {"columns": columns, "nullable": nullable, "indexes": indexes}
    found["foreign keys"] = [row[0] for row in conn.execute(FOREIGN_KEYS, [f"{number}$"])]
    return found


def test_a_database_of_the_dialect_sysbench_has_its_tables_and_counts(
    loading_server: Server, sysbench: str
) -> None:
    golden = json.loads((DATA / "schema.json").read_text("utf-8"))
    with closing(loading_server.connect(sysbench)) as conn:
        assert described(conn, 1) == golden
        assert len(described(conn, 2)["foreign keys"]) == 10
        for number in (1, 2):
            counts = {
                table: scalar(conn, f"SELECT count(*) FROM {SUFFIXED.get(table, table)}{number}")
                for table in COUNTS
            }
            assert counts == COUNTS
        assert scalar(conn, "SELECT bool_and(c_data ~ '^(.)\\1*$') FROM customer1")
        assert scalar(conn, "SELECT bool_and(c_first ~ '^first-[a-z]{2,10}$') FROM customer2")
        assert scalar(conn, "SELECT w_name FROM warehouse1") != scalar(conn, "SELECT w_name FROM warehouse2")


def test_a_new_load_replaces_all_table_sets_but_no_table_of_the_user(
    loading_server: Server, sysbench: str, spec: str
) -> None:
    of_two_sets = pytest.raises(DatasetError, match="has 2 table sets, not 1: use table_sets = 2")
    with closing(loading_server.connect(sysbench)) as conn, of_two_sets:
        Tpcc(parameters(dialect="sysbench", warehouses=2)).require(conn)
    with closing(loading_server.connect(spec)) as conn:
        assert scalar(conn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 11
        with pytest.raises(DatasetError, match="has orders3, which pgdyno did not load"):
            load(loading_server, spec, parameters(dialect="sysbench", warehouses=3, table_sets=3), True)
        assert scalar(conn, "SELECT count(*) FROM orders3") == 0


def test_a_database_of_sysbench_tpcc_needs_no_mark(
    loading_server: Server, sysbench: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_database(loading_server, "foreign_data", sysbench)
    dsn = loading_server.conninfo("foreign_data")
    with closing(loading_server.connect("foreign_data")) as conn:
        conn.execute("DROP TABLE pgdyno_dataset")
    with pytest.raises(UsageError, match="of sysbench-tpcc: add --dialect=sysbench --table-sets=2"):
        check(dsn)
    workload = parameters(dialect="sysbench", warehouses=2, table_sets=2)
    result, messages = drive(loading_server, "foreign_data", workload)
    assert result is not None and result.counters["new_orders"] > 0, messages
    assert "holds no dataset of pgdyno's" in drive(loading_server, "foreign_data", parameters())[1]
    options = {"dialect": "sysbench", "table_sets": 2, "into_existing": True}
    assert drive_command(dsn, 2, 0.5, warmup=0.0, **options) == 0
    assert check(dsn, dialect="sysbench", table_sets=2) == 0
    assert capsys.readouterr().out.count(" yes ") == 12
    for number, message in ((3, "does not have 3 sets of tables: use"), (1, "has more than 1 set of tables")):
        with pytest.raises(DatasetError, match=message):
            check(dsn, dialect="sysbench", table_sets=number)
    with pytest.raises(DatasetError, match="does not have 1 set of tables"):
        check(loading_server.conninfo("template1"), dialect="sysbench")


NUMBERS = """
    SELECT format('ALTER TABLE %I %s', table_name,
                  string_agg(format('ALTER COLUMN %I TYPE integer', column_name), ', '))
      FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'smallint'
     GROUP BY table_name
"""
ROUTINES = """
    SELECT coalesce(array_agg(DISTINCT nspname::text), '{}')
      FROM pg_proc JOIN pg_namespace ON pronamespace = pg_namespace.oid
     WHERE proname LIKE 'tpcc%'
"""


def foreign_copy(server: Server, name: str, original: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Copy a database without what only pgdyno creates: its marker and its functions."""
    conn = server.connect(copy_database(server, name, original))
    conn.execute("DROP TABLE pgdyno_dataset")
    for (function,) in conn.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE 'tpcc%'"):
        conn.execute(f"DROP FUNCTION {function}".encode())
    return conn


def test_a_database_of_hammerdb_is_driven_and_checked_under_its_dialect_only(
    loading_server: Server, hammerdb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = loading_server.conninfo("of_hammerdb")
    with closing(foreign_copy(loading_server, "of_hammerdb", hammerdb)) as conn:
        orders = scalar(conn, "SELECT count(*) FROM orders")
        with pytest.raises(UsageError, match="are those of HammerDB: add --dialect=hammerdb"):
            check(dsn)
        with pytest.raises(UsageError, match="are those of HammerDB: add --dialect=hammerdb"):
            drive_command(dsn, 2, 0.5, warmup=0.0, into_existing=True)
        with pytest.raises(DatasetError, match="was not created by pgdyno: add --into-existing"):
            drive_command(dsn, 2, 0.5, warmup=0.0, dialect="hammerdb")
        assert scalar(conn, ROUTINES) == []
        assert drive_command(dsn, 2, 0.5, warmup=0.0, dialect="hammerdb", into_existing=True) == 0
        assert scalar(conn, "SELECT count(*) FROM orders") > orders
        (schema,) = scalar(conn, ROUTINES)
        assert re.fullmatch("pgdyno_[0-9a-f]{12}", schema)
        assert drive_command(dsn, 2, 0.5, warmup=0.0, dialect="hammerdb", into_existing=True) == 0
        assert scalar(conn, ROUTINES) == [schema]
    capsys.readouterr()
    assert check(dsn, dialect="hammerdb") == 0
    assert capsys.readouterr().out.count(" skipped ") == 2


def test_integer_columns_are_used_as_they_are(loading_server: Server, spec: str) -> None:
    with closing(foreign_copy(loading_server, "integers", spec)) as conn:
        for (change,) in conn.execute(NUMBERS.encode()).fetchall():
            conn.execute(change.encode())
    for calls in ({}, {"calls": "statements"}, {"calls": "statements", "pipeline": True}):
        result, messages = drive(loading_server, "integers", parameters(**calls), transactions=200)
        assert result is not None and not messages, messages
        assert all(kind["ok"] > 0 for kind in result.totals.values())
    assert check(loading_server.conninfo("integers")) == 0


def test_functions_in_the_way_of_those_for_hammerdb_are_found_before_the_load(loading_server: Server) -> None:
    with closing(loading_server.connect()) as conn:
        conn.execute("CREATE DATABASE in_the_way")
    with closing(loading_server.connect("in_the_way")) as conn:
        conn.execute("CREATE FUNCTION slev(int, int, int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
        dsn, options = loading_server.conninfo("in_the_way"), {"dialect": "hammerdb", "into_existing": True}
        with pytest.raises(
            DatasetError, match=r"has slev\(integer,integer,integer\), which pgdyno did not load"
        ):
            expanded(command.load)(dsn, warehouses=1, hammerdb_routines=True, quiet=True, **options)
        assert scalar(conn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


CALLS = {
    "neword": "SELECT neword(1, 1, $1, 7, 15, 0) FROM generate_series(1, 2000)",
    "payment": "SELECT payment(1, 2, 1, 2, 7, 0, 100, 'x', '0', 0)",
    "ostat": "SELECT * FROM ostat(1, 2, $1, 0, '') AS (ol_i_id INTEGER, ol_supply_w_id INTEGER, "
    "ol_quantity SMALLINT, ol_amount NUMERIC, ol_delivery_d TIMESTAMP WITH TIME ZONE, out_os_c_id INTEGER, "
    "out_os_c_last CHARACTER VARYING, os_c_first CHARACTER VARYING, os_c_middle CHARACTER VARYING, "
    "os_c_balance NUMERIC, os_o_id INTEGER, os_entdate TIMESTAMP, os_o_carrier_id INTEGER)",
    "delivery": "SELECT delivery(1, 5)",
    "slev": "SELECT slev(1, 2, 20)",
}
"""Calls of HammerDB's routines, with the types that its driver declares."""


def test_the_functions_of_hammerdb_work_as_its_driver_calls_them(loading_server: Server) -> None:
    load_command = expanded(command.load)
    dsn = loading_server.conninfo("for_hammerdb")
    with pytest.raises(UsageError, match=r"--hammerdb-routines requires .* --dialect hammerdb"):
        load_command(dsn, warehouses=1, hammerdb_routines=True)
    with pytest.raises(UsageError, match="remove uniform-items from --deviate"):
        load_command(dsn, dialect="hammerdb", deviate="-uniform-items", hammerdb_routines=True)
    options = {"warehouses": 1, "dialect": "hammerdb", "hammerdb_routines": True, "quiet": True}
    assert load_command(dsn, **options) == 0
    with closing(loading_server.connect("for_hammerdb")) as conn:
        totals = [row[0] for row in conn.execute(CALLS["neword"].replace("$1", "2"))]
        assert 0 < totals.count(None) < 60 and len(totals) == 2000  # 20 are expected, SD 4.4
        assert scalar(conn, "SELECT d_next_o_id FROM district WHERE d_id = 2") == 5001
        unused = "SELECT count(*) FROM order_line WHERE ol_i_id = 100001 AND ol_amount IS NULL"
        assert scalar(conn, unused) == totals.count(None)
        assert scalar(conn, CALLS["payment"]) == 7
        assert scalar(conn, "SELECT sum(h_amount) FROM history WHERE h_amount <> 10") == 100
        lines = conn.execute(CALLS["ostat"].replace("$1", "7")).fetchall()
        assert len(lines) == 15 and {line[10] for line in lines} == {5000}
        assert scalar(conn, CALLS["delivery"]) == 1
        assert scalar(conn, "SELECT min(no_o_id) FROM new_order WHERE no_d_id = 2") == 2102
        assert 0 < scalar(conn, CALLS["slev"]) < 300
        # A run with other functions creates them in one more schema. A new load drops all of these.
        drive(loading_server, "for_hammerdb", parameters(dialect="hammerdb-5"), transactions=1)
        assert len(scalar(conn, ROUTINES)) == 3
        load(loading_server, "for_hammerdb", parameters(), into_existing=True)
        assert scalar(conn, "SELECT to_regprocedure('slev(integer, integer, integer)') IS NULL")
        assert scalar(conn, ROUTINES) == ["public"]


STATEMENT = re.compile(r"\[(\d+)\] LOG:  statement: (.*(?:\n\t.*)*)")
TABLE_NUMBER = re.compile(
    r"\b(warehouse|district|customer|history|orders|new_orders|order_line|stock|item)\d+\b"
)
LITERAL = re.compile(r"'[^']*'|(?<![\w.])-?\d+(\.\d+)?\b")


def normalized(statement: str) -> str:
    """A statement in small letters without its values, table numbers and spaces that mean nothing."""
    text = LITERAL.sub("?", TABLE_NUMBER.sub(r"\1#", statement.strip().lower()))
    text = re.sub(r"s_dist_\d\d", "s_dist_#", re.sub(r"\s+", " ", text))
    return re.sub(r" ?([(),=<>?]) ?", r"\1", text)


def statement_pairs(log: str) -> set[str]:
    """Each pair of consecutive statements of one session, from its first transaction on."""
    last: dict[str, str] = {}
    pairs = set()
    for process, statement in STATEMENT.findall(log):
        text = normalized(statement)
        if process in last:
            pairs.add(f"{last[process]} -> {text}")
        elif text != "begin":
            continue
        last[process] = text
    return pairs


def test_views_of_sets_can_be_created_again(loading_server: Server, sysbench: str) -> None:
    checks = Tpcc(parameters(dialect="sysbench", warehouses=2, table_sets=2)).checks(CLIENTS, restored=True)
    with closing(loading_server.connect(sysbench)) as conn:
        checks.begin(conn)
        checks.begin(conn)  # as the capacity search does
        assert scalar(conn, "SELECT count(*), min(w_id), max(w_id) FROM warehouse") == (2, 1, 2)


def test_the_statements_of_the_dialect_sysbench_are_those_that_sysbench_tpcc_sends(
    loading_server: Server, sysbench: str
) -> None:
    golden = json.loads((DATA / "statements.json").read_text("utf-8"))
    with closing(loading_server.connect(sysbench)) as conn:
        conn.execute(f"ALTER DATABASE {sysbench} SET log_statement = 'all'".encode())
        start = len(loading_server.log())
        for seed in range(DRIVES_MAX):
            workload = parameters(dialect="sysbench", warehouses=2, table_sets=2)
            drive(loading_server, sysbench, workload, seed, transactions=250)
            sent = statement_pairs(loading_server.log()[start:])
            # One New-Order of a hundred rolls back, and any statement can meet a serialization failure.
            different = {pair for pair in sent ^ set(golden) if "rollback" not in pair}
            if not different or different & sent:
                break
        conn.execute(f"ALTER DATABASE {sysbench} RESET log_statement".encode())
    assert different == set()


def test_a_retry_of_the_dialect_sysbench_is_another_transaction(
    loading_server: Server, sysbench: str
) -> None:
    workload = parameters(dialect="sysbench", warehouses=2, table_sets=2, mix="payment=1,new-order=1")
    start = len(loading_server.log())
    result, messages = drive(loading_server, sysbench, workload, transactions=500)
    assert result is not None, messages
    retried = sum(kind["retried"] for kind in result.totals.values())
    assert retried > 0, "payments of a warehouse conflict under repeatable read"
    ended = sum(kind["ok"] + kind["rolled_back"] + kind["failed"] for kind in result.totals.values())
    assert sum(result.tally["drawn"].values()) == ended + retried
    log = check_log(loading_server.log()[start:], counted_in(result.totals.values()))
    assert log.passed, log.detail


def test_data_of_other_deviations_are_refused(loading_server: Server, hammerdb: str, spec: str) -> None:
    with closing(loading_server.connect(hammerdb)) as conn:
        Tpcc(parameters(dialect="hammerdb")).require(conn)
        with pytest.raises(
            DatasetError, match=r"has the deviations constant-c, .*, but the workload requires no"
        ):
            Tpcc(parameters()).require(conn)
    with closing(loading_server.connect(spec)) as conn:
        Tpcc(parameters(deviate="no-rollback")).require(conn)
    refused = drive(loading_server, hammerdb, parameters())[1]
    assert "loaded with constant-c," in refused and "the run is without deviations" in refused


def drive(
    server: Server, database: str, workload: TpccParameters, seed: int = 7, transactions: int = 100
) -> tuple[TargetResult | None, str]:
    """Drive a database with this number of transactions of each client, which are the same for a seed.

    Returns the result, and the reason of a failure.
    """
    driving = Driving(workload=workload, clients=CLIENTS, discard_s=0.0)
    slices = [PlannedSlice(0, Role.MEASURE, 600.0, 0, transactions=transactions)]
    specification = drive_specification(driving, seed, slices, [("it", server.conninfo(database))])
    run = run_drive(specification, Interruption(), lambda _: None)
    messages = "; ".join(
        [*(event["message"] for event in run.errors), run.failure.message if run.failure else ""]
    )
    return (run.result.targets[0] if run.result else None), messages


DEVIATIONS = {
    "uniform-items,uniform-customers,no-rollback,unsorted-lines,random-home,stock-counters-not-updated": (
        "procedures"
    ),
    "c-redrawn,second-to-last-item,home-per-transaction,no-remote-warehouse,strict-stock-threshold,"
    "order-status-of-district,customer-after-middle,warehouse-row-first": "procedures",
    "stock-counters-not-updated,strict-stock-threshold,subtransactions,payment-count-not-updated,"
    "delivery-count-not-updated": "procedures",
    "text-protocol,second-to-last-item,unsorted-lines": "statements",
    "unused-item-committed,unsorted-lines,subtransactions": "procedures",
    "stock-counters-not-updated,strict-stock-threshold,payment-total-not-updated,warehouse-row-first,"
    "payment-count-not-updated,delivery-count-not-updated,order-status-of-district,customer-after-middle": (
        "statements"
    ),
    "literal-last-name,payment-total-not-updated": "procedures",
}
"""Deviations with their value of calls, for runs on one database. The last two break conditions 10 and 12."""


@pytest.fixture(scope="module")
def driven(loading_server: Server, spec: str) -> str:
    """A copy of the data without deviations, for all runs that do not need them as they were loaded."""
    return copy_database(loading_server, "driven", spec)


@pytest.mark.parametrize(("deviate", "calls"), DEVIATIONS.items(), ids=DEVIATIONS)
def test_transactions_with_deviations_leave_data_that_pass_all_other_checks(
    loading_server: Server, driven: str, deviate: str, calls: str
) -> None:
    passes_its_checks(loading_server, driven, parameters(calls=calls, deviate=deviate))


def passes_its_checks(server: Server, database: str, workload: TpccParameters) -> None:
    checks = Tpcc(workload).checks(CLIENTS, restored=True)
    with closing(server.connect(database)) as conn:
        checks.begin(conn)
    result, messages = drive(server, database, workload)
    assert result is not None, messages
    found = checks.end(lambda: server.connect(database), result, None)
    assert [f"{check.name}: {check.detail}" for check in found if not check.passed] == [], messages
    broken = {f"condition {number}" for one in workload.deviations for number in one.broken}
    without_constant = {one.name for one in workload.deviations} & {"constant-c", "c-redrawn"}
    if without_constant:
        broken.add("constant of last names")
    assert {check.name for check in found if check.skipped} == broken
    assert sum(kind["ok"] for kind in result.totals.values()) > 0


@pytest.mark.parametrize(("dialect", "sets"), [("hammerdb", 1), ("sysbench", 2)])
def test_a_dialect_drives_its_data_and_passes_its_checks(
    loading_server: Server, request: pytest.FixtureRequest, dialect: str, sets: int
) -> None:
    workload = parameters(dialect=dialect, warehouses=sets, table_sets=sets)
    passes_its_checks(loading_server, request.getfixturevalue(dialect), workload)


def test_defects_of_hammerdb_are_in_the_data_after_a_run(loading_server: Server, hammerdb: str) -> None:
    drive(loading_server, hammerdb, parameters(dialect="hammerdb"))
    with closing(loading_server.connect(hammerdb)) as conn:
        sums = "SELECT sum(s_order_cnt), sum(s_ytd), sum(s_remote_cnt) FROM stock"
        assert scalar(conn, sums) == (0, 0, 0)
        assert scalar(conn, "SELECT max(c_payment_cnt) + max(c_delivery_cnt) FROM customer") == 1
        assert scalar(conn, "SELECT max(c_ytd_payment) FROM customer") == 10
        assert scalar(conn, "SELECT count(*) FROM orders") > 30_000
        unused = "SELECT bool_and(ol_amount IS NULL AND ol_number = o_ol_cnt), count(*) > 0 FROM order_line "
        unused += "JOIN orders ON (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id) WHERE ol_i_id > 100000"
        assert scalar(conn, unused) == (True, True)


def test_an_older_version_of_hammerdb_drives_the_same_data(loading_server: Server, hammerdb: str) -> None:
    # After all other runs on these data, which its numbers of orders break.
    passes_its_checks(loading_server, hammerdb, parameters(dialect="hammerdb-4"))


def test_versions_of_hammerdb_differ_in_amounts_and_numbers_of_orders(
    loading_server: Server, spec: str
) -> None:
    deviate = "unused-item-committed,supply-from-all,amounts-added,order-number-skipped"
    fresh = copy_database(loading_server, "fresh", spec)
    passes_its_checks(loading_server, fresh, parameters(deviate=deviate))
    with closing(loading_server.connect(fresh)) as conn:
        of_new = "FROM order_line JOIN item ON i_id = ol_i_id WHERE ol_o_id > 3000"
        assert scalar(conn, f"SELECT min(ol_o_id), bool_and(ol_amount = i_price + ol_quantity) {of_new}") == (
            3002,
            True,
        )


def test_text_statements_have_their_values_and_begin_at_their_isolation(
    loading_server: Server, driven: str
) -> None:
    text = parameters(
        deviate="text-protocol", calls="statements", isolation="repeatable read", mix="new-order=1"
    )
    with closing(loading_server.connect(driven)) as conn:
        conn.execute(f"ALTER DATABASE {driven} SET log_statement = 'all'".encode())
        start = len(loading_server.log())
        drive(loading_server, driven, text)
    log = loading_server.log()[start:]
    assert "BEGIN ISOLATION LEVEL repeatable read" in log
    assert "UPDATE stock" in log and "$1" not in log
    assert "execute " not in log
