use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::record::Record;
use crate::statistics::{Ended, Outcome};
use pgbench::script::Scripts;
use reactor::Nanos;

/// Output of HdrHistogram 2.2.2 (Java) for these values: `new Histogram(1, 60000000000L, 3)`,
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
fn the_histogram_has_the_format_of_hdrhistogram() {
    let mut latency = Histogram::default();
    for ns in [1_000, 250_000, 250_000, 1_500_000, 3_000_000, 70_000, 59_000_000_000] {
        latency.record(Nanos(ns));
    }
    assert_eq!(percentiles(&latency), BY_HDRHISTOGRAM);
}

#[test]
fn an_empty_histogram_is_written_without_steps() {
    let text = percentiles(&Histogram::default());
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("Total count    =            0]"), "{text}");
}

#[test]
fn the_log_has_a_histogram_for_all_for_each_script_and_for_each_command() {
    let mut scripts = Scripts::default();
    scripts.add("one, a.sql", b"select\n 1;\n\\sleep 1 us\n", 1).expect("a script");
    scripts.add("two.sql", b"select 2;\n", 1).expect("a script");
    let mut record = Record::new(&scripts, true);
    let ended = |script| Ended {
        script,
        outcome: Outcome::Done,
        tries: 1,
        latency: Nanos(2_500_000),
        lag: Nanos::ZERO,
        is_late: false,
        at: Nanos::ZERO,
    };
    record.add(&ended(0), Nanos::ZERO);
    record.add_command(0, 0, Nanos(1_000_000));
    let log = histogram_log(&record, scripts.scripts(), 1_000_002.25, Nanos(2_000_000_000));
    let lines: Vec<_> = log.lines().collect();
    let head = [
        "#[Histogram log format version 1.3]",
        "#[StartTime: 1000000.250 (seconds since epoch)]",
        "#[BaseTime: 1000000.250 (seconds since epoch)]",
        "#[Tag script.1: one, a.sql]",
        "#[Tag script.1.command.1: select]",
        "#[Tag script.1.command.2: \\sleep 1 us]",
        "#[Tag script.2: two.sql]",
        "#[Tag script.2.command.1: select 2;]",
    ];
    assert_eq!(lines[1..9], head);
    let shown = |histogram: &Histogram| STANDARD.encode(histogram.encoded_for_log());
    let of = |ns: &[u64]| {
        let mut histogram = Histogram::default();
        for &ns in ns {
            histogram.record(Nanos(ns));
        }
        shown(&histogram)
    };
    let (done, sent, none) = (of(&[2_500_000]), of(&[1_000_000]), of(&[]));
    let expected = [
        format!("0.000,2.000,2.501,{done}"),
        format!("Tag=script.1,0.000,2.000,2.501,{done}"),
        format!("Tag=script.1.command.1,0.000,2.000,1.000,{sent}"),
        format!("Tag=script.1.command.2,0.000,2.000,0.000,{none}"),
        format!("Tag=script.2,0.000,2.000,0.000,{none}"),
        format!("Tag=script.2.command.1,0.000,2.000,0.000,{none}"),
    ];
    assert_eq!(lines[10..], expected);
}
