//! Tables and statements of sysbench-tpcc (deviation `sysbench-sql`), in one or more sets of tables.
//!
//! In all texts `$0` is the number of a set, which is the suffix of its tables. A warehouse of a dataset belongs to
//! one set and has a number there: [`place_of`]. The SQL was written from the schema and the statements that a server
//! logs under sysbench-tpcc; tests compare it with them.

pub(super) mod schema;
mod statement;
pub(super) mod transactions;

/// Warehouses of a set: their numbers are `smallint`.
pub const SYSBENCH_WAREHOUSES_MAX: u32 = i16::MAX as u32;

/// The set, from 1, of a warehouse of the dataset, and its number there, from 1: warehouses belong to the sets in turn.
pub fn place_of(warehouse: u32, sets: u32) -> (u32, u32) {
    ((warehouse - 1) % sets + 1, (warehouse - 1) / sets + 1)
}

/// The warehouses of a set.
pub fn warehouses_of(set: u32, sets: u32, warehouses: u32) -> u32 {
    (warehouses + sets - set) / sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_share_the_warehouses_and_number_them_from_one() {
        for (warehouses, sets) in [(1, 1), (10, 3), (12, 4), (5, 5)] {
            let mut seen = vec![Vec::new(); sets as usize];
            for warehouse in 1..=warehouses {
                let (set, number) = place_of(warehouse, sets);
                seen[set as usize - 1].push(number);
            }
            for (index, numbers) in seen.into_iter().enumerate() {
                let due = warehouses_of(index as u32 + 1, sets, warehouses);
                assert_eq!(numbers, (1..=due).collect::<Vec<_>>());
            }
        }
    }
}
