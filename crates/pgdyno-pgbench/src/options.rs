//! Parser of pgbench's options, with pgbench's messages.

use pgbench::run::{Protocol, split_definition};
use pgbench::script::builtin::Builtin;
use pgbench::script::weight::split_weight;

use super::getopt::{self, Spelling};
use super::initialise::options::{Given, Initialisation};
use super::transaction_log::options::LogOptions;
use super::values::{Refusal, integer, latency_limit_ms, max_tries, positive, refuse};

/// PostgreSQL version of the supported pgbench options and output.
pub const POSTGRESQL: &str = "18";

/// Source of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Name of a built-in script.
    Builtin(Builtin),
    /// A file; `-` is standard input.
    File(String),
}

/// Action requested by the command line.
#[derive(Clone, Debug)]
pub enum Request {
    /// Print the first text on standard output and the second on standard error.
    Print(String, String),
    /// Execute a run.
    Run(Box<Options>),
    /// Create the tables.
    Initialise(Box<Options>, Box<Initialisation>),
}

/// Options of both a run and an initialization. In pgbench, initialization has no `--jobs`.
const COMMON: [&str; 9] =
    ["dbname", "debug", "host", "initialize", "jobs", "no-vacuum", "port", "scale", "username"];

/// Options for additional output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetailOptions {
    /// Percentiles after pgbench's report.
    pub is_text: bool,
    /// JSON instead of pgbench's report.
    pub is_json: bool,
}

impl DetailOptions {
    /// Whether histograms and the time series are recorded.
    pub fn is_recorded(self) -> bool {
        self.is_text || self.is_json
    }
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, missing_docs)] // Named as pgbench's options.
pub struct Options {
    pub scripts: Vec<(Source, u32)>,
    pub clients: u32,
    pub jobs: u32,
    pub connect: bool,
    pub transactions: u32,
    /// 0 if the number of transactions limits the run.
    pub time_s: u32,
    pub protocol: Protocol,
    pub define: Vec<(String, String)>,
    pub rate_per_s: Option<f64>,
    pub latency_limit_ms: Option<f64>,
    pub scale: Option<u32>,
    pub no_vacuum: bool,
    pub vacuum_all: bool,
    /// 0 for none.
    pub progress_s: u32,
    pub progress_timestamp: bool,
    pub report_per_command: bool,
    /// 0 for no limit.
    pub max_tries: u32,
    pub failures_detailed: bool,
    pub verbose_errors: bool,
    pub debug: bool,
    pub exit_on_abort: bool,
    pub log: LogOptions,
    pub detail: DetailOptions,
    pub continue_on_error: bool,
    pub random_seed: Option<String>,
    pub host: Option<String>,
    pub port: Option<String>,
    pub username: Option<String>,
    pub dbname: Option<String>,
}

/// Parses the arguments after the program's name.
pub fn read(arguments: &[String]) -> Result<Request, Refusal> {
    let parsed = getopt::parse(&SPELLINGS, arguments).map_err(Refusal::Getopt)?;
    let mut options = Options { clients: 1, jobs: 1, transactions: 10, max_tries: 1, ..Options::default() };
    let mut time_or_count = (None, None);
    let (mut initialises, mut is_for_runs, mut given) = (false, false, Given::default());
    for (name, value) in &parsed.options {
        let value = value.as_str();
        if given.take(name, value)? {
            continue;
        }
        is_for_runs |= !COMMON.contains(name);
        match *name {
            "builtin" if value == "list" => return Ok(Request::Print(String::new(), Builtin::list())),
            "builtin" => {
                let (name, weight) = split_weight(value)?;
                options.add_builtin(name, weight)?;
            }
            "file" => {
                let (name, weight) = split_weight(value)?;
                options.scripts.push((Source::File(name.to_owned()), weight));
            }
            "select-only" => options.add_builtin("select-only", 1)?,
            "skip-some-updates" => options.add_builtin("simple-update", 1)?,
            "show-script" => {
                return Ok(Request::Print(String::new(), builtin(value)?.shown()));
            }
            "client" => options.clients = integer(value, "-c/--clients")?,
            "jobs" => options.jobs = integer(value, "-j/--jobs")?,
            "connect" => options.connect = true,
            "transactions" => time_or_count.0 = Some(integer(value, "-t/--transactions")?),
            "time" => time_or_count.1 = Some(integer(value, "-T/--time")?),
            "protocol" => {
                let read = serde_json::from_value(value.into());
                let invalid = |_| refuse(format!("invalid query mode (-M): \"{value}\""));
                options.protocol = read.or_else(invalid)?;
            }
            "define" => {
                let (name, value) = split_definition(value)?;
                options.define.push((name.to_owned(), value.to_owned()));
            }
            "rate" => options.rate_per_s = Some(positive(value, "rate limit")?),
            "latency-limit" => options.latency_limit_ms = latency_limit_ms(value)?,
            "scale" => options.scale = Some(integer(value, "-s/--scale")?),
            "no-vacuum" => options.no_vacuum = true,
            "vacuum-all" => options.vacuum_all = true,
            "progress" => options.progress_s = integer(value, "-P/--progress")?,
            "progress-timestamp" => options.progress_timestamp = true,
            "report-per-command" => options.report_per_command = true,
            "max-tries" => options.max_tries = max_tries(value)?,
            "failures-detailed" => options.failures_detailed = true,
            "verbose-errors" => options.verbose_errors = true,
            "exit-on-abort" => options.exit_on_abort = true,
            "continue-on-error" => options.continue_on_error = true,
            "log" | "log-prefix" | "sampling-rate" | "aggregate-interval" => options.log.read(name, value)?,
            "pgdyno" => options.detail.is_text = true,
            "json" => options.detail.is_json = true,
            "random-seed" => options.random_seed = Some(value.to_owned()),
            "host" => options.host = Some(value.to_owned()),
            "port" => options.port = Some(value.to_owned()),
            "username" => options.username = Some(value.to_owned()),
            "dbname" => options.dbname = Some(value.to_owned()),
            "initialize" => initialises = true,
            "debug" => options.debug = true,
            other => return refuse(format!("--{other} is not supported by pgdyno's pgbench yet")),
        }
    }
    options.operands(&parsed.operands)?;
    if initialises {
        if is_for_runs {
            return refuse("some of the specified options cannot be used in initialization (-i) mode");
        }
        let initialisation = given.finish(options.scale, options.no_vacuum, options.jobs)?;
        return Ok(Request::Initialise(Box::new(options), Box::new(initialisation)));
    }
    options.finish(time_or_count, given.any)?;
    Ok(Request::Run(Box::new(options)))
}

impl Options {
    /// Whether there is a built-in script, which needs pgbench's tables.
    pub fn has_builtin(&self) -> bool {
        self.scripts.iter().any(|(source, _)| matches!(source, Source::Builtin(_)))
    }

    /// Whether the scale of custom scripts is not given.
    pub fn scale_is_assumed(&self) -> bool {
        self.scale.is_none() && self.define.iter().all(|(name, _)| name != "scale")
    }

    fn add_builtin(&mut self, name: &str, weight: u32) -> Result<(), Refusal> {
        self.scripts.push((Source::Builtin(builtin(name)?), weight));
        Ok(())
    }

    fn operands(&mut self, operands: &[String]) -> Result<(), Refusal> {
        let mut operands = operands.iter();
        if self.dbname.is_none() {
            self.dbname = operands.next().cloned();
        }
        if let Some(first) = operands.next() {
            let message = format!("too many command-line arguments (first is \"{first}\")");
            return Err(Refusal::ErrorWithHint(message));
        }
        Ok(())
    }

    /// Checks the combination of options of a run.
    fn finish(
        &mut self,
        (transactions, time_s): (Option<u32>, Option<u32>),
        initialises: bool,
    ) -> Result<(), Refusal> {
        if self.scripts.is_empty() {
            self.add_builtin("tpcb-like", 1)?;
        }
        if self.scripts.iter().all(|(_, weight)| *weight == 0) {
            return refuse("total script weight must not be zero");
        }
        if initialises {
            return refuse("some of the specified options cannot be used in benchmarking mode");
        }
        if transactions.is_some() && time_s.is_some() {
            return refuse("specify either a number of transactions (-t) or a duration (-T), not both");
        }
        self.transactions = transactions.unwrap_or(10);
        self.time_s = time_s.unwrap_or(0);
        self.jobs = self.jobs.min(self.clients);
        self.log.check(self.time_s)?;
        if self.progress_timestamp && self.progress_s == 0 {
            return refuse("--progress-timestamp is allowed only under --progress");
        }
        if self.max_tries == 0 && self.latency_limit_ms.is_none() && self.time_s == 0 {
            return refuse(
                "an unlimited number of transaction tries can only be used with --latency-limit or a duration (-T)",
            );
        }
        Ok(())
    }
}

fn builtin(name: &str) -> Result<Builtin, Refusal> {
    Builtin::find(name).map_err(|error| {
        let list = Builtin::list();
        // The end of the last line is added when a message is printed.
        Refusal::Error(format!("{error}\n{}", list.strip_suffix('\n').unwrap_or(&list)))
    })
}

const fn spelling(short: u8, long: &'static str, takes: bool) -> Spelling {
    Spelling { short, long, takes, abbreviates: true }
}

/// An additional option. It cannot be abbreviated, so that abbreviations accepted by pgbench are unchanged.
const fn own(long: &'static str, takes: bool) -> Spelling {
    Spelling { short: 0, long, takes, abbreviates: false }
}

/// All options, including unsupported ones.
pub const SPELLINGS: [Spelling; 47] = [
    spelling(b'b', "builtin", true),
    spelling(b'c', "client", true),
    spelling(b'C', "connect", false),
    spelling(b'd', "dbname", true),
    spelling(b'D', "define", true),
    spelling(b'f', "file", true),
    spelling(b'F', "fillfactor", true),
    spelling(b'h', "host", true),
    spelling(b'i', "initialize", false),
    spelling(b'I', "init-steps", true),
    spelling(b'j', "jobs", true),
    spelling(b'l', "log", false),
    spelling(b'L', "latency-limit", true),
    spelling(b'n', "no-vacuum", false),
    spelling(b'p', "port", true),
    spelling(b'P', "progress", true),
    spelling(b'M', "protocol", true),
    spelling(b'q', "quiet", false),
    spelling(b'r', "report-per-command", false),
    spelling(b'R', "rate", true),
    spelling(b's', "scale", true),
    spelling(b'S', "select-only", false),
    spelling(b'N', "skip-some-updates", false),
    spelling(b'T', "time", true),
    spelling(b't', "transactions", true),
    spelling(b'U', "username", true),
    spelling(b'v', "vacuum-all", false),
    spelling(0, "unlogged-tables", false),
    spelling(0, "tablespace", true),
    spelling(0, "index-tablespace", true),
    spelling(0, "sampling-rate", true),
    spelling(0, "aggregate-interval", true),
    spelling(0, "progress-timestamp", false),
    spelling(0, "log-prefix", true),
    spelling(0, "foreign-keys", false),
    spelling(0, "random-seed", true),
    spelling(0, "show-script", true),
    spelling(0, "partitions", true),
    spelling(0, "partition-method", true),
    spelling(0, "failures-detailed", false),
    spelling(0, "max-tries", true),
    spelling(0, "verbose-errors", false),
    spelling(0, "exit-on-abort", false),
    spelling(0, "continue-on-error", false),
    spelling(0, "debug", false),
    own("pgdyno", false),
    own("json", false),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HELP;

    /// The option at the start of a help line: short name, long name, whether it takes a value.
    fn helped(line: &str) -> Option<(u8, &str, bool)> {
        let line = line.trim_start();
        let (short, rest) = match line.strip_prefix('-').and_then(|rest| rest.split_once(", --")) {
            Some((letter, rest)) => (letter.as_bytes().first().copied()?, rest),
            None => (0, line.strip_prefix("--")?),
        };
        let name = rest.split(|c: char| c.is_whitespace() || c == '=').next()?;
        Some((short, name, rest[name.len()..].starts_with('=')))
    }

    #[test]
    fn help_contains_exactly_the_accepted_options() {
        let mut helped: Vec<_> = HELP.lines().filter_map(helped).collect();
        helped.retain(|(_, name, _)| !["help", "version"].contains(name));
        helped.sort_unstable();
        // Options of both a run and an initialization.
        helped.dedup();
        let mut known: Vec<_> =
            SPELLINGS.iter().map(|option| (option.short, option.long, option.takes)).collect();
        known.sort_unstable();
        assert_eq!(helped, known);
    }

    #[test]
    fn help_contains_the_contact_for_bugs_and_a_disclaimer() {
        let last = HELP.lines().last().unwrap_or_default();
        assert!(last.starts_with("Report bugs to ") && last.contains("not to PostgreSQL"), "{last}");
    }
}
