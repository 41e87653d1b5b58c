//! Random numbers as sysbench 1.0 draws them: the same seed gives the same statements.
//!
//! The generator is xoroshiro128+ (Blackman, Vigna: Scrambled linear pseudorandom number generators, 2016 parameters). How its
//! state is filled and how values are made of it were found by observation: `tests/oracle/test_oracle_sysbench.py`.

use std::cell::RefCell;
use std::rc::Rc;

mod distribution;
mod seed;
mod zipfian;

#[cfg(test)]
mod tests;

pub use distribution::{Distribution, DistributionError, RandomOptions};
pub use seed::seeds;

use zipfian::Zipfian;

/// The state of one thread's generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xoroshiro([u64; 2]);

impl Xoroshiro {
    /// A generator in this state, of which one word at least is not zero.
    #[must_use]
    pub fn new(state: [u64; 2]) -> Self {
        Self(if state == [0, 0] { [1, 0] } else { state })
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [first, second] = self.0;
        let mixed = first ^ second;
        self.0 = [first.rotate_left(55) ^ mixed ^ (mixed << 14), mixed.rotate_left(36)];
        first.wrapping_add(second)
    }

    /// Uniform in [0, 1), of 52 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 12) as f64 / (1_u64 << 52) as f64
    }

    /// Uniform in `from..=to`.
    #[inline]
    pub fn uniform(&mut self, from: u32, to: u32) -> u32 {
        let unit = self.unit();
        offset(from, unit * f64::from(width(from, to)))
    }
}

/// How many values are in `from..=to`, with sysbench's 32 bits: 0 of all of them.
#[inline]
fn width(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from).wrapping_add(1)
}

#[inline]
fn offset(from: u32, distance: f64) -> u32 {
    from.wrapping_add(distance as u32)
}

/// The random numbers of one client.
#[derive(Clone, Debug)]
pub struct Random {
    /// Its generator.
    pub bits: Xoroshiro,
    options: RandomOptions,
    zipfian: Option<Zipfian>,
    /// The next place in the permutation that [`Random::unique`] walks through.
    unique: u32,
}

impl Random {
    /// The random numbers that a generator gives. The start of [`Random::unique`] is made of its state.
    #[must_use]
    pub fn new(bits: Xoroshiro, options: RandomOptions) -> Self {
        let unique = bits.clone().next_u64() as u32;
        Self { bits, options, zipfian: None, unique }
    }

    /// The same, to be shared by the functions of a script.
    #[must_use]
    pub fn shared(self) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(self))
    }

    /// A value of the distribution that `--rand-type` names.
    pub fn default(&mut self, from: u32, to: u32) -> u32 {
        self.draw(self.options.distribution, from, to)
    }

    /// A value of a distribution.
    pub fn draw(&mut self, distribution: Distribution, from: u32, to: u32) -> u32 {
        match distribution {
            Distribution::Uniform => self.bits.uniform(from, to),
            Distribution::Gaussian => self.options.gaussian(&mut self.bits, from, to),
            Distribution::Special => self.options.special(&mut self.bits, from, to),
            Distribution::Pareto => self.options.pareto(&mut self.bits, from, to),
            Distribution::Zipfian => {
                let (count, exponent) =
                    (to.wrapping_sub(from).wrapping_add(1).max(1), self.options.zipfian_exponent);
                let zipfian = match &self.zipfian {
                    Some(zipfian) if zipfian.count() == count => zipfian,
                    _ => self.zipfian.insert(Zipfian::new(count, exponent)),
                };
                from.wrapping_add(zipfian.rank(&mut self.bits) - 1)
            }
        }
    }

    /// The next of 2^32 numbers in an order that looks random and in which none comes twice.
    pub fn unique(&mut self) -> u32 {
        self.unique = self.unique.wrapping_add(1);
        permute(permute(self.unique) ^ 0x5bf0_3635)
    }

    /// `pattern` with a digit for each `#` and a small letter for each `@`.
    pub fn fill(&mut self, pattern: &[u8], out: &mut Vec<u8>) {
        out.extend(pattern.iter().map(|&byte| match byte {
            b'#' => b'0' + self.bits.uniform(0, 9) as u8,
            b'@' => b'a' + self.bits.uniform(0, 25) as u8,
            other => other,
        }));
    }

    /// As many small letters as are drawn of `shortest..=longest`.
    pub fn letters(&mut self, shortest: u32, longest: u32, out: &mut Vec<u8>) {
        let length = self.bits.uniform(shortest, longest);
        out.extend((0..length).map(|_| b'a' + self.bits.uniform(0, 25) as u8));
    }
}

/// A permutation of the 32-bit integers by quadratic residues of the largest 32-bit prime that is 3 modulo 4 (Preshing: How to generate
/// a sequence of unique random integers, 2012).
fn permute(place: u32) -> u32 {
    const PRIME: u64 = 4_294_967_291;
    let x = u64::from(place);
    if x >= PRIME {
        return place;
    }
    let residue = x * x % PRIME;
    (if x <= PRIME / 2 { residue } else { PRIME - residue }) as u32
}
