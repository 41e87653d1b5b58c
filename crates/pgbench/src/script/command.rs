//! Commands of a script.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sql::Sql;
use crate::expression::Expression;
use crate::variables::Slot;

/// Maximum number of words of a backslash command, including its name.
pub const WORDS_MAX: usize = 256;

/// Values of `\sample` by its source: the words after FROM, separated by one space.
pub type Samples = BTreeMap<String, Arc<[String]>>;

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Line shown in reports.
    pub line: String,
    /// Action.
    pub action: Action,
}

/// Action of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// SQL with optional `\gset` or `\aset`.
    Sql(Sql),
    /// `\set`.
    Set {
        /// Name of the command as in the script, for messages.
        word: String,
        /// The variable.
        variable: Slot,
        /// Value.
        expression: Expression,
    },
    /// `\if`, and `\elif`.
    If {
        /// See [`Action::Set`].
        word: String,
        /// Whether it is `\elif`. Reached from a branch that was taken, it jumps to the end.
        elif: bool,
        /// The condition.
        condition: Expression,
        /// Index of the next `\elif`, `\else` or `\endif` of this `\if`.
        otherwise: usize,
        /// Index of its `\endif`.
        end: usize,
    },
    /// `\else`.
    Else {
        /// Index of its `\endif`.
        end: usize,
    },
    /// `\endif`.
    EndIf,
    /// `\sample`.
    Sample(Sample),
    /// `\sleep`.
    Sleep(Sleep),
    /// `\shell` and `\setshell`.
    Shell(Shell),
    /// `\startpipeline`.
    StartPipeline,
    /// `\syncpipeline`.
    SyncPipeline,
    /// `\endpipeline`.
    EndPipeline,
}

/// Values of `\sample`, a command of pgdyno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The variable.
    pub variable: Slot,
    /// Words after FROM: the column and how its values are drawn.
    pub source: String,
    /// The values; none while a script is only checked.
    pub values: Arc<[String]>,
}

/// Argument of `\sleep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// See [`Action::Set`].
    pub word: String,
    /// Duration.
    pub time: SleepTime,
    /// Microseconds per unit.
    pub unit_us: i64,
}

/// A number, or the variable that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepTime {
    /// Number of units.
    Constant(i64),
    /// A variable.
    Variable(Slot),
}

/// A shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// Variable of `\setshell` for the integer that the command prints.
    pub variable: Option<Slot>,
    /// Command and arguments, at least one word.
    pub words: Vec<ShellWord>,
}

/// A word of a shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellWord {
    /// Literal text. Of several leading colons, one is removed.
    Literal(Vec<u8>),
    /// One colon and a name.
    Variable(Slot),
}
