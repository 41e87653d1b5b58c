//! pgbench's random numbers, bit for bit.
//!
//! The generator is that of PostgreSQL 15 and newer (`common/pg_prng`): xoroshiro128** (Blackman and Vigna
//! 2018), with 128 bits of state from two steps of SplitMix64. [`distribution`] has the distributions, [`hash`]
//! the functions that do not use a client's stream, and [`streams`] the assignment of generators to clients and
//! threads.

pub mod distribution;
pub mod hash;
pub mod streams;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// State of a generator. Restoring a copy repeats the same numbers, which a retry of a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prng {
    low: u64,
    high: u64,
}

impl Prng {
    /// Creates the state of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let low = split_mix(&mut counter);
        let high = split_mix(&mut counter);
        if low == 0 && high == 0 {
            // An all-zero state would stay zero. PostgreSQL replaces it with the parameters of Knuth's linear
            // congruential generator.
            return Self { low: 0x5851_F42D_4C95_7F2D, high: 0x1405_7B7E_F767_814F };
        }
        Self { low, high }
    }

    /// Creates another generator, seeded from this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let (low, mixed) = (self.low, self.high ^ self.low);
        self.low = low.rotate_left(24) ^ mixed ^ (mixed << 16);
        self.high = mixed.rotate_left(37);
        low.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// Uniform in 0..=`last`, by rejection of as many upper bits as `last` has.
    ///
    /// It takes at most two draws on average. Nothing is drawn if `last` is 0.
    #[inline]
    pub fn up_to(&mut self, last: u64) -> u64 {
        if last == 0 {
            return 0;
        }
        let unused = last.leading_zeros();
        loop {
            let offset = self.bits() >> unused;
            if offset <= last {
                return offset;
            }
        }
    }

    /// Uniform in [0, 1) with 52 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 52) as f64;
        (self.bits() >> 12) as f64 * STEP
    }

    /// Standard normal, from the sine half of the Box-Muller transform.
    pub fn normal(&mut self) -> f64 {
        let radius = 1.0 - self.unit();
        let turn = 1.0 - self.unit();
        (-2.0 * radius.ln()).sqrt() * (2.0 * std::f64::consts::PI * turn).sin()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one step of the counter, finalized.
fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = *counter;
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
