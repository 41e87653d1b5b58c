//! Password prompt on the terminal, without echo.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Prompts on the terminal, or on standard error and standard input without one, as PostgreSQL's programs do.
///
/// `None` at the end of the input.
#[must_use]
pub fn ask(prompt: &str) -> Option<String> {
    if let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") {
        let _hidden = Hidden::new(&terminal);
        return ask_by(prompt, &mut &terminal, &mut BufReader::new(&terminal));
    }
    let stdin = io::stdin();
    let _hidden = Hidden::new(&stdin);
    ask_by(prompt, &mut io::stderr(), &mut stdin.lock())
}

fn ask_by(prompt: &str, out: &mut dyn Write, input: &mut dyn BufRead) -> Option<String> {
    // The prompt may not be visible, but the user may still answer.
    let _ = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
    let mut line = Vec::new();
    let read = input.read_until(b'\n', &mut line);
    // The newline was not echoed, either.
    let _ = out.write_all(b"\n");
    read.ok().filter(|&read| read > 0)?;
    let line = String::from_utf8_lossy(&line);
    Some(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal without echo, restored when dropped.
struct Hidden<'a, F: AsFd> {
    terminal: &'a F,
    before: Option<Termios>,
}

impl<'a, F: AsFd> Hidden<'a, F> {
    fn new(terminal: &'a F) -> Self {
        // Without a terminal there is no echo.
        let before = tcgetattr(terminal).ok();
        if let Some(before) = &before {
            let mut hidden = before.clone();
            hidden.local_modes -= LocalModes::ECHO;
            let _ = tcsetattr(terminal, OptionalActions::Flush, &hidden);
        }
        Self { terminal, before }
    }
}

impl<F: AsFd> Drop for Hidden<'_, F> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(self.terminal, OptionalActions::Flush, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_line_without_its_newline() {
        let cases = [
            ("secret\n", Some("secret")),
            (" a b \r\n", Some(" a b ")),
            ("last", Some("last")),
            ("\n", Some("")),
            ("", None),
        ];
        for (typed, password) in cases {
            let mut asked = Vec::new();
            assert_eq!(
                ask_by("Password: ", &mut asked, &mut typed.as_bytes()).as_deref(),
                password,
                "{typed:?}"
            );
            assert_eq!(asked, b"Password: \n");
        }
    }
}
