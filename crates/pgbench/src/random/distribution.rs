//! The distributions of pgbench's random functions: integers of `min..=max`.
//!
//! The callers have checked the arguments: `min <= max`, `max - min + 1` fits in an i64, the parameter is in its range.
//! The floating-point steps are in pgbench's order, since a different order rounds differently; `exp`, `log`, `pow` and
//! `sin` are the C library's in both programs.

use super::Prng;

/// The smallest parameter of [`gaussian`].
pub const GAUSSIAN_MIN: f64 = 2.0;
/// The smallest parameter of [`zipfian`]: nearer to 1 its rejections become too many.
pub const ZIPFIAN_MIN: f64 = 1.001;
/// The largest parameter of [`zipfian`].
pub const ZIPFIAN_MAX: f64 = 1000.0;

/// Every integer equally likely.
#[inline]
pub fn uniform(prng: &mut Prng, min: i64, max: i64) -> i64 {
    min.wrapping_add(prng.up_to(max.wrapping_sub(min) as u64) as i64)
}

/// Exponential, cut off where its density has fallen to `exp(-parameter)`; `parameter` is greater than 0.
pub fn exponential(prng: &mut Prng, min: i64, max: i64, parameter: f64) -> i64 {
    let cut = (-parameter).exp();
    let uniform = 1.0 - prng.unit();
    let fraction = -(cut + (1.0 - cut) * uniform).ln() / parameter;
    part_of(min, max, fraction)
}

/// Normal around the middle, cut off at `parameter` deviations on both sides; `parameter` is at least [`GAUSSIAN_MIN`].
pub fn gaussian(prng: &mut Prng, min: i64, max: i64, parameter: f64) -> i64 {
    let deviations = loop {
        let deviations = prng.normal();
        if !(deviations < -parameter || deviations >= parameter) {
            break deviations;
        }
    };
    part_of(min, max, (deviations + parameter) / (parameter * 2.0))
}

/// Zipfian: the k-th integer is drawn in proportion to `k^-parameter`; `parameter` is of [`ZIPFIAN_MIN`]`..=`[`ZIPFIAN_MAX`].
///
/// By rejection (Devroye: Non-uniform random variate generation, 1986, pages 550 and 551), so it keeps no table.
pub fn zipfian(prng: &mut Prng, min: i64, max: i64, parameter: f64) -> i64 {
    let count = max.wrapping_sub(min).wrapping_add(1);
    min.wrapping_add(zipfian_rank(prng, count, parameter) - 1)
}

#[allow(clippy::many_single_char_names)] // Devroye's names.
fn zipfian_rank(prng: &mut Prng, count: i64, s: f64) -> i64 {
    if count <= 1 {
        return 1;
    }
    // A compiler that saw the 2 would call exp2, which may round differently.
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

/// Waiting times of a Poisson process with this mean, rounded to integers: what `--rate` paces transactions with.
pub fn poisson_wait(prng: &mut Prng, mean: f64) -> i64 {
    let uniform = 1.0 - prng.unit();
    truncate(-uniform.ln() * mean + 0.5)
}

/// The integer that lies at a fraction of [0, 1) of the range.
fn part_of(min: i64, max: i64, fraction: f64) -> i64 {
    let count = max.wrapping_sub(min).wrapping_add(1);
    min.wrapping_add(truncate(count as f64 * fraction))
}

/// Towards zero. What does not fit, and NaN, become the smallest integer, as the processor makes them for a C program.
fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}
