//! Shell commands: their text from words and variables, and their output.

use super::{Abort, Client};
use crate::script::Scripts;
use crate::script::command::{Shell, ShellWord};
use crate::value::Value;

use crate::value::parse::{is_space, leading_int};

/// Maximum length of a shell command, including the zero byte and one more byte that pgbench does not use.
pub const COMMAND_BYTES_MAX: usize = 256;

/// Maximum number of bytes read from the first line of the output.
pub const OUTPUT_BYTES_MAX: usize = 63;

impl Client {
    /// Appends the shell command of the last step to `out`, for `/bin/sh -c`.
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

    /// The abort of a shell command, such as "could not launch shell command" if `\shell` exits with a nonzero
    /// status.
    #[must_use]
    pub fn shell_failed(&self, scripts: &Scripts, shell: &Shell, problem: &str) -> Abort {
        let name = word(scripts, shell, 0).unwrap_or_default();
        let command = if shell.variable.is_some() { "setshell" } else { "shell" };
        self.abort(vec![format!("{name}: {problem}")], command, "execution of meta-command failed")
    }

    /// pgbench's debug line with the output of a `\setshell` command.
    #[must_use]
    pub fn shell_printed(scripts: &Scripts, shell: &Shell, output: &[u8]) -> String {
        let name = word(scripts, shell, 0).unwrap_or_default();
        let parameter = word(scripts, shell, 1).unwrap_or_else(|| "(null)".to_owned());
        let value = String::from_utf8_lossy(output);
        format!("{name}: shell parameter name: \"{parameter}\", value: \"{value}\"")
    }

    /// Stores the output of a `\setshell` command: its first line must be a 32-bit integer.
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

/// A word of the command as written in the script.
fn word(scripts: &Scripts, shell: &Shell, place: usize) -> Option<String> {
    Some(match shell.words.get(place)? {
        ShellWord::Literal(text) => String::from_utf8_lossy(text).into_owned(),
        ShellWord::Variable(slot) => format!(":{}", scripts.names.text(*slot)),
    })
}

/// White space, a sign and digits, white space. A blank line counts as 0.
fn is_int_line(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let digits = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    line.iter().all(|&byte| is_space(byte)) || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}
