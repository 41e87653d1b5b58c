//! Counts of transactions by outcome.

use serde::Serialize;

/// Outcome of a transaction. Each has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed.
    Ok,
    /// Rolled back by design of the workload.
    RolledBack,
    /// Failed after all its retries.
    Failed,
    /// Never sent: no client was free until it was too late, or until the target's last slice closed.
    Skipped,
}

/// Numbers of transactions, usually of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Number of all transactions, counted independently of the four numbers below, whose sum it is.
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
    /// Number of attempts beyond the first of each transaction, counted when they begin. It is not an outcome and
    /// in no sum.
    pub retried: u64,
}

impl Counts {
    /// Adds the outcome of one transaction.
    #[inline]
    pub fn add(&mut self, outcome: Outcome) {
        self.all += 1;
        *match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::RolledBack => &mut self.rolled_back,
            Outcome::Failed => &mut self.failed,
            Outcome::Skipped => &mut self.skipped,
        } += 1;
    }

    /// Number of transactions that ended as designed: committed, or rolled back intentionally.
    pub fn executed(&self) -> u64 {
        self.ok + self.rolled_back
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        *self = self.with(other, |mine, theirs| mine + theirs);
    }

    /// The difference from `earlier`, a former state of the same counts.
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, |now, before| now - before)
    }

    /// Panics unless every transaction has exactly one outcome. A driver that loses or duplicates one must not
    /// report results.
    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let combined = Self {
            all: combine(self.all, other.all),
            ok: combine(self.ok, other.ok),
            rolled_back: combine(self.rolled_back, other.rolled_back),
            failed: combine(self.failed, other.failed),
            skipped: combine(self.skipped, other.skipped),
            retried: combine(self.retried, other.retried),
        };
        let outcomes = combined.ok + combined.rolled_back + combined.failed + combined.skipped;
        assert_eq!(outcomes, combined.all, "transactions and outcomes differ: {combined:?}");
        combined
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
            outcomes in prop::collection::vec((outcome(), 0_u64..4), 0..200),
            at in any::<prop::sample::Index>(),
        ) {
            let count = |part: &[(Outcome, u64)]| {
                let mut counts = Counts::default();
                for &(outcome, retries) in part {
                    counts.retried += retries;
                    counts.add(outcome);
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
    fn failed_and_skipped_transactions_were_not_executed() {
        let counts = Counts { all: 10, ok: 4, rolled_back: 3, failed: 2, skipped: 1, retried: 5 };
        assert_eq!(counts.executed(), 7);
    }

    #[test]
    #[should_panic(expected = "transactions and outcomes differ")]
    fn a_transaction_without_an_outcome_is_detected_at_the_merge() {
        Counts::default().merge(&Counts { all: 1, ..Counts::default() });
    }

    #[test]
    #[should_panic(expected = "transactions and outcomes differ")]
    fn a_transaction_with_two_outcomes_is_detected_at_the_merge() {
        Counts::default().merge(&Counts { all: 1, ok: 1, failed: 1, ..Counts::default() });
    }
}
