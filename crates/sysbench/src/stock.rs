//! sysbench's own scripts for databases, written anew: the same options, tables, and statements in the same order.

/// By name: the text.
const SCRIPTS: [(&str, &str); 12] = [
    ("bulk_insert", include_str!("stock/bulk_insert.lua")),
    ("oltp_common", include_str!("stock/oltp_common.lua")),
    ("oltp_delete", include_str!("stock/oltp_delete.lua")),
    ("oltp_insert", include_str!("stock/oltp_insert.lua")),
    ("oltp_point_select", include_str!("stock/oltp_point_select.lua")),
    ("oltp_read_only", include_str!("stock/oltp_read_only.lua")),
    ("oltp_read_write", include_str!("stock/oltp_read_write.lua")),
    ("oltp_update_index", include_str!("stock/oltp_update_index.lua")),
    ("oltp_update_non_index", include_str!("stock/oltp_update_non_index.lua")),
    ("oltp_write_only", include_str!("stock/oltp_write_only.lua")),
    ("select_random_points", include_str!("stock/select_random_points.lua")),
    ("select_random_ranges", include_str!("stock/select_random_ranges.lua")),
];

/// The text of a script; `oltp_common` is a module of the others.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    SCRIPTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCRIPTS.iter().map(|(name, _)| *name)
}
