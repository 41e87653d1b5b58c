#![allow(clippy::unwrap_used, clippy::panic)]

mod aborts;
mod answers;
mod expressions;
mod flow;
mod properties;

use super::*;

/// A run of one client with seed 5432, as in PostgreSQL's tests of pgbench.
pub struct Run {
    pub scripts: Scripts,
    pub client: Client,
    /// Lines of `debug()`.
    pub shown: Vec<String>,
}

impl Run {
    pub fn new(text: &str, definitions: &[(&str, &str)]) -> Self {
        let mut scripts = Scripts::default();
        let definitions: Vec<_> =
            definitions.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        scripts.add("s.sql", text.as_bytes(), 1).unwrap_or_else(|error| panic!("{text}: {error}"));
        let client = Startup::new(&mut scripts.names, &definitions, 1, 5432, 1, 1).unwrap().client(0);
        Self { scripts, client, shown: Vec::new() }
    }

    /// All steps of the script as `(index of the command, step)`, without [`Step::Done`].
    pub fn through(&mut self, protocol: Protocol) -> Result<Vec<(usize, String)>, Abort> {
        let mut steps = Vec::new();
        self.client.begin(0);
        loop {
            let shown = &mut self.shown;
            let step = self.client.step(&self.scripts, protocol, &mut |line| shown.push(line.to_string()))?;
            let step = match step {
                Step::Done => continue,
                Step::End => return Ok(steps),
                Step::Sql(sql) => {
                    let mut out = Vec::new();
                    sql.write_simple(&self.client.variables, &mut out);
                    String::from_utf8(out).unwrap()
                }
                Step::Shell(shell) => {
                    let mut out = Vec::new();
                    self.client.shell_command(&self.scripts, shell, &mut out)?;
                    String::from_utf8(out).unwrap()
                }
                other => format!("{other:?}"),
            };
            steps.push((self.client.command(), step));
        }
    }
}
