//! Resolution of `\if`, `\elif`, `\else` and `\endif` to jumps.

use super::command::{Action, Command};
use super::error::ScriptError;
use crate::effort;

/// A conditional command without a counterpart, with pgbench's message.
#[derive(Debug, thiserror::Error)]
enum ConditionError {
    #[error("\\if without matching \\endif")]
    IfWithoutEndIf,
    #[error("\\elif without matching \\if")]
    ElifWithoutIf,
    #[error("\\elif after \\else")]
    ElifAfterElse,
    #[error("\\else without matching \\if")]
    ElseWithoutIf,
    #[error("\\else after \\else")]
    ElseAfterElse,
    #[error("\\endif without matching \\if")]
    EndIfWithoutIf,
}

/// An open `\if`.
struct Open {
    /// Index of its last `\if` or `\elif`; `None` after `\else`.
    undecided: Option<usize>,
    /// Indices of the commands that jump to the end.
    to_end: Vec<usize>,
}

/// Sets the jump targets, or returns the first unmatched command.
pub fn link(script: &str, commands: &mut [Command]) -> Result<(), ScriptError> {
    let mut open = Vec::new();
    for index in 0..commands.len() {
        if let Err(problem) = visit(commands, index, &mut open) {
            return Err(error(script, index, &problem));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(error(script, commands.len(), &ConditionError::IfWithoutEndIf)) }
}

fn error(script: &str, index: usize, problem: &ConditionError) -> ScriptError {
    format!("condition error in script \"{script}\" command {}: {problem}", index + 1).into()
}

fn visit(commands: &mut [Command], index: usize, open: &mut Vec<Open>) -> Result<(), ConditionError> {
    match commands[index].action {
        Action::If { elif: false, .. } => {
            open.push(Open { undecided: Some(index), to_end: vec![index] });
        }
        Action::If { elif: true, .. } => {
            let open = open.last_mut().ok_or(ConditionError::ElifWithoutIf)?;
            let before = open.undecided.replace(index).ok_or(ConditionError::ElifAfterElse)?;
            set_otherwise(commands, before, index);
            open.to_end.push(index);
        }
        Action::Else { .. } => {
            let open = open.last_mut().ok_or(ConditionError::ElseWithoutIf)?;
            let before = open.undecided.take().ok_or(ConditionError::ElseAfterElse)?;
            set_otherwise(commands, before, index);
            open.to_end.push(index);
        }
        Action::EndIf => {
            let closed = open.pop().ok_or(ConditionError::EndIfWithoutIf)?;
            if let Some(before) = closed.undecided {
                set_otherwise(commands, before, index);
            }
            effort::spend(closed.to_end.len());
            for place in closed.to_end {
                if let Action::If { end, .. } | Action::Else { end } = &mut commands[place].action {
                    *end = index;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn set_otherwise(commands: &mut [Command], place: usize, to: usize) {
    if let Action::If { otherwise, .. } = &mut commands[place].action {
        *otherwise = to;
    }
}
