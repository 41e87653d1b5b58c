//! Random numbers of TPC-C (clauses 2.1.6, 4.3.2): streams, uniform and non-uniform integers, text.
//!
//! A [`Stream`] is a pure function of a seed, a [`Purpose`] and up to a few ids, so a row or a client
//! needs no state of its neighbours and the order of work cannot change a byte. The words are folded
//! by `splitmix64`'s finaliser, a bijection of 64 bits that changes half of the bits of its result for one
//! changed bit of its argument: consecutive ids, which is all we have, then seed unrelated generators.
//! The generator is xoroshiro128++: 16 bytes of state, so one can be made for every row.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoroshiro128PlusPlus;

/// What a stream is for. The discriminants are part of the dataset's format: never renumber them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// The constants C of NURand.
    LoadConstants = 1,
    /// A row of `item`.
    Item,
    /// A row of `warehouse`.
    Warehouse,
    /// A row of `district`.
    District,
    /// A row of `stock`.
    Stock,
    /// A row of `customer`.
    Customer,
    /// A row of `history`.
    History,
    /// A row of `orders` and the number of its lines.
    Order,
    /// The lines of one order.
    OrderLines,
    /// The permutation of a district's customers over its orders.
    OrderCustomers,
    /// The constants C of a run.
    RunConstants,
    /// The shuffled deck or the weighted draws of a client.
    Mix,
    /// The inputs of a client's transactions.
    Inputs,
    /// The think times of a client.
    Think,
    /// The home of a client that draws it.
    Home,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(GOLDEN_GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An independent source of random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    generator: Xoroshiro128PlusPlus,
}

impl Stream {
    /// The stream of `purpose` and `ids` under `seed`. Different arguments give unrelated streams.
    pub fn new(seed: u64, purpose: Purpose, ids: &[u64]) -> Self {
        let start = mix(mix(seed) ^ purpose as u64);
        let state = ids.iter().fold(start, |state, id| mix(state ^ id.wrapping_mul(GOLDEN_GAMMA)));
        let (low, high) = (mix(state), mix(state ^ GOLDEN_GAMMA));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        Self { generator: Xoroshiro128PlusPlus::from_seed(bytes) }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// An integer of 0..`n`, each equally likely (Lemire 2019: one multiplication, and a division only
    /// where a draw may have to be rejected). `n` 0 counts as 1.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        let n = u64::from(n.max(1));
        loop {
            let product = (self.bits() >> 32) * n;
            let remainder = product & 0xffff_ffff;
            if remainder >= n || remainder >= (1 << 32) % n {
                return (product >> 32) as u32;
            }
        }
    }

    /// An integer of `low..=high`, each equally likely.
    ///
    /// # Panics
    ///
    /// If `low` exceeds `high`.
    #[inline]
    pub fn uniform(&mut self, low: u32, high: u32) -> u32 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True once in `n`, on average.
    #[inline]
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// True `percent` times in a hundred, on average.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// A real number of the open interval (0, 1).
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// `NURand(A, low, high)` of clause 2.1.6 with the constant `c`.
    #[inline]
    pub fn nurand(&mut self, a: u32, c: u32, low: u32, high: u32) -> u32 {
        let mixed = self.uniform(0, a) | self.uniform(low, high);
        (mixed + c) % (high - low + 1) + low
    }

    /// Puts the numbers 1..=`order.len()` into `order`, every permutation equally likely (Fisher-Yates).
    pub fn permutation(&mut self, order: &mut [u32]) {
        for (place, value) in order.iter_mut().enumerate() {
            *value = place as u32 + 1;
        }
        self.shuffle(order);
    }

    /// Shuffles `cards`, every order equally likely.
    pub fn shuffle<T>(&mut self, cards: &mut [T]) {
        for place in (1..cards.len()).rev() {
            cards.swap(place, self.below(place as u32 + 1) as usize);
        }
    }

    /// Fills `text` with characters of a 64-symbol alphabet: the letters, the digits, `.` and `/`.
    ///
    /// Clause 4.3.2.2 wants at least the letters and digits. 64 symbols take six random bits each without bias
    /// or division, and eight symbols are made at once in a word: text is nine tenths of what the loader makes.
    #[inline]
    pub fn text(&mut self, text: &mut [u8]) {
        let mut words = text.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&symbols_of(self.bits()));
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            rest.copy_from_slice(&symbols_of(self.bits())[..rest.len()]);
        }
    }

    /// Fills `text` with decimal digits.
    pub fn digits(&mut self, text: &mut [u8]) {
        for group in text.chunks_mut(4) {
            let mut number = self.below(10_000);
            for digit in group {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
    }
}

/// Eight symbols from six bits of each byte: `.` and `/`, then `0..9`, `A..Z`, `a..z`.
///
/// These are three consecutive ranges of ASCII, so a symbol is its index plus `.`, plus 7 from `A` on, plus 6 more
/// from `a` on; no sum carries into the next byte.
#[inline]
fn symbols_of(bits: u64) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let index = bits & (63 * ONES);
    let upper = ((index + (128 - 12) * ONES) >> 7) & ONES;
    let lower = ((index + (128 - 38) * ONES) >> 7) & ONES;
    (index + 46 * ONES + upper * 7 + lower * 6).to_le_bytes()
}

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The longest last name: three times five letters.
pub const LAST_NAME_BYTES_MAX: usize = 15;

/// Writes the last name of `number` (0..=999) into `name` and returns its length (clause 4.3.2.3).
pub fn last_name(number: u32, name: &mut [u8; LAST_NAME_BYTES_MAX]) -> usize {
    let mut length = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        name[length..length + syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
    length
}

/// The constants C of NURand, the same for every client of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Of customers' last names, 0..=255.
    pub c_last: u32,
    /// Of customers' numbers, 0..=1023.
    pub c_id: u32,
    /// Of items' numbers, 0..=8191.
    pub item: u32,
}

/// NURand's A for last names, customers' numbers and items' numbers.
pub const A_C_LAST: u32 = 255;
/// See [`A_C_LAST`].
pub const A_C_ID: u32 = 1023;
/// See [`A_C_LAST`].
pub const A_ITEM: u32 = 8191;

/// The constant of last names in load and run under the deviation `constant-c`.
pub const C_LAST_CONSTANT: u32 = 123;

/// The constant of the last names in a population made with `seed`.
pub fn c_load(seed: u64) -> u32 {
    Stream::new(seed, Purpose::LoadConstants, &[]).uniform(0, A_C_LAST)
}

/// The constants of a run with `seed` on a population whose last names were made with `c_load`.
pub fn run_constants(seed: u64, c_load: u32) -> Constants {
    let mut stream = Stream::new(seed, Purpose::RunConstants, &[]);
    let c_last = loop {
        let candidate = stream.uniform(0, A_C_LAST);
        if may_follow(c_load, candidate) {
            break candidate;
        }
    };
    Constants { c_last, c_id: stream.uniform(0, A_C_ID), item: stream.uniform(0, A_ITEM) }
}

/// Clause 2.1.6.1. Every `c_load` of 0..=255 has such a constant: one of c ± 65 is always in the range.
fn may_follow(c_load: u32, c_run: u32) -> bool {
    let distance = c_load.abs_diff(c_run);
    (65..=119).contains(&distance) && distance != 96 && distance != 112
}

#[cfg(test)]
#[path = "random_tests.rs"]
mod tests;
