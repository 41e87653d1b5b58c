//! Distributions of pgbench's random functions: integers in `min..=max`.
//!
//! Callers check the arguments: `min <= max`, `max - min + 1` fits in an i64, and the parameter is in its
//! range. The order of floating-point operations is pgbench's, because another order rounds differently. Both
//! programs use `exp`, `log`, `pow` and `sin` of the C library.

use super::Prng;

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
