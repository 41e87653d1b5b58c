//! Random numbers as sysbench 1.0 draws them: the same seed gives the same statements.
//!
//! The generator is xoroshiro128+ (Blackman, Vigna: Scrambled linear pseudorandom number generators, 2016 parameters). How its
//! state is filled and how values are made of it were found by observation: `tests/oracle/test_oracle_sysbench.py`.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

/// The state of one thread's generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xoroshiro([u64; 2]);

impl Xoroshiro {
    /// A generator in this state, of which one word at least is not zero.
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
    /// The random numbers that a generator gives. `unique`: where [`Random::unique`] begins.
    pub fn new(bits: Xoroshiro, options: RandomOptions, unique: u32) -> Self {
        Self { bits, options, zipfian: None, unique }
    }

    /// The same, to be shared by the functions of a script.
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
                let (count, exponent) = (width(from, to).max(1), self.options.zipfian_exponent);
                let zipfian = match &self.zipfian {
                    Some(zipfian) if zipfian.count == count => zipfian,
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

/// A distribution of integers in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All values alike.
    Uniform,
    /// The mean of some uniform values.
    Gaussian,
    /// Some values in the middle more often than the others.
    Special,
    /// A power of a uniform value.
    Pareto,
    /// By Zipf's law; sysbench has it since 1.1.
    Zipfian,
}

/// A value of an option that is not allowed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// No distribution has this name.
    #[error("Invalid random numbers distribution: {0}.")]
    Unknown(String),
    /// A number is outside its range.
    #[error("Invalid value for --{option}: {value}.")]
    Range {
        /// The option.
        option: &'static str,
        /// Its value.
        value: f64,
    },
}

/// The options of random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomOptions {
    /// `--rand-type`
    pub distribution: Distribution,
    /// `--rand-spec-iter`: uniform values of which the mean is taken.
    pub iterations: u32,
    /// `--rand-spec-pct`: special values, in percent of all values.
    pub special_percent: u32,
    /// `--rand-spec-res`: how often a special value is drawn, in percent.
    pub special_share_percent: u32,
    /// `--rand-pareto-h`
    pub pareto_h: f64,
    /// `--rand-zipfian-exp`
    pub zipfian_exponent: f64,
}

impl Default for RandomOptions {
    fn default() -> Self {
        Self {
            distribution: Distribution::Special,
            iterations: 12,
            special_percent: 1,
            special_share_percent: 75,
            pareto_h: 0.2,
            zipfian_exponent: 0.8,
        }
    }
}

impl Distribution {
    /// The distribution of this name.
    pub fn find(name: &str) -> Result<Self, DistributionError> {
        match name {
            "uniform" => Ok(Self::Uniform),
            "gaussian" => Ok(Self::Gaussian),
            "special" => Ok(Self::Special),
            "pareto" => Ok(Self::Pareto),
            "zipfian" => Ok(Self::Zipfian),
            other => Err(DistributionError::Unknown(other.to_owned())),
        }
    }
}

impl RandomOptions {
    /// The options, if each is in its range.
    pub fn checked(self) -> Result<Self, DistributionError> {
        let ranges = [
            ("rand-spec-iter", f64::from(self.iterations), self.iterations > 0),
            ("rand-spec-pct", f64::from(self.special_percent), self.special_percent <= 100),
            ("rand-spec-res", f64::from(self.special_share_percent), self.special_share_percent <= 100),
            ("rand-pareto-h", self.pareto_h, self.pareto_h > 0.0 && self.pareto_h < 1.0),
            (
                "rand-zipfian-exp",
                self.zipfian_exponent,
                self.zipfian_exponent >= 0.0 && self.zipfian_exponent.is_finite(),
            ),
        ];
        match ranges.into_iter().find(|(_, _, is_in)| !is_in) {
            Some((option, value, _)) => Err(DistributionError::Range { option, value }),
            None => Ok(self),
        }
    }

    fn gaussian(&self, bits: &mut Xoroshiro, from: u32, to: u32) -> u32 {
        let width = f64::from(width(from, to));
        let sum: f64 = (0..self.iterations).map(|_| bits.unit() * width).sum();
        offset(from, sum / f64::from(self.iterations))
    }

    /// Special values lie around the middle, uniformly; the others are the mean of uniform values. One number decides which it is, and
    /// is the place among the special values, too.
    fn special(&self, bits: &mut Xoroshiro, from: u32, to: u32) -> u32 {
        let distance = f64::from(to.wrapping_sub(from));
        let first = bits.unit();
        if from == to {
            return from;
        }
        if first >= 1.0 - f64::from(self.special_share_percent) / 100.0 {
            let percent = f64::from(self.special_percent);
            let lowest = f64::from(from) + distance * (0.5 - percent / 200.0);
            return (lowest + first * (1.0 + distance * percent / 100.0)) as u32;
        }
        let sum: f64 = (0..self.iterations).map(|_| bits.unit()).sum();
        (f64::from(from) + distance * (sum / f64::from(self.iterations))) as u32
    }

    fn pareto(&self, bits: &mut Xoroshiro, from: u32, to: u32) -> u32 {
        let power = self.pareto_h.ln() / (1.0 - self.pareto_h).ln();
        offset(from, f64::from(width(from, to)) * bits.unit().powf(power))
    }
}

/// Length of the recurrence, and distance of the older word that is added.
const LENGTH: usize = 31;
const DISTANCE: usize = 3;
/// Numbers that are thrown away first.
const DISCARDED: usize = 10 * LENGTH;

/// The generators of threads 0, 1, …: each takes four numbers of the additive generator of the C library (`random`, in its default
/// form: x^31 + x^3 + 1), which `seed` starts.
pub fn seeds(seed: u32) -> impl Iterator<Item = Xoroshiro> {
    let mut additive = Additive::new(seed);
    std::iter::repeat_with(move || {
        let mut word = || u64::from(additive.next()) << 32 | u64::from(additive.next());
        Xoroshiro::new([word(), word()])
    })
}

/// The additive generator.
struct Additive {
    words: [u32; LENGTH],
    place: usize,
}

impl Additive {
    fn new(seed: u32) -> Self {
        // The minimal standard generator of Park and Miller, on signed words.
        let mut word = seed.max(1) as i32;
        let words = std::array::from_fn(|place| {
            if place > 0 {
                let next = i64::from(word) * 16807 % 2_147_483_647;
                word = (if next < 0 { next + 2_147_483_647 } else { next }) as i32;
            }
            word as u32
        });
        let mut additive = Self { words, place: 0 };
        for _ in 0..DISCARDED {
            additive.next();
        }
        additive
    }

    fn next(&mut self) -> u32 {
        let sum = self.words[(self.place + DISTANCE) % LENGTH].wrapping_add(self.words[self.place]);
        self.words[(self.place + DISTANCE) % LENGTH] = sum;
        self.place = (self.place + 1) % LENGTH;
        sum >> 1
    }
}

/// Below this, a quotient is taken from its series: it would lose its digits.
const SMALL: f64 = 1e-8;

/// Ranks 1 to `count`, of probabilities proportional to rank^-exponent.
#[derive(Clone, Debug)]
struct Zipfian {
    count: u32,
    exponent: f64,
    /// The integral of the hat up to 1.5, without what is certain of rank 1.
    first: f64,
    /// The integral of the hat up to the last rank's end.
    last: f64,
    /// A value this close below its rank is accepted without computing a logarithm.
    certain: f64,
}

impl Zipfian {
    /// The law for this many ranks, one at least.
    fn new(count: u32, exponent: f64) -> Self {
        let mut zipfian = Self { count, exponent, first: 0.0, last: 0.0, certain: 0.0 };
        zipfian.first = zipfian.integral(1.5) - 1.0;
        zipfian.last = zipfian.integral(f64::from(count) + 0.5);
        zipfian.certain = 2.0 - zipfian.inverse(zipfian.integral(2.5) - zipfian.density(2.0));
        zipfian
    }

    /// A rank.
    fn rank(&self, bits: &mut Xoroshiro) -> u32 {
        loop {
            let area = self.last + bits.unit() * (self.first - self.last);
            let x = self.inverse(area);
            let rank = ((x + 0.5) as u32).clamp(1, self.count);
            let value = f64::from(rank);
            if value - x <= self.certain || area >= self.integral(value + 0.5) - self.density(value) {
                return rank;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_quotient((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (ln1p_quotient(t) * area).exp()
    }
}

/// (e^x - 1) / x
fn expm1_quotient(x: f64) -> f64 {
    if x.abs() > SMALL { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0)) }
}

/// ln(1 + x) / x
fn ln1p_quotient(x: f64) -> f64 {
    if x.abs() > SMALL { x.ln_1p() / x } else { 1.0 - x * (0.5 - x * (1.0 / 3.0 - x / 4.0)) }
}
