//! pgbench's hash functions and pseudorandom permutation, which depend only on their arguments.

use super::Prng;

/// FNV-1a (Fowler, Noll, Vo) of the eight bytes of `value` in little-endian order. The seed is mixed into the
/// offset basis.
pub fn fnv1a(value: i64, seed: i64) -> i64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    value.to_le_bytes().iter().fold(BASIS ^ seed as u64, hash) as i64
}

/// MurmurHash2, 64-bit variant (Appleby), of the eight bytes of `value`.
pub fn murmur2(value: i64, seed: i64) -> i64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const LENGTH_BYTES: u64 = 8;
    let fold = |word: u64| word ^ (word >> 47);
    let word = fold((value as u64).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    let hash = (seed as u64 ^ LENGTH_BYTES.wrapping_mul(FACTOR) ^ word).wrapping_mul(FACTOR);
    fold(fold(hash).wrapping_mul(FACTOR)) as i64
}

/// Number of rounds of [`permute`].
const ROUNDS: u32 = 6;

/// Maps `value` (modulo `size`) by the permutation of 0..`size` that `seed` selects; 0 if `size` is 1.
///
/// Each round permutes the lower and the upper 2^bits positions of the range, and then shifts all.
pub fn permute(value: i64, size: i64, seed: i64) -> i64 {
    if size < 2 {
        return 0;
    }
    let mut prng = Prng::new(seed as u64);
    let size = size as u64;
    let half = Half::of(size);
    let mut place = value as u64 % size;
    for _ in 0..ROUNDS {
        place = half.stir(&mut prng, place);
        place = size - 1 - half.stir(&mut prng, size - 1 - place);
        let offset = prng.up_to(size - 1);
        // The sum of two numbers below 2^63 fits.
        place = (place + offset) % size;
    }
    place as i64
}

/// Positions 0..2^bits, the largest power of two within the range.
struct Half {
    bits: u32,
    mask: u64,
}

impl Half {
    fn of(size: u64) -> Self {
        let bits = size.ilog2();
        Self { bits, mask: (1 << bits) - 1 }
    }

    /// Multiplies by an odd number, flips bits and rotates by one: a bijection of these positions.
    ///
    /// Positions beyond them are unchanged, but the two numbers are still drawn.
    fn stir(&self, prng: &mut Prng, place: u64) -> u64 {
        let factor = (prng.bits() & self.mask) | 1;
        let flips = prng.bits() & self.mask;
        if place > self.mask {
            return place;
        }
        let place = (place.wrapping_mul(factor) ^ flips) & self.mask;
        ((place << 1) & self.mask) | (place >> (self.bits - 1))
    }
}
