//! Deviations from TPC-C: single defects of other drivers, to be switched on one by one.
//!
//! `python/pgdyno/workloads/tpcc/tpcc_deviations.toml` describes them; a test compares the names. SQL that differs
//! under a deviation marks its lines: `--[if NAME]` is a line that exists only with it, `--[unless NAME]` one that
//! exists only without it. A line may have several such marks.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer};

macro_rules! deviations {
    ($($variant:ident = $name:literal, $changes_data:literal;)+) => {
        /// One deviation. The discriminant is its bit in [`Deviations`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The table describes them.
        pub enum Deviation { $($variant),+ }

        impl Deviation {
            /// All deviations.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in specifications.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Whether the data of a load depend on it.
            pub const fn changes_data(self) -> bool {
                match self { $(Self::$variant => $changes_data),+ }
            }
        }
    };
}

deviations! {
    UniformItems = "uniform-items", false;
    UniformCustomers = "uniform-customers", false;
    ConstantC = "constant-c", true;
    CRedrawn = "c-redrawn", false;
    NoRollback = "no-rollback", false;
    SecondToLastItem = "second-to-last-item", false;
    NoRemoteWarehouse = "no-remote-warehouse", false;
    UnsortedLines = "unsorted-lines", false;
    RandomHome = "random-home", false;
    HomePerTransaction = "home-per-transaction", false;
    SwappedThinkTimes = "swapped-think-times", false;
    LiteralLastName = "literal-last-name", false;
    HalfBadCredit = "half-bad-credit", true;
    ReversedAmounts = "reversed-amounts", true;
    OneLetterFiller = "one-letter-filler", true;
    HammerdbSchema = "hammerdb-schema", true;
    ForeignKeys = "foreign-keys", true;
    StockCountersNotUpdated = "stock-counters-not-updated", false;
    StrictStockThreshold = "strict-stock-threshold", false;
    PaymentTotalNotUpdated = "payment-total-not-updated", false;
    PaymentCountNotUpdated = "payment-count-not-updated", false;
    DeliveryCountNotUpdated = "delivery-count-not-updated", false;
    OrderStatusOfDistrict = "order-status-of-district", false;
    Subtransactions = "subtransactions", false;
    WarehouseRowFirst = "warehouse-row-first", false;
    TextProtocol = "text-protocol", false;
    CustomerAfterMiddle = "customer-after-middle", false;
    RedrawOnRetry = "redraw-on-retry", false;
    UnusedItemCommitted = "unused-item-committed", false;
    SupplyFromAll = "supply-from-all", false;
    RepeatedOrderCustomers = "repeated-order-customers", true;
    AmountsAdded = "amounts-added", false;
    OrderNumberSkipped = "order-number-skipped", false;
    SysbenchSql = "sysbench-sql", true;
}

/// A set of deviations; the empty one is TPC-C as we implement it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deviations(u64);

impl Deviations {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// Whether a deviation is in the set.
    #[inline]
    #[must_use]
    pub const fn has(self, deviation: Deviation) -> bool {
        self.0 & 1 << deviation as u64 != 0
    }

    /// Those that the data of a load depend on.
    #[must_use]
    pub fn of_data(self) -> Self {
        self.iter().filter(|deviation| deviation.changes_data()).collect()
    }

    /// The deviations in the order of [`Deviation::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Deviation> {
        Deviation::ALL.iter().copied().filter(move |&deviation| self.has(deviation))
    }

    /// SQL without the lines that do not exist under these deviations, and without marks.
    #[must_use]
    pub fn render(self, sql: &'static str) -> Cow<'static, str> {
        if !sql.contains(MARK) {
            return Cow::Borrowed(sql);
        }
        let lines = sql.split_inclusive('\n').filter_map(|line| self.line(line));
        Cow::Owned(lines.collect())
    }

    fn line(self, line: &str) -> Option<String> {
        let Some((text, marks)) = line.split_once(MARK) else { return Some(line.to_owned()) };
        let exists = marks.trim_end().split('[').all(|mark| {
            let (word, name) = mark.trim_end().trim_end_matches(']').split_once(' ').unwrap_or_default();
            self.iter().any(|deviation| deviation.name() == name) == (word == "if")
        });
        exists.then(|| format!("{}{}", text.trim_end(), if line.ends_with('\n') { "\n" } else { "" }))
    }
}

const MARK: &str = "--[";

impl FromIterator<Deviation> for Deviations {
    fn from_iter<T: IntoIterator<Item = Deviation>>(deviations: T) -> Self {
        Self(deviations.into_iter().fold(0, |set, deviation| set | 1 << deviation as u64))
    }
}

/// Their names, with commas.
impl fmt::Display for Deviations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Deviation::name).collect();
        f.write_str(&names.join(","))
    }
}

impl<'de> Deserialize<'de> for Deviations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = |name: String| {
            let known = Deviation::ALL.iter().copied().find(|deviation| deviation.name() == name);
            known.ok_or_else(|| de::Error::custom(format!("unknown deviation {name:?}")))
        };
        Vec::<String>::deserialize(deserializer)?.into_iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = include_str!("../../../python/pgdyno/workloads/tpcc/tpcc_deviations.toml");

    #[test]
    fn the_enum_has_the_deviations_of_the_table() {
        let sections = TABLE.split("\n[deviations.").skip(1);
        let described: Vec<_> = sections
            .map(|section| {
                let (name, body) = section.split_once(']').expect("a heading");
                let body = body.split("\n[").next().unwrap_or_default();
                (name, body.contains("\ndata = true"))
            })
            .collect();
        let ours: Vec<_> = Deviation::ALL.iter().map(|one| (one.name(), one.changes_data())).collect();
        assert_eq!(ours, described);
    }

    #[test]
    fn a_marked_line_exists_only_where_all_of_its_marks_allow_it() {
        let sql = "a\n  b   --[unless no-rollback]\nc --[if no-rollback] [unless c-redrawn]\nd";
        let with = |set: &[Deviation]| set.iter().copied().collect::<Deviations>().render(sql).into_owned();
        assert_eq!(with(&[]), "a\n  b\nd");
        assert_eq!(with(&[Deviation::NoRollback]), "a\nc\nd");
        assert_eq!(with(&[Deviation::NoRollback, Deviation::CRedrawn]), "a\nd");
    }

    #[test]
    fn sets_are_read_by_name_and_written_in_order() {
        let read = |text: &str| serde_json::from_str::<Deviations>(text);
        let set = read(r#"["half-bad-credit", "uniform-items"]"#).expect("known");
        assert_eq!(set.to_string(), "uniform-items,half-bad-credit");
        assert_eq!(set.of_data().to_string(), "half-bad-credit");
        assert_eq!(read("[]").expect("empty"), Deviations::NONE);
        assert!(read(r#"["rollback"]"#).expect_err("unknown").to_string().contains("rollback"));
    }
}
