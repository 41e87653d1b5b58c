//! Shell commands: their text from words and variables, and what they print.

use super::{Abort, Client};
use crate::script::Scripts;
use crate::script::command::{Shell, ShellWord};
use crate::value::Value;

use crate::value::parse::{is_space, leading_int};

/// How long a shell command can be, with the zero byte that ends it and one more, which pgbench does not use.
pub const COMMAND_BYTES_MAX: usize = 256;

/// How much of the first line of the output is read.
pub const OUTPUT_BYTES_MAX: usize = 63;

impl Client {
    /// Appends the text of the shell command of the last step to `out`, for `/bin/sh -c`.
    pub fn shell_command(&self, scripts: &Scripts, shell: &Shell, out: &mut Vec<u8>) -> Result<(), Abort> {
        let start = out.len();
        for (place, word) in shell.words.iter().enumerate() {
            if place > 0 {
                out.push(b' ');
            }
            match word {
                ShellWord::Literal(text) => out.extend_from_slice(text),
                ShellWord::Variable(slot) => {
                    if !self.variables.write_text(*slot, out) {
                        let problem = format!("undefined variable \":{}\"", scripts.names.text(*slot));
                        return Err(self.shell_failed(scripts, shell, &problem));
                    }
                }
            }
            if out.len() - start >= COMMAND_BYTES_MAX - 1 {
                return Err(self.shell_failed(scripts, shell, "shell command is too long"));
            }
        }
        Ok(())
    }

    /// The abort of a shell command: "could not launch shell command" where `\shell` ends with another status than 0.
    #[must_use]
    pub fn shell_failed(&self, scripts: &Scripts, shell: &Shell, problem: &str) -> Abort {
        let name = word(scripts, shell, 0).unwrap_or_default();
        let command = if shell.variable.is_some() { "setshell" } else { "shell" };
        self.abort(vec![format!("{name}: {problem}")], command, "execution of meta-command failed")
    }

    /// What pgbench tells, where faults are sought, of what a command of `\setshell` has printed.
    #[must_use]
    pub fn shell_printed(scripts: &Scripts, shell: &Shell, output: &[u8]) -> String {
        let name = word(scripts, shell, 0).unwrap_or_default();
        let parameter = word(scripts, shell, 1).unwrap_or_else(|| "(null)".to_owned());
        let value = String::from_utf8_lossy(output);
        format!("{name}: shell parameter name: \"{parameter}\", value: \"{value}\"")
    }

    /// Takes what a command of `\setshell` has printed, of which the first line counts: an integer of 32 bits.
    pub fn take_shell_output(
        &mut self,
        scripts: &Scripts,
        shell: &Shell,
        output: &[u8],
    ) -> Result<(), Abort> {
        let line = output.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = &line[..line.len().min(OUTPUT_BYTES_MAX)];
        if line.is_empty() {
            return Err(self.shell_failed(scripts, shell, "could not read result of shell command"));
        }
        if !is_int_line(line) {
            let shown = String::from_utf8_lossy(line);
            let problem = format!("shell command must return an integer (not \"{shown}\")");
            return Err(self.shell_failed(scripts, shell, &problem));
        }
        let Some(variable) = shell.variable else { return Ok(()) };
        let value = Value::Int(i64::from(leading_int(line) as i32));
        self.assign(variable, value, "setshell", scripts).map_err(|abort| {
            let first = abort.messages.into_iter().take(1).collect();
            self.abort(first, "setshell", "execution of meta-command failed")
        })
    }
}

/// A word of the command as it is written.
fn word(scripts: &Scripts, shell: &Shell, place: usize) -> Option<String> {
    Some(match shell.words.get(place)? {
        ShellWord::Literal(text) => String::from_utf8_lossy(text).into_owned(),
        ShellWord::Variable(slot) => format!(":{}", scripts.names.text(*slot)),
    })
}

/// Space, a sign and digits, space. A line of space alone counts as 0.
fn is_int_line(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let digits = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    line.iter().all(|&byte| is_space(byte)) || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}
