#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;

use super::*;
use crate::values::Refusal;

const ALL: Columns = Columns {
    has_lag: true,
    has_limit: true,
    has_retries: true,
    has_failures: true,
    has_other_failures: false,
};

type Given = &'static [(&'static str, &'static str)];

/// A transaction of script 2: outcome, tries, latency and lag in ns, and end time in ms of the run.
fn ended(outcome: Outcome, tries: u32, latency: u64, lag: u64, at_ms: u64) -> Ended {
    let (latency, lag, at) = (Nanos(latency), Nanos(lag), Nanos(at_ms * 1_000_000));
    Ended { script: 2, outcome, tries, latency, lag, is_late: false, at }
}

/// The log of transactions of client 7 in a run that starts at Unix time 1000.25 s and takes 4 s.
fn logged(columns: Columns, options: &LogOptions, transactions: &[Ended]) -> String {
    let mut out = Vec::new();
    let (zero, began) = (Nanos(1_000_000_000_000), Nanos(250_000_000));
    let mut log = TransactionLog::new(&mut out, columns, zero, options, began);
    for (number, ended) in (1..).zip(transactions) {
        log.add(7, number, ended);
    }
    log.close(Nanos(4_250_000_000)).unwrap();
    String::from_utf8(out).unwrap()
}

fn some_of_each() -> [Ended; 6] {
    [
        ended(Outcome::Done, 1, 1_499_499, 0, 300),
        ended(Outcome::Done, 3, 2_000_500, 1_234_567, 900),
        ended(Outcome::Skipped, 1, 0, 0, 901),
        ended(Outcome::Serialization, 2, 0, 0, 2_500),
        ended(Outcome::Deadlock, 1, 0, 0, 2_600),
        ended(Outcome::Other, 1, 0, 0, 2_700),
    ]
}

#[test]
fn each_transaction_has_a_line_with_the_columns_of_its_run() {
    let cases = [
        (
            Columns::default(),
            "7 1 1499 2 1000 300000\n7 2 2001 2 1000 900000\n7 3 skipped 2 1000 901000\n\
             7 4 failed 2 1002 500000\n7 5 failed 2 1002 600000\n7 6 failed 2 1002 700000\n",
        ),
        (
            ALL,
            "7 1 1499 2 1000 300000 0 0\n7 2 2001 2 1000 900000 1235 2\n7 3 skipped 2 1000 901000 0 0\n\
             7 4 serialization 2 1002 500000 0 1\n7 5 deadlock 2 1002 600000 0 0\n7 6 other 2 1002 700000 0 0\n",
        ),
    ];
    for (columns, expected) in cases {
        assert_eq!(logged(columns, &LogOptions::default(), &some_of_each()), expected);
    }
}

#[test]
fn every_complete_interval_has_a_line_even_if_it_is_empty() {
    let every = |seconds| LogOptions { aggregate_interval_s: Some(seconds), ..LogOptions::default() };
    let empty = "0 0 0 0 0 0 0 0 0";
    let first = "1000 2 3500 6251002 1499 2001";
    // 1499² + 2001², and 1235².
    let with_all = format!(
        "{first} 1235 1525225 0 1235 1 1 2 0 0\n1001 0 0 0 0 0 {empty}\n1002 0 0 0 0 0 0 0 0 0 0 1 1 1 1\n1003 0 0 0 0 0 {empty}\n"
    );
    let with_none =
        format!("{first} {empty}\n1001 0 0 0 0 0 {empty}\n1002 0 0 0 0 0 {empty}\n1003 0 0 0 0 0 {empty}\n");
    let other = Columns { has_other_failures: true, ..ALL };
    let with_other = "1000 2 3500 6251002 1499 2001 1235 1525225 0 1235 1 1 2 0 0 0\n\
                      1002 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1\n";
    let cases = [(ALL, 1, with_all), (Columns::default(), 1, with_none), (other, 2, with_other.to_owned())];
    for (columns, seconds, expected) in cases {
        let fields = |text: &str| text.lines().map(|line| line.split(' ').count()).collect::<Vec<_>>();
        let log = logged(columns, &every(seconds), &some_of_each());
        assert!(fields(&log).iter().all(|&count| count == if columns == other { 16 } else { 15 }), "{log}");
        assert_eq!(log, expected);
    }
}

#[test]
fn lines_are_written_completely_in_several_writes() {
    let transactions = vec![ended(Outcome::Done, 1, 5_000, 0, 1); 10_000];
    let log = logged(ALL, &LogOptions::default(), &transactions);
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 10_000);
    for (number, line) in (1..).zip(lines) {
        assert_eq!(line, format!("7 {number} 5 2 1000 1000 0 0"));
    }
}

#[test]
fn a_full_disk_is_reported_at_the_end() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut log = TransactionLog::new(full, ALL, Nanos::ZERO, &LogOptions::default(), Nanos::ZERO);
    log.add(0, 1, &ended(Outcome::Done, 1, 1, 1, 1));
    assert_eq!(log.close(Nanos(1)).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn options_of_the_log_are_rejected_without_it_and_in_conflict() {
    let sampling = "log sampling (--sampling-rate) is allowed only when logging transactions (-l)";
    let both = "log sampling (--sampling-rate) and aggregation (--aggregate-interval) cannot be used at the same time";
    let cases: [(Given, u32, Result<(), &str>); 9] = [
        (&[("log", ""), ("log-prefix", "x"), ("sampling-rate", "1")], 0, Ok(())),
        (&[("sampling-rate", "0.5")], 0, Err(sampling)),
        (&[("log", ""), ("sampling-rate", "0.5"), ("aggregate-interval", "1")], 0, Err(both)),
        (
            &[("aggregate-interval", "1")],
            0,
            Err("log aggregation is allowed only when actually logging transactions"),
        ),
        (
            &[("log-prefix", "x")],
            0,
            Err("log file prefix (--log-prefix) is allowed only when logging transactions (-l)"),
        ),
        (
            &[("log", ""), ("aggregate-interval", "5")],
            4,
            Err("number of seconds for aggregation (5) must not be higher than test duration (4)"),
        ),
        (
            &[("log", ""), ("aggregate-interval", "3")],
            4,
            Err("duration (4) must be a multiple of aggregation interval (3)"),
        ),
        (&[("log", ""), ("aggregate-interval", "3")], 0, Ok(())),
        (&[("sampling-rate", "1.5x")], 0, Err("invalid sampling rate: \"1.5x\"")),
    ];
    for (given, time_s, expected) in cases {
        let mut options = LogOptions::default();
        let read = given.iter().try_for_each(|(name, value)| options.read(name, value));
        let checked = read.and_then(|()| options.check(time_s));
        assert_eq!(checked, expected.map_err(|message| Refusal::Error(message.to_owned())), "{given:?}");
    }
}

#[test]
fn files_are_named_by_process_and_thread() {
    let mut options = LogOptions::default();
    assert_eq!([options.path(42, 0), options.path(42, 3)], ["pgbench_log.42", "pgbench_log.42.3"]);
    options.prefix = Some("dir/x".to_owned());
    assert_eq!(options.path(42, 0), "dir/x.42");
}
