//! Options of the transaction log.

use crate::values::{Refusal, integer, leading_double, refuse};

/// Options of the transaction log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogOptions {
    /// Whether transactions are logged.
    pub is_wanted: bool,
    /// Prefix of file names, if not pgbench's.
    pub prefix: Option<String>,
    /// Share of transactions to log, if not all.
    pub sampling_rate: Option<f64>,
    /// Length of aggregated intervals, if transactions are aggregated.
    pub aggregate_interval_s: Option<u32>,
}

impl LogOptions {
    /// Parses one of these options.
    pub fn read(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "log-prefix" => self.prefix = Some(value.to_owned()),
            "sampling-rate" => {
                let rate = leading_double(value);
                if !(rate > 0.0 && rate <= 1.0) {
                    return refuse(format!("invalid sampling rate: \"{value}\""));
                }
                self.sampling_rate = Some(rate);
            }
            "aggregate-interval" => {
                self.aggregate_interval_s = Some(integer(value, "--aggregate-interval")?);
            }
            _ => self.is_wanted = true,
        }
        Ok(())
    }

    /// Checks the combination of options. `time_s`: duration of the run, 0 if transactions limit it.
    pub fn check(&self, time_s: u32) -> Result<(), Refusal> {
        let Self { is_wanted, prefix, sampling_rate, aggregate_interval_s } = self;
        if sampling_rate.is_some() && !is_wanted {
            return refuse("log sampling (--sampling-rate) is allowed only when logging transactions (-l)");
        }
        if sampling_rate.is_some() && aggregate_interval_s.is_some() {
            return refuse(
                "log sampling (--sampling-rate) and aggregation (--aggregate-interval) cannot be used at the same time",
            );
        }
        if aggregate_interval_s.is_some() && !is_wanted {
            return refuse("log aggregation is allowed only when actually logging transactions");
        }
        if prefix.is_some() && !is_wanted {
            return refuse("log file prefix (--log-prefix) is allowed only when logging transactions (-l)");
        }
        let Some(every_s) = aggregate_interval_s.filter(|_| time_s > 0) else { return Ok(()) };
        if every_s > time_s {
            return refuse(format!(
                "number of seconds for aggregation ({every_s}) must not be higher than test duration ({time_s})"
            ));
        }
        if time_s % every_s != 0 {
            return refuse(format!(
                "duration ({time_s}) must be a multiple of aggregation interval ({every_s})"
            ));
        }
        Ok(())
    }

    /// Path of the log of a thread.
    #[must_use]
    pub fn path(&self, process: u32, thread: usize) -> String {
        let prefix = self.prefix.as_deref().unwrap_or("pgbench_log");
        if thread == 0 { format!("{prefix}.{process}") } else { format!("{prefix}.{process}.{thread}") }
    }
}
