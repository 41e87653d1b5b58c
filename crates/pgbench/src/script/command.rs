//! The commands of a script.

use super::sql::Sql;
use crate::expression::Expression;
use crate::variables::Slot;

/// How many words a backslash command can have, its name included.
pub const WORDS_MAX: usize = 256;

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// What a report shows of it.
    pub line: String,
    /// What it does.
    pub action: Action,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// SQL, with its `\gset` or `\aset`.
    Sql(Sql),
    /// `\set`.
    Set {
        /// The command's name as the script has it, for messages.
        word: String,
        /// The variable.
        variable: Slot,
        /// Its value.
        expression: Expression,
    },
    /// `\if`, and `\elif` after a branch that was not taken.
    If {
        /// As of [`Action::Set`].
        word: String,
        /// Whether it is `\elif`: reached from a branch that was taken, it goes to the end.
        elif: bool,
        /// The condition.
        condition: Expression,
        /// The index of the next `\elif`, `\else` or `\endif` of this `\if`.
        otherwise: usize,
        /// The index of its `\endif`.
        end: usize,
    },
    /// `\else`.
    Else {
        /// The index of its `\endif`.
        end: usize,
    },
    /// `\endif`.
    EndIf,
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

/// The argument of `\sleep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// As of [`Action::Set`].
    pub word: String,
    /// How long.
    pub time: SleepTime,
    /// Microseconds in a unit of it.
    pub unit_us: i64,
}

/// A number or the variable that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepTime {
    /// In units.
    Constant(i64),
    /// A variable.
    Variable(Slot),
}

/// A shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// What takes the integer that the command prints: the variable of `\setshell`.
    pub variable: Option<Slot>,
    /// The command and its arguments; there is one at least.
    pub words: Vec<ShellWord>,
}

/// A word of a shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellWord {
    /// As it is. Of several colons before it one is gone.
    Literal(Vec<u8>),
    /// One colon and a name.
    Variable(Slot),
}
