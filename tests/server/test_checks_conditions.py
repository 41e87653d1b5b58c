"""The twelve consistency conditions on a real server: valid data passes, and each corruption is detected.
Databases without such data are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import psycopg
import pytest
from checks_population import populate
from server_of_major import build_of

from pgdyno.errors import DatasetError
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.engine import dataset_format
from pgdyno.server.processes import Cluster, Server
from pgdyno.workloads.server_log import check_log
from pgdyno.workloads.tpcc.checks import (
    OwnershipMarker,
    check_condition,
    check_conditions,
    check_new_orders,
    conditions,
    read_marker,
    require_warehouses,
    satisfied_by_one_scan,
    sum_d_next_o_id,
)
from pgdyno.workloads.workload import prepare_session

pytestmark = pytest.mark.server
Connection = psycopg.Connection[tuple[Any, ...]]
CUSTOMERS = 30


@pytest.fixture(scope="module")
def database(running_server: Server) -> Iterator[str]:
    with closing(running_server.connect()) as conn:
        conn.execute("CREATE DATABASE checks")
        with closing(running_server.connect("checks")) as inside, inside.transaction():
            populate(inside, warehouses=2, customers=CUSTOMERS)
        yield "checks"
        conn.execute("DROP DATABASE checks")


@pytest.fixture
def conn(running_server: Server, database: str) -> Iterator[Connection]:
    """A connection whose transaction is rolled back."""
    with closing(running_server.connect(database)) as connection:
        connection.autocommit = False
        yield connection
        connection.rollback()


@pytest.fixture
def other(running_server: Server) -> Iterator[Connection]:
    """A connection to a database without data, whose transaction is rolled back."""
    with closing(running_server.connect()) as connection:
        connection.autocommit = False
        yield connection
        connection.rollback()


OF_ORDER_LINES = {4, 6, 7, 10, 12}


def violated(conn: Connection) -> set[int]:
    """Return the violated conditions. The common scan must leave all of these to their own statements."""
    alone = {condition.number for condition in conditions() if not check_condition(conn, condition).passed}
    assert satisfied_by_one_scan(conn) == OF_ORDER_LINES - alone
    return alone


def test_there_are_twelve_conditions_with_descriptions() -> None:
    assert [condition.number for condition in conditions()] == list(range(1, 13))
    assert all(len(condition.text) > 20 for condition in conditions())


def test_valid_data_passes_all_conditions(running_server: Server, database: str) -> None:
    checks = check_conditions(lambda: running_server.connect(database))
    assert [check.name for check in checks] == [f"condition {number}" for number in range(1, 13)]
    assert all(check.passed for check in checks)


DELIVER_ALL = """
    DELETE FROM new_order;
    UPDATE order_line SET ol_delivery_d = now(), ol_amount = 0 WHERE ol_delivery_d IS NULL;
    UPDATE orders SET o_carrier_id = 1 WHERE o_carrier_id IS NULL
"""


def test_conditions_of_new_orders_are_skipped_without_new_orders(conn: Connection) -> None:
    conn.execute(DELIVER_ALL)
    assert violated(conn) == set()


DISTRICT = "d_w_id = 1 AND d_id = 1"
ORDER, LINES = "o_w_id = 1 AND o_d_id = 1 AND o_id", "ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id"
NEW_ORDER = "no_w_id = 1 AND no_d_id = 1 AND no_o_id"
LINE = f"{LINES} = 1 AND ol_number = 1"
PAYMENT = "h_w_id = 1 AND h_d_id = 1 AND h_c_id = 2"
CUSTOMER = "c_w_id = 1 AND c_d_id = 1 AND c_id = 5"
DELIVER = f"""
    DELETE FROM new_order WHERE {NEW_ORDER} = 25;
    UPDATE orders SET o_carrier_id = 9 WHERE {ORDER} = 25;
    UPDATE order_line SET ol_delivery_d = now(), ol_amount = 0 WHERE {LINES} = 25
"""
TWICE = f"""
    ALTER TABLE orders DROP CONSTRAINT orders_pkey;
    INSERT INTO orders SELECT * FROM orders WHERE {ORDER} = 1
"""
EXCHANGE = f"""
    UPDATE orders SET o_carrier_id = CASE o_id WHEN 25 THEN 4 END WHERE {ORDER} IN (1, 25);
    UPDATE order_line SET ol_amount = 0, ol_delivery_d = CASE ol_o_id WHEN 25 THEN now() END
    WHERE {LINES} IN (1, 25)
"""

# The conditions overlap (1 follows from 8 and 9, 11 from 5), so each case names all that it violates.
CORRUPTIONS: Mapping[str, tuple[set[int], str]] = {
    "a warehouse's total is off": ({1, 8}, "UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2"),
    "a district's total is off": ({1, 9}, f"UPDATE district SET d_ytd = d_ytd - 1 WHERE {DISTRICT}"),
    "a number is skipped": ({2}, f"UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE {DISTRICT}"),
    "an order was delivered out of turn": ({3}, DELIVER),
    "an order line is lost": ({4, 6}, f"DELETE FROM order_line WHERE {LINE}"),
    "lines have no order": ({4, 6}, "INSERT INTO order_line VALUES (NULL, 999, 1, 1, 1, 5)"),
    "a damaged index admitted an order twice": ({4}, TWICE),
    "a line is another order's": ({6}, f"UPDATE order_line SET ol_o_id = 2, ol_number = 16 WHERE {LINE}"),
    "the wrong one of two orders is marked new": ({5}, EXCHANGE),
    "a delivered line has no date": ({7}, f"UPDATE order_line SET ol_delivery_d = NULL WHERE {LINE}"),
    "a payment went to another warehouse": ({8, 9}, f"UPDATE history SET h_w_id = 2 WHERE {PAYMENT}"),
    "a payment went to another district": ({9}, f"UPDATE history SET h_d_id = 2 WHERE {PAYMENT}"),
    "a payment left no history": ({8, 9, 10}, f"DELETE FROM history WHERE {PAYMENT}"),
    "a payment is another customer's": ({10}, f"UPDATE history SET h_c_id = 3 WHERE {PAYMENT}"),
    "no credit": ({10, 12}, f"UPDATE customer SET c_balance = c_balance - 5 WHERE {CUSTOMER}"),
    "a new order was lost": ({5, 11}, f"DELETE FROM new_order WHERE {NEW_ORDER} = 23"),
    "not counted": ({12}, f"UPDATE customer SET c_ytd_payment = c_ytd_payment - 10 WHERE {CUSTOMER}"),
}


def test_every_condition_has_a_planted_corruption() -> None:
    assert set().union(*(broken for broken, _ in CORRUPTIONS.values())) == set(range(1, 13))


def planted(server: Server, database: str, corruption: str) -> Connection:
    """Return a connection in whose transaction the data are corrupt."""
    connection = server.connect(database)
    connection.autocommit = False
    connection.execute(corruption.encode())
    return connection


def caught(of: Connection) -> set[int]:
    """Return the conditions that all checks together report as violated, and close the connection."""
    return {number for number, check in enumerate(check_conditions(lambda: of), 1) if not check.passed}


def test_planted_corruption_is_caught_by_each_condition_alone_and_by_all_together(
    running_server: Server, database: str
) -> None:
    for what, (broken, corruption) in CORRUPTIONS.items():
        corrupt = planted(running_server, database, corruption)
        assert violated(corrupt) == caught(corrupt) == broken, what


@pytest.mark.parametrize("major", [OLDEST_MAJOR, NEWEST_MAJOR])
def test_the_oldest_and_the_newest_version_catch_the_same(
    cluster_of: Callable[[Build], Cluster], major: int
) -> None:
    with cluster_of(build_of(Cache.open(), major)).start() as server:
        with closing(server.connect()) as conn, conn.transaction():
            populate(conn, warehouses=2, customers=CUSTOMERS)
        assert all(check.passed for check in check_conditions(server.connect))
        for what, (broken, corruption) in CORRUPTIONS.items():
            assert caught(planted(server, "postgres", corruption)) == broken, what
        assert check_log(server.log(), {}).passed


def test_a_failed_condition_counts_the_violations_and_shows_the_first_ones(conn: Connection) -> None:
    conn.execute("UPDATE customer SET c_ytd_payment = c_ytd_payment + 1")
    check = check_condition(conn, conditions()[11])
    assert check.statistic == 2 * 10 * CUSTOMERS
    assert (
        f"{2 * 10 * CUSTOMERS} violations, the first: c_w_id 1, c_d_id 1, c_id 1, c_balance " in check.detail
    )
    assert "c_id 4" not in check.detail


def test_the_checking_session_cannot_write(running_server: Server, database: str) -> None:
    with closing(running_server.connect(database)) as connection:
        prepare_session(connection)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM new_order")


def test_the_checking_session_has_no_timeouts(running_server: Server, database: str) -> None:
    names = "('statement_timeout', 'transaction_timeout')"  # the second since PostgreSQL 17
    with closing(running_server.connect(database)) as connection:
        connection.execute(f"SELECT set_config(name, '1h', false) FROM pg_settings WHERE name IN {names}")
        prepare_session(connection)
        rows = connection.execute(f"SELECT setting FROM pg_settings WHERE name IN {names}").fetchall()
    assert {setting for (setting,) in rows} == {"0"}


MARKS = """
    CREATE TABLE pgdyno_dataset (
        workload text, scale integer, seed numeric(20), format text, c_load integer, loaded_at timestamptz)
"""


def test_the_ownership_marker_is_read(other: Connection) -> None:
    form = dataset_format("tpcc")
    other.execute(MARKS)
    other.execute(f"INSERT INTO pgdyno_dataset VALUES ('tpcc', 10, {2**64 - 1}, '{form}', 123, now())")
    assert read_marker(other) == OwnershipMarker("tpcc", 10, 2**64 - 1, form, 123)


MARKED = f"{MARKS}; INSERT INTO pgdyno_dataset VALUES"


@pytest.mark.parametrize(
    ("statements", "read", "message"),
    [
        ("SELECT", read_marker, "contains no pgdyno dataset"),
        (MARKS, read_marker, "incomplete, because its load did not finish"),
        (f"{MARKED} ('pgbench', 10, 1, 1, 0, now())", read_marker, "the workload pgbench, not tpcc"),
        (f"{MARKED} ('tpcc', 10, 1, '1', 0, now())", read_marker, "by another version of pgdyno: load"),
        ("SELECT", require_warehouses, "it has no table warehouse"),
        ("CREATE TABLE warehouse ()", require_warehouses, "its table warehouse is empty"),
    ],
)
def test_a_database_without_usable_data_is_named(
    other: Connection, statements: str, read: Callable[[Connection], object], message: str
) -> None:
    other.execute(statements)
    with pytest.raises(DatasetError, match=message):
        read(other)


def test_a_database_without_the_tables_is_named(running_server: Server) -> None:
    with pytest.raises(DatasetError, match="the database postgres contains no tpcc data"):
        check_conditions(running_server.connect)


def test_new_orders_are_conserved_when_each_committed_one_advanced_a_district(conn: Connection) -> None:
    before = sum_d_next_o_id(conn)
    conn.execute("UPDATE district SET d_next_o_id = d_next_o_id + 3 WHERE d_id = 1")
    assert check_new_orders(before, sum_d_next_o_id(conn), committed=6).passed
    lost = check_new_orders(before, sum_d_next_o_id(conn), committed=7)
    assert not lost.passed
    assert lost.statistic == -1
