//! Tables, keys and indexes of a set.

use crate::population::Table;

/// The name of a table without the number of the set.
pub fn name(table: Table) -> &'static str {
    if table == Table::NewOrder { "new_orders" } else { table.name() }
}

/// Creates a table. Its primary key is added after the load, under the name that CREATE TABLE would give it.
pub fn create(table: Table) -> &'static str {
    let sql = match table {
        Table::Warehouse => include_str!("table/warehouse.sql"),
        Table::District => include_str!("table/district.sql"),
        Table::Customer => include_str!("table/customer.sql"),
        Table::History => include_str!("table/history.sql"),
        Table::Orders => include_str!("table/orders.sql"),
        Table::NewOrder => include_str!("table/new_orders.sql"),
        Table::OrderLine => include_str!("table/order_line.sql"),
        Table::Stock => include_str!("table/stock.sql"),
        Table::Item => include_str!("table/item.sql"),
    };
    sql.trim_ascii_end()
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
