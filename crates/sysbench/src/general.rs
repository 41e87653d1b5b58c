//! The options that sysbench has for every script.

use super::options::{Definition, OptionType};

/// A part of the help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Threads, time, reports.
    General,
    /// Random numbers.
    Random,
    /// Messages.
    Log,
    /// Latencies.
    Latency,
    /// Any database.
    Database,
    /// PostgreSQL.
    PostgreSql,
}

use OptionType::{Bool, Double, File, Int, List, Size, Text};
use Section::{Database, General, Latency, Log, PostgreSql, Random};

/// Name, type, default, description.
type Row = (Section, &'static str, OptionType, Option<&'static str>, &'static str);

#[rustfmt::skip]
const OPTIONS: [Row; 39] = [
    (General, "threads", Int, Some("1"), "number of clients"),
    (General, "events", Int, Some("0"), "number of events after which the run ends; 0: no limit"),
    (General, "time", Int, Some("10"), "time in seconds after which the run ends; 0: no limit"),
    (General, "warmup-time", Int, Some("0"), "time in seconds before the run that is not reported"),
    (General, "forced-shutdown", Text, Some("off"), "seconds after --time at which the run is aborted, or off"),
    (General, "thread-stack-size", Size, Some("64K"), "accepted and not used: a client has no thread"),
    (General, "thread-init-timeout", Int, Some("30"), "time in seconds in which clients have to start; 0: no limit"),
    (General, "rate", Int, Some("0"), "events per second on average, of all clients; 0: no limit"),
    (General, "report-interval", Int, Some("0"), "seconds between intermediate reports; 0: none"),
    (General, "report-checkpoints", List, Some(""), "times in seconds at which to report all statistics and reset them"),
    (General, "debug", Bool, Some("off"), "print debugging information"),
    (General, "validate", Bool, Some("off"), "accepted for scripts that read it"),
    (General, "help", Bool, Some("off"), "print help and exit"),
    (General, "version", Bool, Some("off"), "print the version and exit"),
    (General, "config-file", File, None, "file with options"),
    (General, "tx-rate", Int, Some("0"), "old name of --rate"),
    (General, "max-requests", Int, Some("0"), "old name of --events"),
    (General, "max-time", Int, Some("0"), "old name of --time"),
    (General, "num-threads", Int, Some("1"), "old name of --threads"),
    (General, "allow-os", Bool, Some("off"), "let scripts use the libraries os and io and read any file (not in sysbench)"),
    (Random, "rand-type", Text, Some("special"), "distribution of random numbers: uniform, gaussian, special, pareto or zipfian"),
    (Random, "rand-spec-iter", Int, Some("12"), "uniform numbers of which gaussian and special take the mean"),
    (Random, "rand-spec-pct", Int, Some("1"), "percentage of values that are special"),
    (Random, "rand-spec-res", Int, Some("75"), "percentage of draws that give a special value"),
    (Random, "rand-seed", Int, Some("0"), "seed of random numbers; 0: the current time"),
    (Random, "rand-pareto-h", Double, Some("0.2"), "parameter h of pareto"),
    (Random, "rand-zipfian-exp", Double, Some("0.8"), "exponent of zipfian"),
    (Log, "verbosity", Int, Some("3"), "verbosity of messages, from 0 (critical) to 5 (debug)"),
    (Latency, "percentile", Int, Some("95"), "percentile of latency to report, 1 to 100; 0: none"),
    (Latency, "histogram", Bool, Some("off"), "print a histogram of latency"),
    (Database, "db-driver", Text, Some("pgsql"), "database driver: pgsql"),
    (Database, "db-ps-mode", Text, Some("auto"), "prepared statements: auto or disable"),
    (Database, "db-debug", Bool, Some("off"), "accepted and not used"),
    (PostgreSql, "pgsql-host", Text, Some("localhost"), "host, or directory of the Unix socket"),
    (PostgreSql, "pgsql-port", Int, Some("5432"), "port"),
    (PostgreSql, "pgsql-user", Text, Some("sbtest"), "user"),
    (PostgreSql, "pgsql-password", Text, Some(""), "password"),
    (PostgreSql, "pgsql-db", Text, Some("sbtest"), "database"),
    (PostgreSql, "pgsql-sslmode", Text, Some("prefer"), "TLS mode, as in libpq"),
];

/// The options of a section.
pub fn section(section: Section) -> Vec<Definition> {
    OPTIONS.iter().filter(|row| row.0 == section).map(definition).collect()
}

/// All options.
pub fn definitions() -> Vec<Definition> {
    OPTIONS.iter().map(definition).collect()
}

/// The option of a name, which may have `_` for `-`.
pub fn find(name: &str) -> Option<Definition> {
    let name = name.replace('_', "-");
    OPTIONS.iter().find(|row| row.1 == name).map(definition)
}

fn definition(&(_, name, option_type, default, description): &Row) -> Definition {
    let default = default.map(str::to_owned);
    Definition { name: name.to_owned(), description: description.to_owned(), option_type, default }
}
