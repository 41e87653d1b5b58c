#![allow(clippy::unwrap_used, clippy::panic)]

mod errors;
mod print;
mod properties;
mod values;

use super::*;
use crate::random::{Prng, Streams};
use crate::value::{DebugLine, Value};
use crate::variables::Variables;

/// A client as in PostgreSQL's tests, with `-Dfoo=-10.1` and similar definitions.
pub struct Client {
    pub names: Names,
    pub variables: Variables,
    pub random: Prng,
    pub stack: Vec<Value>,
    pub shown: Vec<Value>,
}

impl Client {
    pub fn new(defined: &[(&str, &str)]) -> Self {
        let random = Streams::new(5432, 1, 1, false).clients[0];
        let mut names = Names::default();
        let mut variables = Variables::default();
        for (name, text) in defined {
            variables.set_text(names.intern(name.as_bytes()).unwrap(), text.as_bytes());
        }
        Self { names, variables, random, stack: Vec::new(), shown: Vec::new() }
    }

    pub fn parse(&mut self, text: &str) -> Expression {
        let parsed = Expression::parse(text.as_bytes(), 0, &mut self.names);
        parsed.unwrap_or_else(|error| panic!("{text}: {error:?}")).0
    }

    pub fn value(&mut self, text: &str) -> Result<Value, String> {
        let expression = self.parse(text);
        self.run(&expression)
    }

    pub fn run(&mut self, expression: &Expression) -> Result<Value, String> {
        let shown = &mut self.shown;
        let mut scope = Scope {
            names: &self.names,
            variables: &mut self.variables,
            random: &mut self.random,
            stack: &mut self.stack,
            debug: &mut |value| shown.push(value),
        };
        expression.evaluate(&mut scope).map_err(|error| error.to_string())
    }

    /// The value in the format of `debug()`.
    pub fn shown(&mut self, text: &str) -> String {
        match self.value(text) {
            Ok(value) => DebugLine { script: 0, command: 0, value }.to_string().split_off(27),
            Err(message) => message,
        }
    }
}
