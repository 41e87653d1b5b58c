//! Random numbers as pgbench draws them, bit for bit.
//!
//! The generator is that of PostgreSQL 15 and newer (its `common/pg_prng`): xoroshiro128** (Blackman and Vigna 2018)
//! whose 128 bits come from two steps of SplitMix64. [`distribution`] shapes its numbers, [`hash`] holds the functions
//! that draw nothing of a client's stream, and [`streams`] says which client and thread has which state.

pub mod distribution;
pub mod hash;
pub mod streams;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// A generator's state. Copying it and putting the copy back repeats the same numbers: that is how a transaction is
/// retried with the values of its first try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prng {
    low: u64,
    high: u64,
}

impl Prng {
    /// The state that belongs to a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let low = split_mix(&mut counter);
        let high = split_mix(&mut counter);
        if low == 0 && high == 0 {
            // Zeros would stay zeros. PostgreSQL puts the parameters of Knuth's congruential generator there.
            return Self { low: 0x5851_F42D_4C95_7F2D, high: 0x1405_7B7E_F767_814F };
        }
        Self { low, high }
    }

    /// Another generator, seeded with a number of this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let (low, mixed) = (self.low, self.high ^ self.low);
        self.low = low.rotate_left(24) ^ mixed ^ (mixed << 16);
        self.high = mixed.rotate_left(37);
        low.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// Uniform in 0..=`last`: as many of the upper bits as `last` has, again and again until they do not exceed it,
    /// which takes two draws on average at most. Nothing is drawn where there is nothing to choose.
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

    /// Uniform in [0, 1), of 52 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 52) as f64;
        (self.bits() >> 12) as f64 * STEP
    }

    /// Normal with mean 0 and deviation 1, by the sine half of Box and Muller's transform.
    pub fn normal(&mut self) -> f64 {
        let radius = 1.0 - self.unit();
        let turn = 1.0 - self.unit();
        (-2.0 * radius.ln()).sqrt() * (2.0 * std::f64::consts::PI * turn).sin()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one step of the counter, finalised.
fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = *counter;
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
