//! Rows as COPY BINARY tuples. They are determined by their keys, without random numbers. Nothing is allocated
//! per row.
//!
//! The filler is NULL for branches and tellers and empty for accounts. The server pads it, which is cheaper
//! than validating received blanks. Column defaults for filler and balance are cheaper still.

use super::partition::hash_of_key;
use super::tables::{ACCOUNTS, TELLERS};
use loader::dataset::Rows;
use pgwire::copy;

/// Rows per group: 150 kB of accounts.
const GROUP_ROWS: i64 = 5000;

/// Columns of an account to send.
#[derive(Clone, Copy)]
pub struct Sent {
    /// Whether the key is a `bigint`.
    pub big: bool,
    /// Whether to send the constant columns, balance and filler.
    pub constants: bool,
}

/// Accounts with consecutive keys.
pub struct Accounts {
    /// First key.
    pub first: i64,
    /// Last key; less than the first if there are no accounts.
    pub last: i64,
    /// Columns to send.
    pub sent: Sent,
}

impl Rows for Accounts {
    /// At least one group, because an empty COPY must be terminated.
    fn groups(&self) -> u64 {
        groups(self.last - self.first + 1, GROUP_ROWS)
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let first = self.first + group as i64 * GROUP_ROWS;
        let last = self.last.min(first + GROUP_ROWS - 1);
        append_accounts(first..=last, self.sent, out)
    }
}

/// Accounts of one hash partition.
pub struct HashedAccounts {
    /// Total number of accounts.
    pub accounts: i64,
    /// Columns to send.
    pub sent: Sent,
    /// Number of partitions.
    pub modulus: u64,
    /// Number of this partition, from 0.
    pub remainder: u64,
}

impl HashedAccounts {
    fn block_rows(&self) -> i64 {
        GROUP_ROWS * self.modulus as i64
    }
}

impl Rows for HashedAccounts {
    fn groups(&self) -> u64 {
        groups(self.accounts, self.block_rows())
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let first = group as i64 * self.block_rows() + 1;
        let last = self.accounts.min(first + self.block_rows() - 1);
        let ours = (first..=last).filter(|&key| hash_of_key(key) % self.modulus == self.remainder);
        append_accounts(ours, self.sent, out)
    }
}

/// Tellers of all branches.
pub struct Tellers {
    /// Number of branches.
    pub branches: u32,
}

impl Rows for Tellers {
    fn groups(&self) -> u64 {
        groups(i64::from(self.branches * TELLERS), GROUP_ROWS)
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let keys = keys_of(group, self.branches * TELLERS);
        let count = keys.len() as u64;
        for key in keys {
            copy::row(out, 4);
            copy::int4(out, key as i32);
            copy::int4(out, ((key - 1) / TELLERS + 1) as i32);
            copy::int4(out, 0);
            copy::null(out);
        }
        count
    }
}

/// Branches.
pub struct Branches {
    /// Number of branches.
    pub branches: u32,
}

impl Rows for Branches {
    fn groups(&self) -> u64 {
        groups(i64::from(self.branches), GROUP_ROWS)
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let keys = keys_of(group, self.branches);
        let count = keys.len() as u64;
        for key in keys {
            copy::row(out, 3);
            copy::int4(out, key as i32);
            copy::int4(out, 0);
            copy::null(out);
        }
        count
    }
}

fn append_accounts(keys: impl Iterator<Item = i64>, sent: Sent, out: &mut Vec<u8>) -> u64 {
    let mut count = 0;
    for key in keys {
        copy::row(out, if sent.constants { 4 } else { 2 });
        if sent.big {
            copy::int8(out, key);
        } else {
            copy::int4(out, key as i32);
        }
        copy::int4(out, ((key - 1) / i64::from(ACCOUNTS) + 1) as i32);
        if sent.constants {
            copy::int4(out, 0);
            copy::text(out, b"");
        }
        count += 1;
    }
    count
}

fn groups(rows: i64, group_rows: i64) -> u64 {
    rows.max(1).div_euclid(group_rows) as u64 + u64::from(rows.max(1) % group_rows > 0)
}

fn keys_of(group: u64, count: u32) -> std::ops::Range<u32> {
    let first = group as u32 * GROUP_ROWS as u32 + 1;
    first..count.min(first + GROUP_ROWS as u32 - 1) + 1
}
