//! Out-degrees: the number of links of a node by its rank.
//!
//! The tables in `degrees` are points of the distributions that LinkBench's files have: a number of links, and the
//! share of nodes with more. Every number up to 40 has a line; above, 15 lines per power of ten. Between two lines,
//! the logarithm of the share is linear in the logarithm of the number.

use std::sync::LazyLock;

use super::specification::Edition;

const FACEBOOK: &str = include_str!("degrees/2011.txt");
const FORK: &str = include_str!("degrees/fork.txt");

static TABLES: LazyLock<[Degrees; 2]> = LazyLock::new(|| [FACEBOOK, FORK].map(Degrees::read));

/// The text of a table, for the format of the data.
pub const TEXTS: [&str; 2] = [FACEBOOK, FORK];

/// A distribution of the number of links.
#[derive(Debug)]
pub struct Degrees {
    links: Vec<u64>,
    /// Share of nodes with more links; decreasing to 0.
    more: Vec<f64>,
}

impl Degrees {
    /// The distribution of an edition.
    pub fn of(edition: Edition) -> &'static Self {
        &TABLES[edition as usize]
    }

    fn read(text: &str) -> Self {
        let line = |line: &str| -> Option<(u64, f64)> {
            let (links, more) = line.split_once(' ')?;
            Some((links.parse().ok()?, more.parse().ok()?))
        };
        let (links, more) = text.lines().filter_map(line).unzip();
        Self { links, more }
    }

    /// The lowest number of links such that at most this share of the nodes has more.
    #[inline]
    pub fn at(&self, share: f64) -> u64 {
        let index = self.more.partition_point(|&more| more > share).min(self.links.len() - 1);
        let Some(before) = index.checked_sub(1) else { return self.links[0] };
        let (low, high) = (self.links[before], self.links[index]);
        if high == low + 1 || self.more[index] == 0.0 {
            return high;
        }
        let along = (self.more[before] / share).ln() / (self.more[before] / self.more[index]).ln();
        let between = (low as f64).ln() + (high as f64 / low as f64).ln() * along;
        // Rounding must not raise a number that is exact.
        ((between.exp() - 1e-9).ceil() as u64).clamp(low + 1, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_whole_and_the_numbers_of_links_decrease_with_the_share() {
        for (edition, first, last) in [(Edition::Facebook, 0, 961_963), (Edition::Fork, 1, 4_181_357)] {
            let degrees = Degrees::of(edition);
            assert_eq!((degrees.at(1.0), degrees.at(0.0)), (first, last));
            assert!(degrees.links.is_sorted() && degrees.more.iter().rev().is_sorted());
            assert!(degrees.links.len() > 90 && degrees.more.last() == Some(&0.0));
            let found: Vec<_> = (0..=1000).map(|i| degrees.at(f64::from(i) / 1000.0)).collect();
            assert!(found.iter().rev().is_sorted());
        }
    }

    #[test]
    fn the_means_are_those_of_the_files() {
        // Of the files: the sums of number times share over all of their lines.
        for (edition, mean) in [(Edition::Facebook, 4.0973), (Edition::Fork, 3.8526)] {
            // Steps of the logarithm of the share, so that the rare nodes with most links are as exact as others.
            const STEPS: i32 = 200_000;
            let share = |step: i32| 10_f64.powf(-10.0 * f64::from(step) / f64::from(STEPS));
            let degrees = Degrees::of(edition);
            let between = |step| degrees.at(share(step + 1).midpoint(share(step))) as f64;
            let found: f64 = (0..STEPS).map(|step| between(step) * (share(step) - share(step + 1))).sum();
            assert!((found / mean - 1.0).abs() < 0.005, "{edition:?}: {found}");
        }
    }
}
