//! The distributions of `--rand-type`, and their options.

use super::{Xoroshiro, offset, width};

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

    pub(super) fn gaussian(&self, bits: &mut Xoroshiro, from: u32, to: u32) -> u32 {
        let width = f64::from(width(from, to));
        let sum: f64 = (0..self.iterations).map(|_| bits.unit() * width).sum();
        offset(from, sum / f64::from(self.iterations))
    }

    /// Special values lie around the middle, uniformly; the others are the mean of uniform values. One number decides which it is, and
    /// is the place among the special values, too.
    pub(super) fn special(&self, bits: &mut Xoroshiro, from: u32, to: u32) -> u32 {
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

    pub(super) fn pareto(&self, bits: &mut Xoroshiro, from: u32, to: u32) -> u32 {
        let power = self.pareto_h.ln() / (1.0 - self.pareto_h).ln();
        offset(from, f64::from(width(from, to)) * bits.unit().powf(power))
    }
}
