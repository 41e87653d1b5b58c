//! pgbench's random numbers, bit for bit.
//!
//! The generator is that of PostgreSQL 15 and newer (`common/pg_prng`): xoroshiro128** (Blackman and Vigna
//! 2018), with 128 bits of state from two steps of SplitMix64. [`hash`] has the functions that do not use a
//! client's stream.

pub(crate) mod hash;
#[cfg(test)]
mod tests;

/// State of a generator. Restoring a copy repeats the same numbers, which a retry of a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prng {
    low: u64,
    high: u64,
}

impl Prng {
    /// Creates the state of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // An all-zero state would stay zero, but SplitMix64 is a bijection, so that two steps are never both 0.
        let mut counter = seed;
        Self { low: split_mix(&mut counter), high: split_mix(&mut counter) }
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

/// Minimum parameter of [`gaussian`].
pub const GAUSSIAN_MIN: f64 = 2.0;
/// Minimum parameter of [`zipfian`]: values closer to 1 cause too many rejections.
pub const ZIPFIAN_MIN: f64 = 1.001;
/// Maximum parameter of [`zipfian`].
pub const ZIPFIAN_MAX: f64 = 1000.0;

/// Uniform distribution.
#[inline]
pub fn uniform(prng: &mut Prng, min: i64, max: i64) -> i64 {
    min.wrapping_add(prng.up_to(max.wrapping_sub(min) as u64) as i64)
}

/// Truncated exponential distribution: its density falls to `exp(-parameter)` at `max`. `parameter` is greater
/// than 0.
pub fn exponential(prng: &mut Prng, min: i64, max: i64, parameter: f64) -> i64 {
    let cut = (-parameter).exp();
    let uniform = 1.0 - prng.unit();
    let fraction = -(cut + (1.0 - cut) * uniform).ln() / parameter;
    part_of(min, max, fraction)
}

/// Truncated normal distribution around the middle, with `parameter` standard deviations on each side.
/// `parameter` is at least [`GAUSSIAN_MIN`].
pub fn gaussian(prng: &mut Prng, min: i64, max: i64, parameter: f64) -> i64 {
    let deviations = loop {
        let deviations = prng.normal();
        if !(deviations < -parameter || deviations >= parameter) {
            break deviations;
        }
    };
    part_of(min, max, (deviations + parameter) / (parameter * 2.0))
}

/// Zipfian distribution: the probability of the k-th integer is proportional to `k^-parameter`. `parameter` is
/// in [`ZIPFIAN_MIN`]`..=`[`ZIPFIAN_MAX`].
///
/// Uses rejection (Devroye: Non-uniform random variate generation, 1986, pages 550 and 551), without a table.
pub fn zipfian(prng: &mut Prng, min: i64, max: i64, parameter: f64) -> i64 {
    let count = max.wrapping_sub(min).wrapping_add(1);
    min.wrapping_add(zipfian_rank(prng, count, parameter) - 1)
}

#[allow(clippy::many_single_char_names)] // Names as in Devroye.
fn zipfian_rank(prng: &mut Prng, count: i64, s: f64) -> i64 {
    if count <= 1 {
        return 1;
    }
    // With a visible constant 2, the compiler would call exp2, which may round differently.
    let b = std::hint::black_box(2.0_f64).powf(s - 1.0);
    loop {
        let u = prng.unit();
        let v = prng.unit();
        let x = u.powf(-1.0 / (s - 1.0)).floor();
        let t = (1.0 + 1.0 / x).powf(s - 1.0);
        if v * x * (t - 1.0) / (b - 1.0) <= t / b && x <= count as f64 {
            return truncate(x);
        }
    }
}

/// Intervals of a Poisson process with this mean, rounded to integers, for `--rate`.
pub fn poisson_wait(prng: &mut Prng, mean: f64) -> i64 {
    let uniform = 1.0 - prng.unit();
    truncate(-uniform.ln() * mean + 0.5)
}

/// Maps a fraction in [0, 1) to an integer in the range.
fn part_of(min: i64, max: i64, fraction: f64) -> i64 {
    let count = max.wrapping_sub(min).wrapping_add(1);
    min.wrapping_add(truncate(count as f64 * fraction))
}

/// Truncates toward zero. NaN and out-of-range values become the minimum integer, as in a C program on x86.
fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// The three generators of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStreams {
    /// Chooses scripts by weight, for all clients of the thread.
    pub choose: Prng,
    /// Draws the intervals of `--rate`.
    pub throttle: Prng,
    /// Selects the transactions to log with `--sampling-rate`.
    pub sample: Prng,
}

/// All generators of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// One per client.
    pub clients: Vec<Prng>,
    /// Value of `:default_seed`, if it was drawn.
    pub default_seed: Option<i64>,
    /// One per thread.
    pub threads: Vec<ThreadStreams>,
}

impl Streams {
    /// Creates the generators of a run with `seed`. `default_seed_given`: the user defines `:default_seed`.
    #[must_use]
    pub fn new(seed: u64, clients: usize, threads: usize, default_seed_given: bool) -> Self {
        let mut base = Prng::new(seed);
        let clients = (0..clients).map(|_| base.fork()).collect();
        let default_seed = (!default_seed_given).then(|| base.bits() as i64);
        let threads = (0..threads)
            .map(|_| ThreadStreams { choose: base.fork(), throttle: base.fork(), sample: base.fork() })
            .collect();
        Self { clients, default_seed, threads }
    }
}

/// Number of clients per thread, in order: client 0 is the first of thread 0.
///
/// The last threads have fewer clients. There are at most as many threads as clients.
#[must_use]
pub fn clients_per_thread(clients: usize, threads: usize) -> Vec<usize> {
    let threads = threads.min(clients);
    (0..threads).map(|thread| clients / threads + usize::from(thread < clients % threads)).collect()
}
