"""The twelve consistency conditions on a real server: valid data passes, and each corruption is detected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from checks_population import populate
from server_of_major import build_of

from pgdyno.errors import DatasetError
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, Server
from pgdyno.workloads.server_log import check_log
from pgdyno.workloads.tpcc.checks import (
    check_condition,
    check_conditions,
    check_new_orders,
    conditions,
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


# The conditions overlap (1 follows from 8 and 9, 11 from 5), so each case names all that it violates.
CORRUPTIONS: list[tuple[set[int], str, str]] = [
    ({1, 8}, "a warehouse's total is off", "UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2"),
    (
        {1, 9},
        "a district's total is off",
        "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 2 AND d_id = 10",
    ),
    (
        {2},
        "the next order's number skips one",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1",
    ),
    (
        {3},
        "an order was delivered out of turn",
        """
        DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 25;
        UPDATE orders SET o_carrier_id = 9 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 25;
        UPDATE order_line SET ol_delivery_d = now(), ol_amount = 0
        WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 25
        """,
    ),
    (
        {4, 6},
        "an order line is lost",
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 1",
    ),
    (
        {4, 6},
        "lines have no order",
        "INSERT INTO order_line VALUES (NULL, 999, 1, 1, 1, 5)",
    ),
    (
        {4},
        "a damaged index admitted an order twice",
        """
        ALTER TABLE orders DROP CONSTRAINT orders_pkey;
        INSERT INTO orders SELECT * FROM orders WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1
        """,
    ),
    (
        {6},
        "a line is another order's",
        """
        UPDATE order_line SET ol_o_id = 2, ol_number = 16
        WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 1
        """,
    ),
    (
        {5},
        "the wrong one of two orders is marked new",
        """
        UPDATE orders SET o_carrier_id = CASE o_id WHEN 25 THEN 4 END
        WHERE o_w_id = 1 AND o_d_id = 1 AND o_id IN (1, 25);
        UPDATE order_line SET ol_amount = 0, ol_delivery_d = CASE ol_o_id WHEN 25 THEN now() END
        WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id IN (1, 25)
        """,
    ),
    (
        {7},
        "a delivered line has no date",
        """
        UPDATE order_line SET ol_delivery_d = NULL
        WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 1
        """,
    ),
    (
        {8, 9},
        "a payment went to another warehouse's books",
        "UPDATE history SET h_w_id = 2 WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 2",
    ),
    (
        {9},
        "a payment went to another district's books",
        "UPDATE history SET h_d_id = 2 WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 2",
    ),
    (
        {8, 9, 10},
        "a payment left no history",
        "DELETE FROM history WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 2",
    ),
    (
        {10},
        "a payment is another customer's in history",
        "UPDATE history SET h_c_id = 3 WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 2",
    ),
    (
        {10, 12},
        "a delivery was not credited",
        "UPDATE customer SET c_balance = c_balance - 5 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 5",
    ),
    (
        {5, 11},
        "a new order was lost",
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 23",
    ),
    (
        {12},
        "a payment was not counted",
        "UPDATE customer SET c_ytd_payment = c_ytd_payment - 10 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 5",
    ),
]


def test_every_condition_has_a_planted_corruption() -> None:
    assert set().union(*(broken for broken, _, _ in CORRUPTIONS)) == set(range(1, 13))


@pytest.mark.parametrize(("broken", "what", "corruption"), CORRUPTIONS)
def test_planted_corruption_is_caught(conn: Connection, broken: set[int], what: str, corruption: str) -> None:
    conn.execute(corruption)
    assert violated(conn) == broken, what


def test_all_conditions_together_find_what_each_finds_alone(running_server: Server, database: str) -> None:
    for broken, what, corruption in CORRUPTIONS:
        planted = running_server.connect(database)
        planted.autocommit = False
        planted.execute(corruption)
        checks = check_conditions(lambda planted=planted: planted)  # type: ignore[misc]
        assert {n for n, check in enumerate(checks, 1) if not check.passed} == broken, what


@pytest.mark.parametrize("major", [OLDEST_MAJOR, NEWEST_MAJOR])
def test_the_oldest_and_the_newest_version_catch_the_same(
    cluster_of: Callable[[Build], Cluster], major: int
) -> None:
    with cluster_of(build_of(Cache.open(), major)).start() as server:
        with closing(server.connect()) as conn, conn.transaction():
            populate(conn, warehouses=2, customers=CUSTOMERS)
        assert all(check.passed for check in check_conditions(server.connect))
        for broken, what, corruption in CORRUPTIONS:
            with closing(server.connect()) as conn, conn.transaction(force_rollback=True):
                conn.execute(corruption)
                assert violated(conn) == broken, what
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
