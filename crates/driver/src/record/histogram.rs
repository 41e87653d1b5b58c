//! Histograms of durations from 1 ns to 60 s, with three significant digits.

use reactor::Nanos;

/// The longest duration of the histogram's range.
pub const HIGHEST: Nanos = Nanos(60_000_000_000);

/// The shortest duration of the range, in ns.
const LOWEST: u64 = 1;

const DIGITS: u8 = 3;

/// Histogram of durations.
///
/// Its bins take about 220 kB. They are created for the first duration, because a run with many kinds of
/// transactions and threads has thousands of histograms, most of them empty. Counters have 64 bits, because those of
/// a run of weeks exceed 32.
#[derive(Clone, Default)]
pub struct Histogram {
    bins: Option<hdrhistogram::Histogram<u64>>,
    /// Number of values above the range, which are recorded as the maximum.
    saturated: u64,
}

#[cold]
fn empty_bins() -> hdrhistogram::Histogram<u64> {
    let bins = hdrhistogram::Histogram::new_with_bounds(LOWEST, HIGHEST.0, DIGITS);
    // The bounds are constants that the library accepts; an auto-resizing histogram would also work.
    bins.unwrap_or_else(|_| unreachable!("constant bounds"))
}

impl Histogram {
    /// Creates the bins, so that the first [`Histogram::record`] does not. This takes tens of microseconds.
    #[inline]
    pub fn reserve(&mut self) {
        self.bins.get_or_insert_with(empty_bins);
    }

    /// Records one duration.
    #[inline]
    pub fn record(&mut self, value: Nanos) {
        self.saturated += u64::from(value > HIGHEST);
        self.bins.get_or_insert_with(empty_bins).saturating_record(value.min(HIGHEST).0);
    }

    /// Records one duration `count` times.
    pub fn record_many(&mut self, value: Nanos, count: u64) {
        if count > 0 {
            self.saturated += if value > HIGHEST { count } else { 0 };
            self.bins.get_or_insert_with(empty_bins).saturating_record_n(value.min(HIGHEST).0, count);
        }
    }

    /// Adds the durations of another thread.
    ///
    /// # Panics
    ///
    /// Never: all histograms have the same bounds.
    pub fn merge(&mut self, other: &Self) {
        self.saturated += other.saturated;
        if let Some(bins) = &other.bins {
            // The bounds are equal: adding cannot fail.
            let added = self.bins.get_or_insert_with(empty_bins).add(bins);
            assert!(added.is_ok());
        }
    }

    /// Number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bins.as_ref().map_or(0, hdrhistogram::Histogram::len)
    }

    /// Number of durations longer than [`HIGHEST`].
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The duration in ns at a quantile (0 to 1); 0 if the histogram is empty.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.bins.as_ref().map_or(0, |bins| bins.value_at_quantile(quantile).min(HIGHEST.0))
    }

    /// The maximum in ns, at the precision of the histogram; 0 if it is empty.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.bins.as_ref().map_or(0, |bins| bins.max().min(HIGHEST.0))
    }

    /// The nonempty bins: the longest duration of the bin in ns, and its count.
    #[must_use]
    pub fn bins(&self) -> Vec<(u64, u64)> {
        let Some(bins) = &self.bins else { return Vec::new() };
        let bins = bins.iter_recorded();
        bins.map(|bin| (bin.value_iterated_to().min(HIGHEST.0), bin.count_at_value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for &value in values {
            histogram.record(Nanos(value));
        }
        histogram
    }

    proptest! {
        #[test]
        fn merged_histograms_are_the_histogram_of_everything(
            left in prop::collection::vec(0_u64..100_000_000_000, 0..100),
            right in prop::collection::vec(0_u64..100_000_000_000, 0..100),
        ) {
            let mut merged = histogram(&left);
            merged.merge(&histogram(&right));
            let whole = histogram(&[left, right].concat());
            prop_assert_eq!(merged.bins(), whole.bins());
            prop_assert_eq!(merged.saturated(), whole.saturated());
        }

        #[test]
        fn a_recorded_value_has_three_significant_digits(value in 0_u64..=60_000_000_000) {
            let bins = histogram(&[value]).bins();
            prop_assert_eq!(bins.len(), 1);
            prop_assert!(bins[0].0 >= value && bins[0].0 - value <= value / 1000);
        }
    }

    #[test]
    fn an_empty_histogram_takes_no_memory_and_can_be_merged() {
        let mut empty = Histogram::default();
        empty.merge(&Histogram::default());
        empty.record_many(Nanos(5), 0);
        assert!(empty.bins.is_none());
        assert_eq!((empty.count(), empty.quantile_ns(0.5), empty.max_ns(), empty.bins()), (0, 0, 0, vec![]));
        let mut five = histogram(&[5]);
        five.merge(&empty);
        empty.merge(&five);
        assert_eq!((five.bins(), empty.bins()), (vec![(5, 1)], vec![(5, 1)]));
    }

    #[test]
    fn more_than_2_to_the_32_equal_values_are_counted() {
        let mut histogram = Histogram::default();
        histogram.record_many(Nanos(5), 1 << 33);
        histogram.record_many(Nanos(7), 1);
        assert_eq!(histogram.count(), (1 << 33) + 1);
        assert_eq!(histogram.bins(), [(5, 1 << 33), (7, 1)]);
    }

    #[test]
    fn values_above_the_range_count_as_the_maximum_and_as_saturated() {
        let histogram = histogram(&[HIGHEST.0 + 1, u64::MAX, HIGHEST.0]);
        assert_eq!(histogram.saturated(), 2);
        assert_eq!(histogram.max_ns(), HIGHEST.0);
        assert_eq!(histogram.count(), 3);
    }
}
