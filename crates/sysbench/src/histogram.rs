//! Values in bins of equal ratio, and their percentiles, as sysbench has them.

use std::fmt::Write;

/// The widest bar, in characters.
const BAR_MAX: f64 = 40.0;
/// Bins at most: more would be for wasting memory.
const SIZE_MAX: usize = 1 << 20;

/// A histogram. Values outside its range count in the first or the last bin.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bins: Vec<u64>,
    lowest: f64,
    /// Bins per unit of the logarithm.
    density: f64,
}

impl Histogram {
    /// A histogram of so many bins; `None` unless there are two at least, and `0 < lowest < highest`.
    #[must_use]
    pub fn new(size: usize, lowest: f64, highest: f64) -> Option<Self> {
        let is_sound =
            (2..=SIZE_MAX).contains(&size) && lowest > 0.0 && highest > lowest && highest.is_finite();
        let density = (size - usize::from(size > 0)) as f64 / (highest.ln() - lowest.ln());
        is_sound.then(|| Self { bins: vec![0; size], lowest: lowest.ln(), density })
    }

    /// The histogram of latencies: 1024 bins from 1 µs to 100 s; values in ms.
    #[allow(clippy::missing_panics_doc)] // The range is sound.
    #[must_use]
    pub fn of_latencies() -> Self {
        Self::new(1024, 0.001, 100_000.0).expect("a sound range")
    }

    /// Counts a value.
    #[inline]
    pub fn update(&mut self, value: f64) {
        let bin = ((value.ln() - self.lowest) * self.density + 0.5).floor();
        let bin = if bin.is_nan() { 0 } else { (bin.max(0.0) as usize).min(self.bins.len() - 1) };
        self.bins[bin] += 1;
    }

    /// The value below or at which this percentage of values lies; 0 if there is none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        let count: u64 = self.bins.iter().sum();
        if count == 0 {
            return 0.0;
        }
        let wanted = (count as f64 * percent / 100.0 + 0.5).floor() as u64;
        let mut seen = 0;
        let bin = self.bins.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        self.value(bin.unwrap_or(self.bins.len() - 1))
    }

    /// Adds the values of another histogram of the same range.
    pub fn merge(&mut self, other: &Self) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The histogram as text.
    #[must_use]
    pub fn text(&self) -> String {
        let most = self.bins.iter().copied().max().unwrap_or(0);
        let mut text = String::new();
        if most == 0 {
            return text;
        }
        text += "       value  ------------- distribution ------------- count\n";
        for (bin, &n) in self.bins.iter().enumerate().filter(|(_, n)| **n > 0) {
            let bar = "*".repeat((n as f64 / most as f64 * BAR_MAX + 0.5).floor() as usize);
            let _ = writeln!(text, "{:12.3} |{bar:40} {n}", self.value(bin));
        }
        text
    }

    fn value(&self, bin: usize) -> f64 {
        (bin as f64 / self.density + self.lowest).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_values_that_sysbench_prints() {
        // Known from its reports: each latency is one of 1024 values.
        let cases = [(20.4, "20.37"), (4.57, "4.57"), (0.0795, "0.08"), (9.7, "9.73")];
        for (value, expected) in cases {
            let mut histogram = Histogram::of_latencies();
            histogram.update(value);
            assert_eq!(format!("{:.2}", histogram.percentile(95.0)), expected, "{value}");
        }
        assert!(Histogram::of_latencies().percentile(95.0) <= 0.0);
    }

    #[test]
    fn values_outside_the_range_count_in_its_ends() {
        let mut histogram = Histogram::new(10, 1.0, 10.0).expect("sound");
        for value in [0.0, -1.0, f64::NAN, 0.5] {
            histogram.update(value);
        }
        histogram.update(1e9);
        assert_eq!((histogram.bins[0], histogram.bins[9]), (4, 1));
    }

    #[test]
    fn the_longest_bar_belongs_to_the_fullest_bin() {
        let mut histogram = Histogram::of_latencies();
        for value in [0.677, 0.677, 0.677, 0.03] {
            histogram.update(value);
        }
        let text = histogram.text();
        assert!(text.contains(&format!("0.677 |{} 3\n", "*".repeat(40))), "{text}");
        assert!(text.contains(&format!("0.030 |{:40} 1\n", "*".repeat(13))), "{text}");
    }

    #[test]
    fn a_range_that_is_none_is_refused() {
        for (size, lowest, highest) in [(1, 1.0, 2.0), (10, 0.0, 1.0), (10, 2.0, 1.0), (0, 1.0, 2.0)] {
            assert!(Histogram::new(size, lowest, highest).is_none());
        }
    }
}
