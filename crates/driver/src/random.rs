//! Random numbers of the driver, and derived seeds.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Derives a seed for one of many purposes or clients from the run's seed. Adjacent numbers give unrelated
/// seeds.
#[must_use]
pub fn derive_seed(seed: u64, number: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014),
    // applied once for each of the two, so that (seed, number) and (number, seed) differ.
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// Creates the stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform in 0..below, without modulo bias (Lemire: Fast random integer generation in an interval, 2019).
    #[inline]
    pub fn below(&mut self, below: u64) -> u64 {
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(below);
            let low = product as u64;
            if low >= below || low >= below.wrapping_neg() % below {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform in (0, 1].
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_limit_is_drawn_and_none_above() {
        let mut stream = Stream::new(7);
        let mut seen = [0_u32; 10];
        (0..10_000).for_each(|_| seen[stream.below(10) as usize] += 1);
        // Each is binomial with mean 1000 and standard deviation 30.
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
    }

    #[test]
    fn exponential_numbers_have_mean_one() {
        let mut stream = Stream::new(7);
        let mean = (0..100_000).map(|_| stream.exponential()).sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn adjacent_numbers_have_different_seeds() {
        let mut seeds: Vec<u64> = (0..100).flat_map(|s| (0..100).map(move |n| derive_seed(s, n))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 10_000);
    }
}
