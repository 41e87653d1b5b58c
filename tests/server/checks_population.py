"""A small, consistent TPC-C population in SQL, only for tests of the checks.

It is not the loader's: text columns are omitted, districts have as few customers as a test needs, and every
random choice is a remainder, so that a statement that inserts a corruption knows the affected rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from psycopg import Connection

TABLES: LiteralString = """
CREATE TABLE warehouse (w_id integer PRIMARY KEY, w_ytd numeric(12,2) NOT NULL);
CREATE TABLE district (
    d_w_id integer, d_next_o_id integer NOT NULL, d_id smallint, d_ytd numeric(12,2) NOT NULL,
    PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (
    c_id integer, c_w_id integer, c_d_id smallint, c_balance numeric(12,2) NOT NULL,
    c_ytd_payment numeric(12,2) NOT NULL,
    PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE history (
    h_c_id integer, h_c_w_id integer NOT NULL, h_w_id integer NOT NULL, h_c_d_id smallint NOT NULL,
    h_d_id smallint NOT NULL, h_amount numeric(6,2) NOT NULL);
CREATE TABLE item (i_id integer PRIMARY KEY);
CREATE TABLE stock (s_i_id integer, s_w_id integer, PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE orders (
    o_id integer, o_w_id integer, o_c_id integer NOT NULL, o_d_id smallint, o_carrier_id smallint,
    o_ol_cnt smallint NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE new_order (
    no_w_id integer, no_o_id integer, no_d_id smallint, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (
    ol_delivery_d timestamptz, ol_o_id integer, ol_w_id integer, ol_d_id smallint, ol_number smallint,
    ol_amount numeric(6,2), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
"""

ROWS: LiteralString = """
INSERT INTO warehouse SELECT w, 100 * %(customers)s FROM generate_series(1, %(warehouses)s) w;
INSERT INTO district
    SELECT w, %(customers)s + 1, d, 10 * %(customers)s
    FROM generate_series(1, %(warehouses)s) w, generate_series(1, 10) d;
INSERT INTO customer
    SELECT c, d_w_id, d_id, -10, 10 FROM district, generate_series(1, %(customers)s) c;
INSERT INTO history SELECT c_id, c_w_id, c_w_id, c_d_id, c_d_id, 10 FROM customer;
INSERT INTO item SELECT generate_series(1, 100);
INSERT INTO stock SELECT i_id, w_id FROM warehouse, item;
INSERT INTO orders
    SELECT c_id, c_w_id, 1 + (c_id * 7) %% %(customers)s, c_d_id,
           CASE WHEN c_id * 10 <= %(customers)s * 7 THEN 1 + c_id %% 10 END, 5 + (c_id * 3) %% 11
    FROM customer;
INSERT INTO new_order SELECT o_w_id, o_id, o_d_id FROM orders WHERE o_carrier_id IS NULL;
INSERT INTO order_line
    SELECT CASE WHEN o_carrier_id IS NOT NULL THEN now() END, o_id, o_w_id, o_d_id, n,
           CASE WHEN o_carrier_id IS NOT NULL THEN 0 ELSE 1 + (o_id * n) %% 9998 END
    FROM orders, generate_series(1, o_ol_cnt) n;
"""

ONE_DELIVERY_AND_ONE_PAYMENT_EACH: LiteralString = """
WITH oldest AS (
    DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) IN (
        SELECT no_w_id, no_d_id, min(no_o_id) FROM new_order GROUP BY no_w_id, no_d_id)
    RETURNING no_w_id AS w_id, no_d_id AS d_id, no_o_id AS o_id),
delivered AS (
    UPDATE orders SET o_carrier_id = 3 FROM oldest
    WHERE (o_w_id, o_d_id, orders.o_id) = (w_id, d_id, oldest.o_id)
    RETURNING w_id, d_id, o_c_id, oldest.o_id),
dated AS (
    UPDATE order_line SET ol_delivery_d = now() FROM delivered
    WHERE (ol_w_id, ol_d_id, ol_o_id) = (w_id, d_id, o_id)
    RETURNING w_id, d_id, o_c_id, ol_amount),
credited AS (SELECT w_id, d_id, o_c_id, sum(ol_amount) AS amount FROM dated GROUP BY w_id, d_id, o_c_id)
UPDATE customer SET c_balance = c_balance + amount FROM credited
    WHERE (c_w_id, c_d_id, c_id) = (w_id, d_id, o_c_id);
INSERT INTO history SELECT 1, d_w_id, d_w_id, d_id, d_id, 123.45 FROM district;
UPDATE customer SET c_balance = c_balance - 123.45, c_ytd_payment = c_ytd_payment + 123.45 WHERE c_id = 1;
UPDATE district SET d_ytd = d_ytd + 123.45;
UPDATE warehouse SET w_ytd = w_ytd + 1234.50;
"""


def populate(conn: Connection, warehouses: int, customers: int) -> None:
    """Create the tables and fill them: ``customers`` customers and as many orders for each district."""
    sizes = {"warehouses": warehouses, "customers": customers}
    for script in (TABLES, ROWS, ONE_DELIVERY_AND_ONE_PAYMENT_EACH):
        for statement in script.split(";\n"):
            if statement.strip():
                conn.execute(statement, sizes)
