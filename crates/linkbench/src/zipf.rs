//! Zipf distribution of ranks by Gray's formula (Gray et al.: Quickly generating billion-record synthetic databases,
//! 1994), which is exact for the first two ranks.

/// Terms of a generalized harmonic number that are added one by one.
const TERMS: u64 = 1000;

/// A distribution over ranks from 0, the most likely one.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    items: u64,
    zeta: f64,
    eta: f64,
    /// 1 / (1 - exponent).
    power: f64,
    /// Probability of rank 1 in units of that of rank 0.
    second: f64,
}

impl Zipf {
    /// The distribution of at least three items. `exponent`: between 0 and 1, exclusive.
    pub fn new(items: u64, exponent: f64) -> Self {
        let zeta = harmonic(items, exponent);
        let second = 0.5_f64.powf(exponent);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - exponent)) / (1.0 - (1.0 + second) / zeta);
        Self { items, zeta, eta, power: 1.0 / (1.0 - exponent), second }
    }

    /// The rank at a probability of [0, 1).
    #[inline]
    pub fn rank(&self, probability: f64) -> u64 {
        let at = probability * self.zeta;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + self.second {
            return 1;
        }
        let share = (self.eta * probability - self.eta + 1.0).powf(self.power);
        ((self.items as f64 * share) as u64).min(self.items - 1)
    }
}

/// The sum of k^-exponent for k = 1 to n, by the Euler-Maclaurin formula for the tail.
fn harmonic(n: u64, exponent: f64) -> f64 {
    let first = n.min(TERMS);
    let sum: f64 = (1..=first).map(|k| (k as f64).powf(-exponent)).sum();
    if n == first {
        return sum;
    }
    let antiderivative = |x: f64| x.powf(1.0 - exponent) / (1.0 - exponent);
    let value = |x: f64| x.powf(-exponent);
    let slope = |x: f64| -exponent * x.powf(-exponent - 1.0);
    let (low, high) = (first as f64, n as f64);
    sum + antiderivative(high) - antiderivative(low)
        + (value(high) - value(low)) / 2.0
        + (slope(high) - slope(low)) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmonic_numbers_are_those_of_the_sum() {
        for (n, exponent) in [(1, 0.8), (999, 0.606), (1001, 0.741), (200_000, 0.8)] {
            let sum: f64 = (1..=n).map(|k| (k as f64).powf(-exponent)).sum();
            assert!((harmonic(n, exponent) / sum - 1.0).abs() < 1e-12, "{n} {exponent}");
        }
    }

    #[test]
    fn the_first_ranks_have_their_probabilities_and_the_last_rank_is_in_range() {
        let zipf = Zipf::new(10_000, 0.8);
        let zeta = harmonic(10_000, 0.8);
        for (rank, ends_at) in [(0, 1.0), (1, 1.0 + 0.5_f64.powf(0.8))] {
            assert_eq!(zipf.rank(ends_at / zeta - 1e-9), rank);
            assert_eq!(zipf.rank(ends_at / zeta + 1e-9), rank + 1);
        }
        assert_eq!(zipf.rank(1.0 - 1e-16), 9_999);
    }
}
