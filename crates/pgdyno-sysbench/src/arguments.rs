//! The command line: options in any order, a script, a command.

use std::fs;

use reactor::Nanos;
use sysbench::RandomOptions;
use sysbench::general;
use sysbench::options::{OptionType, OptionValue};
use sysbench::random_options;

/// A command line that cannot be used. The text is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// For an error that sysbench reports as fatal.
    #[error("FATAL: {0}")]
    Fatal(String),
    /// For others.
    #[error("{0}")]
    Plain(String),
}

/// The command line, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The script: a name or a path.
    pub script: Option<String>,
    /// The command.
    pub command: Option<String>,
    /// Whether the script was named by `--test`.
    pub is_old: bool,
    /// Options that every script has, by name. The last one counts.
    pub general: Vec<(String, String)>,
    /// The others, which the script has to know.
    pub others: Vec<(String, String)>,
}

/// Prefixes of options of drivers that this program does not have.
const OTHER_DRIVERS: [(&str, &str); 4] =
    [("mysql-", "MySQL"), ("oracle-", "Oracle"), ("attachsql-", "AttachSQL"), ("drizzle-", "Drizzle")];
/// An option of sysbench's own scripts that looks like one of another driver.
const SCRIPT_OPTIONS: [&str; 2] = ["mysql-storage-engine", "mysql-table-engine"];

/// Reads arguments, without the program's name.
pub fn read(arguments: &[String]) -> Result<Arguments, Refusal> {
    let mut read = Arguments::default();
    for argument in arguments {
        match argument.strip_prefix("--") {
            Some(option) => read.option(option)?,
            None if read.script.is_none() && !read.is_old => read.script = Some(argument.clone()),
            None if read.command.is_none() => read.command = Some(argument.clone()),
            None => return Err(Refusal::Plain(format!("Unrecognized command line argument: {argument}"))),
        }
    }
    Ok(read)
}

impl Arguments {
    fn option(&mut self, option: &str) -> Result<(), Refusal> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let dashed = name.replace('_', "-");
        if dashed == "test" {
            (self.script, self.is_old) = (value.map(str::to_owned), true);
            return Ok(());
        }
        let other = OTHER_DRIVERS.iter().find(|(prefix, _)| dashed.starts_with(prefix));
        if let (Some((_, driver)), false) = (other, SCRIPT_OPTIONS.contains(&dashed.as_str())) {
            return Err(Refusal::Fatal(format!(
                "--{name} is an option of {driver}; the only driver is pgsql (--pgsql-*)"
            )));
        }
        if dashed == "luajit-cmd" {
            return Err(Refusal::Fatal("--luajit-cmd is not supported: scripts are interpreted".to_owned()));
        }
        let Some(definition) = general::find(name) else {
            self.others.push((name.to_owned(), value.unwrap_or_default().to_owned()));
            return Ok(());
        };
        let has_no_text = definition.option_type == OptionType::Bool && value == Some("");
        let problem = if has_no_text { Some(format!("invalid option: --{option}")) } else { None };
        let given = value.unwrap_or_default();
        if let Some(problem) = problem.or_else(|| definition.option_type.refusal(name, given)) {
            return Err(Refusal::Plain(problem));
        }
        if definition.name == "config-file" {
            return self.config_file(value.unwrap_or_default());
        }
        self.general.push((definition.name, value.unwrap_or_default().to_owned()));
        Ok(())
    }

    /// A file with `name=value` in each line; `#` begins a comment.
    fn config_file(&mut self, path: &str) -> Result<(), Refusal> {
        let text = fs::read_to_string(path)
            .map_err(|error| Refusal::Fatal(format!("cannot read the configuration file {path}: {error}")))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let line = line.trim_start_matches("--");
            match line.split_once('=') {
                Some((name, value)) => self.option(&format!("{}={}", name.trim(), value.trim()))?,
                None => self.option(line)?,
            }
        }
        Ok(())
    }

    /// The value of a general option.
    pub fn value(&self, name: &str) -> OptionValue {
        match (general::find(name), self.given(name)) {
            (Some(definition), Some(text)) => definition.option_type.read(text),
            (Some(definition), None) => definition.default_value(),
            (None, _) => OptionValue::Text(String::new()),
        }
    }

    /// The text of a general option, if it is given.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.general.iter().rev().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// Whether a general option is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) == OptionValue::Bool(true)
    }

    fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            OptionValue::Int(value) => value,
            _ => 0,
        }
    }

    fn either(&self, name: &str, old: &str) -> i64 {
        let name = if self.given(name).is_none() && self.given(old).is_some() { old } else { name };
        self.int(name)
    }
}

/// The longest duration instead of one that is longer than 584 years.
pub fn seconds(s: u64) -> Nanos {
    Nanos(s.saturating_mul(1_000_000_000))
}

/// The options of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// Clients.
    pub clients: u32,
    /// Events after which it ends.
    pub events: Option<u64>,
    /// Seconds after which it ends.
    pub time_s: Option<u64>,
    /// Seconds before it that are not reported.
    pub warmup_s: u64,
    /// Seconds in which the clients have to start; the maximum without a limit.
    pub init_timeout_s: u64,
    /// Seconds after `time_s` at which it is aborted.
    pub forced_shutdown_s: Option<u64>,
    /// Events per second of all clients.
    pub rate_per_s: Option<u64>,
    /// Seconds between intermediate reports.
    pub report_interval_s: Option<u64>,
    /// Seconds after which all statistics are reported and reset.
    pub checkpoints_s: Vec<u64>,
    /// The percentile of latency that is reported.
    pub percentile: Option<u32>,
    /// Whether a histogram is printed.
    pub has_histogram: bool,
    /// Whether debugging information is asked for.
    pub is_debug: bool,
    /// Whether the script is asked to validate.
    pub is_validated: bool,
    /// The seed that was given.
    pub seed: Option<u32>,
    /// The options of random numbers.
    pub random: RandomOptions,
    /// Which messages are printed.
    pub verbosity: i64,
}

impl RunOptions {
    /// Checks the options of a command line.
    pub fn read(arguments: &Arguments) -> Result<Self, Refusal> {
        let invalid =
            |name: &str, value: i64| Refusal::Fatal(format!("Invalid value for --{name}: {value}.\n"));
        let limit = |name: &str, old: &str| {
            let value = arguments.either(name, old);
            u64::try_from(value).map(|value| (value > 0).then_some(value)).map_err(|_| invalid(name, value))
        };
        let clients = arguments.either("threads", "num-threads");
        let percentile = arguments.int("percentile");
        if !(0..=100).contains(&percentile) {
            return Err(Refusal::Fatal(format!("Invalid value for --percentile: {percentile}")));
        }
        let shutdown = arguments.given("forced-shutdown").unwrap_or("off");
        let forced_shutdown_s = match shutdown {
            "off" => None,
            s => Some(
                s.parse()
                    .map_err(|_| Refusal::Fatal(format!("Invalid value for --forced-shutdown: '{s}'")))?,
            ),
        };
        let checkpoints_s = match arguments.value("report-checkpoints") {
            OptionValue::List(texts) => texts
                .iter()
                .map(|text| text.parse::<u64>().ok().filter(|s| *s > 0))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| Refusal::Fatal("Invalid value for --report-checkpoints".to_owned()))?,
            _ => Vec::new(),
        };
        Ok(Self {
            clients: u32::try_from(clients)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| invalid("threads", clients))?,
            events: limit("events", "max-requests")?,
            time_s: limit("time", "max-time")?,
            warmup_s: limit("warmup-time", "warmup-time")?.unwrap_or(0),
            init_timeout_s: limit("thread-init-timeout", "thread-init-timeout")?.unwrap_or(u64::MAX),
            forced_shutdown_s,
            rate_per_s: limit("rate", "tx-rate")?,
            report_interval_s: limit("report-interval", "report-interval")?,
            checkpoints_s,
            percentile: Some(percentile as u32).filter(|percentile| *percentile > 0),
            has_histogram: arguments.is_on("histogram"),
            is_debug: arguments.is_on("debug"),
            is_validated: arguments.is_on("validate"),
            seed: Some(arguments.int("rand-seed") as u32).filter(|seed| *seed > 0),
            random: random_options(|name| arguments.given(name).map(str::to_owned))
                .map_err(|error| Refusal::Fatal(error.to_string()))?,
            verbosity: arguments.int("verbosity"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Arguments, Refusal> {
        read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_any_order() {
        let read =
            of("oltp_read_only --threads=4 --tables=2 run --pgsql_host=/tmp --histogram").expect("sound");
        assert_eq!((read.script.as_deref(), read.command.as_deref()), (Some("oltp_read_only"), Some("run")));
        assert_eq!(read.others, [("tables".to_owned(), "2".to_owned())]);
        let options = RunOptions::read(&read).expect("sound");
        assert_eq!((options.clients, options.time_s, options.events), (4, Some(10), None));
        assert!(options.has_histogram);
        let old = RunOptions::read(
            &of("--test=f.lua --num-threads=3 --max-time=0 --max-requests=7 run").expect("sound"),
        );
        let old = old.expect("sound");
        assert_eq!((old.clients, old.time_s, old.events), (3, None, Some(7)));
    }

    #[test]
    fn a_duration_beyond_the_clock_is_the_longest() {
        assert_eq!((seconds(2), seconds(i64::MAX as u64)), (Nanos(2_000_000_000), Nanos::MAX));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let cases = [
            ("a run more", "Unrecognized command line argument: more"),
            ("a run --mysql-host=h", "FATAL: --mysql-host is an option of MySQL"),
            ("a run --histogram=maybe", "invalid option: --histogram=maybe"),
            ("a run --histogram=", "invalid option: --histogram="),
            ("a run --time=10m", "Invalid value for the 'time' option: '10m'"),
            ("a run --luajit-cmd=off", "FATAL: --luajit-cmd is not supported"),
        ];
        for (line, expected) in cases {
            let refusal = of(line).expect_err(line).to_string();
            assert!(refusal.starts_with(expected), "{refusal}");
        }
        let cases = [
            ("--threads=0", "FATAL: Invalid value for --threads: 0."),
            ("--percentile=101", "FATAL: Invalid value for --percentile: 101"),
            ("--rand-type=bogus", "FATAL: Invalid random numbers distribution: bogus."),
            ("--forced-shutdown=x", "FATAL: Invalid value for --forced-shutdown: 'x'"),
            ("--report-checkpoints=1,x", "FATAL: Invalid value for --report-checkpoints"),
        ];
        for (line, expected) in cases {
            let refusal = RunOptions::read(&of(line).expect("read")).expect_err(line).to_string();
            assert!(refusal.starts_with(expected), "{refusal}");
        }
        assert!(of("a run --mysql-storage-engine=x").is_ok(), "of the script");
    }
}
