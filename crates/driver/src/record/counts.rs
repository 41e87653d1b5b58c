//! How transactions ended.

use serde::Serialize;

/// The one way a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Ok,
    /// Rolled back by the workload's design.
    RolledBack,
    /// Ended in an error, after all its retries.
    Failed,
    /// Never sent: its time had come, but no client was free until it was hopelessly late or the target's last slice
    /// closed.
    Skipped,
}

/// Numbers of transactions, of one kind as a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All transactions: the sum of the four below, but counted by itself.
    #[serde(skip)]
    pub all: u64,
    /// See [`Outcome::Ok`].
    pub ok: u64,
    /// See [`Outcome::RolledBack`].
    pub rolled_back: u64,
    /// See [`Outcome::Failed`].
    pub failed: u64,
    /// See [`Outcome::Skipped`].
    pub skipped: u64,
    /// Attempts beyond the first of each transaction: no outcome, and in no sum.
    pub retried: u64,
}

impl Counts {
    /// Counts one transaction's outcome, and the retries that it took.
    #[inline]
    pub fn add(&mut self, outcome: Outcome, retries: u32) {
        self.all += 1;
        self.retried += u64::from(retries);
        *match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::RolledBack => &mut self.rolled_back,
            Outcome::Failed => &mut self.failed,
            Outcome::Skipped => &mut self.skipped,
        } += 1;
    }

    /// Those that were sent: all but the skipped ones.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.ok + self.rolled_back + self.failed
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Self) {
        self.all += other.all;
        self.ok += other.ok;
        self.rolled_back += other.rolled_back;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.assert_whole();
    }

    /// What was counted since `earlier`, a former state of the same counter.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = Self {
            all: self.all - earlier.all,
            ok: self.ok - earlier.ok,
            rolled_back: self.rolled_back - earlier.rolled_back,
            failed: self.failed - earlier.failed,
            skipped: self.skipped - earlier.skipped,
            retried: self.retried - earlier.retried,
        };
        difference.assert_whole();
        difference
    }

    /// Every transaction has exactly one outcome. A driver that loses or doubles one must not report a number.
    fn assert_whole(&self) {
        let outcomes = self.ok + self.rolled_back + self.failed + self.skipped;
        assert_eq!(outcomes, self.all, "transactions and outcomes differ: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Ok),
            Just(Outcome::RolledBack),
            Just(Outcome::Failed),
            Just(Outcome::Skipped)
        ]
    }

    proptest! {
        #[test]
        fn counts_merged_from_any_split_are_the_counts_of_the_whole(
            outcomes in prop::collection::vec((outcome(), 0_u32..4), 0..200),
            at in any::<prop::sample::Index>(),
        ) {
            let count = |part: &[(Outcome, u32)]| {
                let mut counts = Counts::default();
                for &(outcome, retries) in part {
                    counts.add(outcome, retries);
                }
                counts
            };
            let at = at.index(outcomes.len() + 1);
            let whole = count(&outcomes);
            let mut merged = count(&outcomes[..at]);
            merged.merge(&count(&outcomes[at..]));
            prop_assert_eq!(merged, whole);
            prop_assert_eq!(whole.ok + whole.rolled_back + whole.failed + whole.skipped, outcomes.len() as u64);
            prop_assert_eq!(whole.since(&count(&outcomes[..at])), count(&outcomes[at..]));
        }
    }

    #[test]
    #[should_panic(expected = "transactions and outcomes differ")]
    fn a_transaction_without_an_outcome_is_noticed_at_the_merge() {
        Counts::default().merge(&Counts { all: 1, ..Counts::default() });
    }

    #[test]
    #[should_panic(expected = "transactions and outcomes differ")]
    fn a_transaction_with_two_outcomes_is_noticed_at_the_merge() {
        Counts::default().merge(&Counts { all: 1, ok: 1, failed: 1, ..Counts::default() });
    }
}
