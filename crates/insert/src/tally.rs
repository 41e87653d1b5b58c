//! What was drawn, counted: the material for tests of the distributions.

use serde_json::{Value, json};

/// Bins of equal width over the domain of a start, or of a key.
pub const BINS: u64 = 50;

/// Counters of drawn queries.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Starts of range queries by index and bin.
    pub starts: [Bins; 3],
    /// Keys of point queries, by bin of the keys from the lowest to the largest.
    pub keys: Bins,
}

/// Counts by bin.
#[derive(Clone, Debug)]
pub struct Bins([u64; BINS as usize]);

impl Default for Bins {
    fn default() -> Self {
        Self([0; BINS as usize])
    }
}

impl Bins {
    /// Counts a number of 0..`range`. A bin may end within a number: `part`, drawn from 0..[`BINS`], is a place in it,
    /// so that all bins have the same share. It may be 0 if the range is a multiple of the number of bins.
    #[inline]
    pub fn count(&mut self, number: u64, range: u64, part: u64) {
        let place = u128::from(number) * u128::from(BINS) + u128::from(part);
        self.0[(place / u128::from(range)) as usize] += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(to, from)| *to += from);
    }
}

impl driver::Tally for Tally {
    fn merge(&mut self, other: &Self) {
        self.starts.iter_mut().zip(&other.starts).for_each(|(to, from)| to.merge(from));
        self.keys.merge(&other.keys);
    }

    fn value(&self) -> Value {
        let [market, register, pdc] = &self.starts;
        json!({
            "starts": {"market": &market.0[..], "register": &register.0[..], "pdc": &pdc.0[..]},
            "keys": &self.keys.0[..],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bins_have_the_same_share_of_any_number_of_keys() {
        for keys in [7, 50, 1001] {
            let mut bins = Bins::default();
            (0..keys).for_each(|key| (0..BINS).for_each(|part| bins.count(key, keys, part)));
            assert_eq!(bins.0, [keys; BINS as usize]);
        }
    }
}
