//! Parser of the options of initialization, with pgbench's messages.

use pgbench::initialise::specification::{Initialise, Method, STEPS, wrong_step};

use crate::values::{Refusal, integer_between, refuse};

/// Options of initialization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialisation {
    /// Tables and steps.
    pub initialise: Initialise,
    /// Number of connections: `--jobs`, which pgbench does not accept here.
    pub connections: u32,
    /// Whether progress is reported by time instead of rows.
    pub quiet: bool,
}

/// Options parsed so far.
#[derive(Clone, Debug)]
pub struct Given {
    /// Whether there are any.
    pub any: bool,
    initialise: Initialise,
    quiet: bool,
}

impl Default for Given {
    fn default() -> Self {
        Self { any: false, initialise: Initialise::of_scale(1), quiet: false }
    }
}

impl Given {
    /// Parses an option if it belongs to initialization only. Returns whether it does.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool, Refusal> {
        let to = &mut self.initialise;
        match name {
            "init-steps" => to.steps = steps(value)?,
            "fillfactor" => to.fillfactor = integer_between(value, "-F/--fillfactor", 10, 100)?,
            "quiet" => self.quiet = true,
            "unlogged-tables" => to.unlogged = true,
            "tablespace" => to.tablespace = Some(value.to_owned()),
            "index-tablespace" => to.index_tablespace = Some(value.to_owned()),
            "foreign-keys" => to.foreign_keys = true,
            "partitions" => to.partitions = integer_between(value, "--partitions", 0, i32::MAX)?,
            "partition-method" => to.partition_method = Some(method(value)?),
            _ => return Ok(false),
        }
        self.any = true;
        Ok(true)
    }

    /// Combines them with the options that are common with a run.
    pub fn finish(
        self,
        scale: Option<u32>,
        no_vacuum: bool,
        connections: u32,
    ) -> Result<Initialisation, Refusal> {
        let mut initialise = self.initialise;
        initialise.scale = scale.unwrap_or(1);
        if no_vacuum {
            initialise.steps = initialise.steps.replace('v', " ");
        }
        match initialise.problem() {
            Some(problem) => refuse(problem),
            None => Ok(Initialisation { initialise, connections, quiet: self.quiet }),
        }
    }
}

fn steps(value: &str) -> Result<String, Refusal> {
    if value.is_empty() {
        return refuse("no initialization steps specified");
    }
    match wrong_step(value) {
        Some(step) => Err(Refusal::ErrorWithDetail(
            format!("unrecognized initialization step \"{step}\""),
            format!("Allowed step characters are: \"{STEPS}\"."),
        )),
        None => Ok(value.to_owned()),
    }
}

fn method(value: &str) -> Result<Method, Refusal> {
    if value.eq_ignore_ascii_case("range") {
        Ok(Method::Range)
    } else if value.eq_ignore_ascii_case("hash") {
        Ok(Method::Hash)
    } else {
        refuse(format!("invalid partition method, expecting \"range\" or \"hash\", got: \"{value}\""))
    }
}
