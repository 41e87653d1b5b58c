//! SQL commands for the protocols with parameters, built once for all clients.

use crate::run::Protocol;
use crate::script::Scripts;
use crate::script::command::Action;
use crate::script::error::ScriptError;
use crate::variables::{Slot, Variables};
use pgwire::frontend::{self, EncodeError, Format, Target};

/// An SQL command.
#[derive(Debug)]
pub struct Statement {
    /// Name of the prepared statement; empty if it is parsed each time.
    pub name: String,
    /// Text with `$1` and so on.
    pub text: Vec<u8>,
    parameters: Vec<Slot>,
    /// Whether column names are needed.
    describes: bool,
}

/// Builds all SQL commands, by their number.
///
/// # Panics
///
/// Never: scripts number their commands in order.
pub fn all(scripts: &Scripts, protocol: Protocol) -> Result<Vec<Statement>, ScriptError> {
    let mut statements = Vec::with_capacity(scripts.statements());
    for command in scripts.scripts().iter().flat_map(|script| &script.commands) {
        if let Action::Sql(sql) = &command.action {
            let extended = sql.extended()?;
            let name = if protocol == Protocol::Prepared { sql.prepared_name() } else { String::new() };
            let (text, parameters, describes) = (extended.text, extended.parameters, sql.store.is_some());
            assert_eq!(statements.len(), sql.number);
            statements.push(Statement { name, text, parameters, describes });
        }
    }
    Ok(statements)
}

impl Statement {
    /// Appends the messages that execute it, without Sync.
    #[inline]
    pub fn write(&self, variables: &Variables, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.name.is_empty() {
            frontend::parse(out, "", &self.text, &[])?;
        }
        let parameters = &self.parameters;
        frontend::bind_text(out, &self.name, parameters.len(), Format::Text, |out, index| {
            variables.write_text(parameters[index], out)
        })?;
        if self.describes {
            frontend::describe(out, Target::Portal(""))?;
        }
        frontend::execute(out, "", 0)
    }
}
