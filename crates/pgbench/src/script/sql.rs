//! SQL commands and their variables.
//!
//! A variable is a colon and a name. pgbench replaces it in quotes and comments, too. Of several consecutive
//! colons none starts a variable, which preserves casts.

use super::error::ScriptError;
use crate::effort;
use crate::variables::{Names, Slot, TooManyVariables, Variables, name_length};

/// Maximum number of parameters of a statement in the extended protocol.
pub const PARAMETERS_MAX: usize = 255;

/// Maximum number of bytes of a command in reports.
const SHOWN_BYTES_MAX: usize = 127;

/// Storage of a result in variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `\aset`: the last row, if any, of every result of a combined command. Otherwise `\gset`: the only row of
    /// the last result.
    pub every: bool,
    /// Prefix of column names in the names of variables.
    pub prefix: Vec<u8>,
}

/// An SQL command.
#[derive(Clone, Debug, PartialEq)]
pub struct Sql {
    /// Text as in the script.
    pub(super) text: Vec<u8>,
    /// Positions of variables in order: first byte, byte after the last, slot.
    variables: Vec<(usize, usize, Slot)>,
    /// Storage of the result, if any.
    pub store: Option<Store>,
    /// Number among the SQL commands of all scripts, for the name of its prepared statement.
    pub number: usize,
}

/// A command for the extended protocol, with one parameter for each occurrence of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Text with `$1`, `$2` and so on.
    pub text: Vec<u8>,
    /// Variable of each parameter. An undefined one is sent as SQL null, a null value as the text `NULL`.
    pub parameters: Vec<Slot>,
}

impl Sql {
    pub(super) fn parse(text: &[u8], names: &mut Names, number: usize) -> Result<Self, TooManyVariables> {
        let mut variables = Vec::new();
        let mut at = 0;
        while let Some(colon) = text[at..].iter().position(|&byte| byte == b':') {
            let start = at + colon;
            effort::spend(colon + 1);
            let length = name_length(&text[start + 1..]);
            effort::spend(length);
            at = start + 1 + length;
            if length > 0 {
                variables.push((start, at, names.intern(&text[start + 1..at])?));
            } else {
                let colons = text[at..].iter().take_while(|&&byte| byte == b':').count();
                effort::spend(colons);
                at += colons;
            }
        }
        effort::spend(text.len() - at);
        Ok(Self { text: text.to_vec(), variables, store: None, number })
    }

    /// The first line for reports, truncated.
    pub fn first_line(&self) -> String {
        let line = self.text.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
        String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES_MAX)]).into_owned()
    }

    /// Appends the text with the values of the variables, for the simple protocol. Undefined variables are
    /// unchanged.
    pub fn write_simple(&self, variables: &Variables, out: &mut Vec<u8>) {
        let mut written = 0;
        for &(start, end, slot) in &self.variables {
            out.extend_from_slice(&self.text[written..start]);
            if !variables.write_text(slot, out) {
                out.extend_from_slice(&self.text[start..end]);
            }
            written = end;
        }
        out.extend_from_slice(&self.text[written..]);
    }

    /// The command for the extended protocol, with or without prepared statements.
    pub fn extended(&self) -> Result<Extended, ScriptError> {
        if self.variables.len() > PARAMETERS_MAX {
            let shown = String::from_utf8_lossy(&self.text);
            return Err(
                format!("statement has too many arguments (maximum is {PARAMETERS_MAX}): {shown}").into()
            );
        }
        let mut text = Vec::with_capacity(self.text.len());
        let mut written = 0;
        for (number, &(start, end, _)) in self.variables.iter().enumerate() {
            text.extend_from_slice(&self.text[written..start]);
            text.extend_from_slice(format!("${}", number + 1).as_bytes());
            written = end;
        }
        text.extend_from_slice(&self.text[written..]);
        Ok(Extended { text, parameters: self.variables.iter().map(|&(_, _, slot)| slot).collect() })
    }

    /// Name of the prepared statement, as in pgbench.
    pub fn prepared_name(&self) -> String {
        format!("P_{}", self.number)
    }
}
