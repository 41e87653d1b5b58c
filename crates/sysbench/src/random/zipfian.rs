//! Ranks by Zipf's law: W. Hörmann, G. Derflinger: Rejection-inversion to generate variates from monotone discrete
//! distributions. ACM Transactions on Modeling and Computer Simulation 6 (1996).

use super::Xoroshiro;

/// Below this, a quotient is taken from its series: it would lose its digits.
const SMALL: f64 = 1e-8;

/// Ranks 1 to `count`, of probabilities proportional to rank^-exponent.
#[derive(Clone, Debug)]
pub struct Zipfian {
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
    pub fn new(count: u32, exponent: f64) -> Self {
        let mut zipfian = Self { count, exponent, first: 0.0, last: 0.0, certain: 0.0 };
        zipfian.first = zipfian.integral(1.5) - 1.0;
        zipfian.last = zipfian.integral(f64::from(count) + 0.5);
        zipfian.certain = 2.0 - zipfian.inverse(zipfian.integral(2.5) - zipfian.density(2.0));
        zipfian
    }

    /// The number of ranks.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A rank.
    pub fn rank(&self, bits: &mut Xoroshiro) -> u32 {
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
