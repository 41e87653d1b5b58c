//! Text of an expression with all parentheses. Parsing it gives the same code.

use std::fmt::Write;

use crate::expression::Expression;
use crate::expression::functions::{FUNCTIONS, OPERATORS, Operation};
use crate::value::Value;
use crate::variables::Names;

impl Expression {
    /// Formats the expression.
    pub fn text(&self, names: &Names) -> String {
        let mut parts = Vec::new();
        for &operation in &self.code {
            print(operation, &mut parts, names);
        }
        parts.pop().unwrap_or_default()
    }
}

/// Replaces the texts of the operands at the end of `parts` with that of the operation.
fn print(operation: Operation, parts: &mut Vec<String>, names: &Names) {
    let mut pop = || parts.pop().unwrap_or_default();
    let text = match operation {
        Operation::Constant(value) => constant(value),
        Operation::Variable(slot) => format!(":{}", names.text(slot)),
        Operation::Negate => format!("(- {})", pop()),
        Operation::Complement => format!("(~ {})", pop()),
        Operation::Not => format!("(NOT {})", pop()),
        Operation::Is(value) => format!("({} IS {})", pop(), constant(value)),
        Operation::Binary(operator) => {
            let sign = OPERATORS.iter().find(|(_, known)| *known == operator).map_or("", |(sign, _)| sign);
            infix(parts, sign)
        }
        Operation::AndEnd => infix(parts, "AND"),
        Operation::OrEnd => infix(parts, "OR"),
        Operation::Call(function, count) => {
            let arguments = parts.split_off(parts.len().saturating_sub(count as usize));
            let name =
                FUNCTIONS.iter().find(|(_, known, _)| *known == function).map_or("", |(name, ..)| name);
            format!("{name}({})", arguments.join(", "))
        }
        Operation::CaseEnd(conditions) => case(parts, conditions as usize),
        Operation::AndThen(_) | Operation::OrElse(_) | Operation::Unless(_) | Operation::CaseSkip(_) => {
            return;
        }
    };
    parts.push(text);
}

fn infix(parts: &mut Vec<String>, sign: &str) -> String {
    let right = parts.pop().unwrap_or_default();
    format!("({} {sign} {right})", parts.pop().unwrap_or_default())
}

fn case(parts: &mut Vec<String>, conditions: usize) -> String {
    let parts = parts.split_off(parts.len().saturating_sub(2 * conditions + 1));
    let mut text = "CASE".to_owned();
    let mut branches = parts.chunks_exact(2);
    for branch in &mut branches {
        // Writing to a String cannot fail.
        let _ = write!(text, " WHEN {} THEN {}", branch[0], branch[1]);
    }
    format!("{text} ELSE {} END", branches.remainder().concat())
}

/// The shortest text that parses to the same double. No constant is negative except the minimum integer.
fn constant(value: Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Boolean(truth) => truth.to_string().to_uppercase(),
        Value::Int(int) => int.to_string(),
        Value::Double(double) => format!("{double:e}"),
    }
}
