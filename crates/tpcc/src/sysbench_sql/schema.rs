//! Tables, keys and indexes of a set.

use crate::population::Table;

/// The name of a table without the number of the set.
pub fn name(table: Table) -> &'static str {
    if table == Table::NewOrder { "new_orders" } else { table.name() }
}

/// Creates a table. Its primary key is added after the load, under the name that CREATE TABLE would give it.
#[allow(clippy::too_many_lines)] // Nine texts.
pub fn create(table: Table) -> &'static str {
    match table {
        Table::Warehouse => {
            "CREATE TABLE warehouse$0 (
    w_id       smallint NOT NULL,
    w_name     varchar(10),
    w_street_1 varchar(20),
    w_street_2 varchar(20),
    w_city     varchar(20),
    w_state    char(2),
    w_zip      char(9),
    w_tax      numeric(4,2),
    w_ytd      numeric(12,2)
)"
        }
        Table::District => {
            "CREATE TABLE district$0 (
    d_id        smallint NOT NULL,
    d_w_id      smallint NOT NULL,
    d_name      varchar(10),
    d_street_1  varchar(20),
    d_street_2  varchar(20),
    d_city      varchar(20),
    d_state     char(2),
    d_zip       char(9),
    d_tax       numeric(4,2),
    d_ytd       numeric(12,2),
    d_next_o_id integer
)"
        }
        Table::Customer => {
            "CREATE TABLE customer$0 (
    c_id           integer NOT NULL,
    c_d_id         smallint NOT NULL,
    c_w_id         smallint NOT NULL,
    c_first        varchar(16),
    c_middle       char(2),
    c_last         varchar(16),
    c_street_1     varchar(20),
    c_street_2     varchar(20),
    c_city         varchar(20),
    c_state        char(2),
    c_zip          char(9),
    c_phone        char(16),
    c_since        timestamp,
    c_credit       char(2),
    c_credit_lim   bigint,
    c_discount     numeric(4,2),
    c_balance      numeric(12,2),
    c_ytd_payment  numeric(12,2),
    c_payment_cnt  smallint,
    c_delivery_cnt smallint,
    c_data         text
)"
        }
        Table::History => {
            "CREATE TABLE history$0 (
    h_c_id   integer,
    h_c_d_id smallint,
    h_c_w_id smallint,
    h_d_id   smallint,
    h_w_id   smallint,
    h_date   timestamp,
    h_amount numeric(6,2),
    h_data   varchar(24)
)"
        }
        Table::Orders => {
            "CREATE TABLE orders$0 (
    o_id         integer NOT NULL,
    o_d_id       smallint NOT NULL,
    o_w_id       smallint NOT NULL,
    o_c_id       integer,
    o_entry_d    timestamp,
    o_carrier_id smallint,
    o_ol_cnt     smallint,
    o_all_local  smallint
)"
        }
        Table::NewOrder => {
            "CREATE TABLE new_orders$0 (
    no_o_id integer NOT NULL,
    no_d_id smallint NOT NULL,
    no_w_id smallint NOT NULL
)"
        }
        Table::OrderLine => {
            "CREATE TABLE order_line$0 (
    ol_o_id        integer NOT NULL,
    ol_d_id        smallint NOT NULL,
    ol_w_id        smallint NOT NULL,
    ol_number      smallint NOT NULL,
    ol_i_id        integer,
    ol_supply_w_id smallint,
    ol_delivery_d  timestamp,
    ol_quantity    smallint,
    ol_amount      numeric(6,2),
    ol_dist_info   char(24)
)"
        }
        Table::Stock => {
            "CREATE TABLE stock$0 (
    s_i_id       integer NOT NULL,
    s_w_id       smallint NOT NULL,
    s_quantity   smallint,
    s_dist_01    char(24),
    s_dist_02    char(24),
    s_dist_03    char(24),
    s_dist_04    char(24),
    s_dist_05    char(24),
    s_dist_06    char(24),
    s_dist_07    char(24),
    s_dist_08    char(24),
    s_dist_09    char(24),
    s_dist_10    char(24),
    s_ytd        numeric(8,0),
    s_order_cnt  smallint,
    s_remote_cnt smallint,
    s_data       varchar(50)
)"
        }
        Table::Item => {
            "CREATE TABLE item$0 (
    i_id    integer NOT NULL,
    i_im_id integer,
    i_name  varchar(24),
    i_price numeric(5,2),
    i_data  varchar(50)
)"
        }
    }
}

/// Add the primary key and the indexes of a table.
pub fn indexes(table: Table) -> &'static [&'static str] {
    match table {
        Table::Warehouse => &["ALTER TABLE warehouse$0 ADD PRIMARY KEY (w_id)"],
        Table::District => &["ALTER TABLE district$0 ADD PRIMARY KEY (d_w_id, d_id)"],
        Table::Customer => &[
            "ALTER TABLE customer$0 ADD PRIMARY KEY (c_w_id, c_d_id, c_id)",
            "CREATE INDEX idx_customer$0 ON customer$0 (c_w_id, c_d_id, c_last, c_first)",
        ],
        Table::History => &[
            "CREATE INDEX fkey_history_1$0 ON history$0 (h_c_w_id, h_c_d_id, h_c_id)",
            "CREATE INDEX fkey_history_2$0 ON history$0 (h_w_id, h_d_id)",
        ],
        Table::Orders => &[
            "ALTER TABLE orders$0 ADD PRIMARY KEY (o_w_id, o_d_id, o_id)",
            "CREATE INDEX idx_orders$0 ON orders$0 (o_w_id, o_d_id, o_c_id, o_id)",
        ],
        Table::NewOrder => &["ALTER TABLE new_orders$0 ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id)"],
        Table::OrderLine => &[
            "ALTER TABLE order_line$0 ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
            "CREATE INDEX fkey_order_line_2$0 ON order_line$0 (ol_supply_w_id, ol_i_id)",
        ],
        Table::Stock => &[
            "ALTER TABLE stock$0 ADD PRIMARY KEY (s_w_id, s_i_id)",
            "CREATE INDEX fkey_stock_2$0 ON stock$0 (s_i_id)",
        ],
        Table::Item => &["ALTER TABLE item$0 ADD PRIMARY KEY (i_id)"],
    }
}

/// Add the foreign keys (deviation `foreign-keys`): constraint, columns, referenced columns.
pub fn foreign_keys(set: u32) -> impl Iterator<Item = String> {
    const KEYS: [(&str, &str, &str, &str); 10] = [
        ("new_orders", "1", "no_w_id, no_d_id, no_o_id", "orders$0 (o_w_id, o_d_id, o_id)"),
        ("orders", "1", "o_w_id, o_d_id, o_c_id", "customer$0 (c_w_id, c_d_id, c_id)"),
        ("customer", "1", "c_w_id, c_d_id", "district$0 (d_w_id, d_id)"),
        ("history", "1", "h_c_w_id, h_c_d_id, h_c_id", "customer$0 (c_w_id, c_d_id, c_id)"),
        ("history", "2", "h_w_id, h_d_id", "district$0 (d_w_id, d_id)"),
        ("district", "1", "d_w_id", "warehouse$0 (w_id)"),
        ("order_line", "1", "ol_w_id, ol_d_id, ol_o_id", "orders$0 (o_w_id, o_d_id, o_id)"),
        ("order_line", "2", "ol_supply_w_id, ol_i_id", "stock$0 (s_w_id, s_i_id)"),
        ("stock", "1", "s_w_id", "warehouse$0 (w_id)"),
        ("stock", "2", "s_i_id", "item$0 (i_id)"),
    ];
    KEYS.iter().map(move |(table, number, columns, referenced)| {
        let sql = format!(
            "ALTER TABLE {table}$0 ADD CONSTRAINT fkey_{table}_{number}_$0 \
             FOREIGN KEY ({columns}) REFERENCES {referenced}"
        );
        of_set(&sql, set)
    })
}

/// The text for one set.
pub fn of_set(sql: &str, set: u32) -> String {
    sql.replace("$0", &set.to_string())
}
