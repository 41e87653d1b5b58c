//! The options of initialisation, read and checked. Messages are pgbench's.

use crate::refusal::{Refusal, refuse};
use crate::values::integer_between;
use pgbench::initialise::specification::{Initialise, Method, STEPS, wrong_step};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialisation {
    /// The tables, and the steps.
    pub initialise: Initialise,
    /// Connections: `--jobs`, which pgbench does not take here.
    pub connections: u32,
    /// Whether progress is reported by time and not by rows.
    pub quiet: bool,
}

/// What has been given so far.
#[derive(Clone, Debug)]
pub struct Given {
    /// Whether anything has.
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
    /// Takes an option, if it is for initialisation alone; whether it is.
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

    /// What they mean, together with those that are for a run as well.
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
        initialise.check()?;
        Ok(Initialisation { initialise, connections, quiet: self.quiet })
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
