//! What was drawn, counted: the material for tests of the distributions.

use serde_json::{Value, json};

use super::graph::{Choice, Chosen};
use super::operation::{CHOICES, MULTIGET_MAX, NAMES};

/// Bins of ranks: bin k has the ranks from 2^k - 1 to 2^(k+1) - 2.
const BINS: usize = 32;

/// Counters of drawn operations.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Operations by kind.
    pub drawn: [u64; NAMES.len()],
    /// Ranks of chosen nodes by distribution and bin.
    pub ranks: [[u64; BINS]; CHOICES.len()],
    /// Link reads that are correlated with the number of links.
    pub correlated_reads: u64,
    /// Operations on links by type.
    pub link_types: [u64; 2],
    /// Multigets by number of links.
    pub multiget: [u64; MULTIGET_MAX + 1],
    /// Lists that continue another one.
    pub histories: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            drawn: [0; NAMES.len()],
            ranks: [[0; BINS]; CHOICES.len()],
            correlated_reads: 0,
            link_types: [0; 2],
            multiget: [0; MULTIGET_MAX + 1],
            histories: 0,
        }
    }
}

impl Tally {
    /// Counts a chosen node.
    #[inline]
    pub fn count(&mut self, chosen: Chosen) {
        let bin = (chosen.rank + 1).ilog2() as usize;
        self.ranks[chosen.choice as usize][bin.min(BINS - 1)] += 1;
        self.correlated_reads += u64::from(chosen.choice == Choice::LinkRead && chosen.is_correlated);
    }
}

impl driver::Tally for Tally {
    fn merge(&mut self, other: &Self) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut self.drawn, &other.drawn);
        add(self.ranks.as_flattened_mut(), other.ranks.as_flattened());
        add(&mut self.link_types, &other.link_types);
        add(&mut self.multiget, &other.multiget);
        self.correlated_reads += other.correlated_reads;
        self.histories += other.histories;
    }

    fn value(&self) -> Value {
        let ranks = CHOICES.map(|(name, choice)| (name, json!(self.ranks[choice as usize])));
        json!({
            "drawn": NAMES.into_iter().zip(self.drawn).collect::<Value>(),
            "ranks": ranks.into_iter().collect::<Value>(),
            "correlated_reads": self.correlated_reads,
            "link_types": self.link_types,
            "multiget": &self.multiget[..],
            "histories": self.histories,
        })
    }
}
