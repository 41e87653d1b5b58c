use super::*;
use crate::io::Nanos;

/// What HdrHistogram 2.2.2 (Java) prints of these values: `new Histogram(1, 60000000000L, 3)`,
/// `outputPercentileDistribution(out, 5, 1e6)`.
const BY_HDRHISTOGRAM: &str = "       Value     Percentile TotalCount 1/(1-Percentile)

       0.001 0.000000000000          1           1.00
       0.001 0.100000000000          1           1.11
       0.070 0.200000000000          2           1.25
       0.250 0.300000000000          4           1.43
       0.250 0.400000000000          4           1.67
       0.250 0.500000000000          4           2.00
       0.250 0.550000000000          4           2.22
       1.500 0.600000000000          5           2.50
       1.500 0.650000000000          5           2.86
       1.500 0.700000000000          5           3.33
       3.000 0.750000000000          6           4.00
       3.000 0.775000000000          6           4.44
       3.000 0.800000000000          6           5.00
       3.000 0.825000000000          6           5.71
       3.000 0.850000000000          6           6.67
   59022.246 0.875000000000          7           8.00
   59022.246 1.000000000000          7
#[Mean    =     8430.077, StdDeviation   =    20647.317]
#[Max     =    59022.246, Total count    =            7]
#[Buckets =           26, SubBuckets     =         2048]
";

#[test]
fn the_histogram_is_written_as_hdrhistogram_writes_it() {
    let mut latency = Histogram::default();
    for ns in [1_000, 250_000, 250_000, 1_500_000, 3_000_000, 70_000, 59_000_000_000] {
        latency.record(Nanos(ns));
    }
    assert_eq!(hgrm::percentiles(&latency), BY_HDRHISTOGRAM);
}

#[test]
fn an_empty_histogram_is_written_without_steps() {
    let text = hgrm::percentiles(&Histogram::default());
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("Total count    =            0]"), "{text}");
}
