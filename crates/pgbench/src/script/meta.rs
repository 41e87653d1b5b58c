//! Parser of backslash commands.

use super::command::{Action, Command, Sample, Samples, Shell, ShellWord, Sleep, SleepTime, WORDS_MAX};
use super::error::{Place, ScriptError};
use super::sql::Store;
use super::words::{self, Word};
use crate::effort;
use crate::expression::Expression;
use crate::value::parse_int;
use crate::variables::{Names, Slot, is_name};

/// A backslash command: an action, or a modifier of the preceding SQL.
pub enum Meta {
    /// A command.
    Action(Action),
    /// `\gset` or `\aset`.
    Store(Store),
}

/// Parser of one backslash command.
pub struct Reader<'a, 'n> {
    script: &'a [u8],
    at: &'n mut usize,
    names: &'n mut Names,
    samples: Option<&'n Samples>,
    place: Place<'a>,
    words: Vec<Word<'a>>,
}

/// Parses the command after a backslash and moves `at` after its line; `None` without a command.
pub fn read<'a>(
    script: &'a [u8],
    at: &mut usize,
    names: &mut Names,
    samples: Option<&Samples>,
    place: Place<'a>,
) -> Result<Option<Meta>, ScriptError> {
    let Some(first) = words::next(script, at) else { return Ok(None) };
    Reader { script, at, names, samples, place, words: vec![first] }.command().map(Some)
}

/// The line of a command, from its backslash to the byte `end`, without the newline.
pub fn line(script: &[u8], start: usize, end: usize) -> String {
    let line = &script[start..end];
    effort::spend(line.len());
    let kept = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&line[..kept]).into_owned()
}

impl Reader<'_, '_> {
    fn command(mut self) -> Result<Meta, ScriptError> {
        let name = self.words[0].text.to_ascii_lowercase();
        match name.as_slice() {
            b"set" => return self.set().map(Meta::Action),
            b"if" | b"elif" => return self.condition(name == b"elif").map(Meta::Action),
            _ => self.read_words()?,
        }
        let action = match name.as_slice() {
            b"gset" | b"aset" => return self.store(name == b"aset").map(Meta::Store),
            b"sleep" => Action::Sleep(self.sleep()?),
            b"setshell" => Action::Shell(self.set_shell()?),
            b"shell" => Action::Shell(self.shell()?),
            b"sample" if self.samples.is_some() => Action::Sample(self.sample()?),
            b"else" => self.alone(Action::Else { end: 0 })?,
            b"endif" => self.alone(Action::EndIf)?,
            b"startpipeline" => self.alone(Action::StartPipeline)?,
            b"syncpipeline" => self.alone(Action::SyncPipeline)?,
            b"endpipeline" => self.alone(Action::EndPipeline)?,
            _ => return Err(self.wrong("invalid command", None)),
        };
        Ok(Meta::Action(action))
    }

    fn word(&self) -> String {
        String::from_utf8_lossy(self.words[0].text).into_owned()
    }

    fn read_words(&mut self) -> Result<(), ScriptError> {
        while let Some(word) = words::next(self.script, self.at) {
            if self.words.len() >= WORDS_MAX {
                return Err(self.place.error("too many arguments", None, Some(&self.word())));
            }
            self.words.push(word);
        }
        Ok(())
    }

    /// An error of the command with its line, and a caret under the argument.
    fn wrong(&self, message: &str, at: Option<usize>) -> ScriptError {
        self.wrong_with(message, None, at)
    }

    fn wrong_with(&self, message: &str, detail: Option<&[u8]>, at: Option<usize>) -> ScriptError {
        let detail = detail.map(String::from_utf8_lossy);
        ScriptError {
            line: Some(line(self.script, self.place.start, *self.at)),
            column: at.map(|at| at - self.place.start),
            ..self.place.error(message, detail.as_deref(), Some(&self.word()))
        }
    }

    fn intern(&mut self, name: &[u8]) -> Result<Slot, ScriptError> {
        self.names.intern(name).map_err(|error| self.wrong(&error.to_string(), None))
    }

    fn expression(&mut self) -> Result<Expression, ScriptError> {
        match Expression::parse(self.script, *self.at, self.names) {
            Ok((expression, end)) => {
                *self.at = end;
                Ok(expression)
            }
            Err(error) => {
                *self.at = error.line_end;
                let detail = error.detail.as_deref().map(str::as_bytes);
                Err(self.wrong_with(error.message, detail, Some(error.at.max(self.place.start))))
            }
        }
    }

    fn set(&mut self) -> Result<Action, ScriptError> {
        let Some(name) = words::next(self.script, self.at) else {
            return Err(self.place.error("missing argument", None, Some(&self.word())));
        };
        let expression = self.expression()?;
        Ok(Action::Set { word: self.word(), variable: self.intern(name.text)?, expression })
    }

    fn condition(&mut self, elif: bool) -> Result<Action, ScriptError> {
        Ok(Action::If { word: self.word(), elif, condition: self.expression()?, otherwise: 0, end: 0 })
    }

    fn alone(&self, action: Action) -> Result<Action, ScriptError> {
        if self.words.len() == 1 { Ok(action) } else { Err(self.wrong("unexpected argument", None)) }
    }

    fn store(&self, every: bool) -> Result<Store, ScriptError> {
        if self.words.len() > 2 {
            return Err(self.wrong("too many arguments", None));
        }
        Ok(Store { every, prefix: self.words.get(1).map(|word| word.text.to_vec()).unwrap_or_default() })
    }

    /// Parses `NAME FROM SOURCE…`. Whoever finds the values reads the source.
    fn sample(&mut self) -> Result<Sample, ScriptError> {
        let [_, name, from, ref source @ ..] = self.words[..] else {
            return Err(self.wrong("missing argument", None));
        };
        if !is_name(name.text) {
            return Err(self.wrong_with("invalid variable name", Some(name.text), Some(name.start)));
        }
        if !from.text.eq_ignore_ascii_case(b"from") {
            return Err(self.wrong_with("FROM expected", Some(from.text), Some(from.start)));
        }
        let words: Vec<_> = source.iter().map(|word| String::from_utf8_lossy(word.text)).collect();
        if words.is_empty() {
            return Err(self.wrong("missing argument", None));
        }
        let source = words.join(" ");
        let values = self.samples.and_then(|samples| samples.get(&source)).cloned().unwrap_or_default();
        Ok(Sample { variable: self.intern(name.text)?, source, values })
    }

    /// Parses a number or a variable, and a unit, separated or directly after the number.
    fn sleep(&mut self) -> Result<Sleep, ScriptError> {
        let (time, mut unit) = match self.words[1..] {
            [] => return Err(self.wrong("missing argument", None)),
            [time] => (time, None),
            [time, unit] => (time, Some(unit)),
            [_, _, third, ..] => return Err(self.wrong("too many arguments", Some(third.start))),
        };
        let time = if let [b':', name @ ..] = time.text {
            SleepTime::Variable(self.intern(name)?)
        } else {
            let sign = usize::from(matches!(time.text, [b'+' | b'-', ..]));
            let digits = time.text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (number, rest) = time.text.split_at(sign + digits);
            if !rest.is_empty() {
                if unit.is_some() || digits == 0 {
                    let message = "invalid sleep time, must be an integer";
                    return Err(self.wrong_with(message, Some(time.text), Some(time.start)));
                }
                unit = Some(Word { text: rest, start: time.start + number.len() });
            }
            SleepTime::Constant(if digits == 0 { 0 } else { parse_int(number).unwrap_or(i64::MAX) })
        };
        let unit_us = match unit.map(|unit| unit.text.to_ascii_lowercase()).as_deref() {
            None | Some(b"s") => 1_000_000,
            Some(b"ms") => 1000,
            Some(b"us") => 1,
            Some(_) => {
                let message = "unrecognized time unit, must be us, ms or s";
                let (text, start) = unit.map(|unit| (unit.text, unit.start)).unzip();
                return Err(self.wrong_with(message, text, start));
            }
        };
        Ok(Sleep { word: self.word(), time, unit_us })
    }

    fn set_shell(&mut self) -> Result<Shell, ScriptError> {
        let [_, variable, _, ..] = self.words[..] else { return Err(self.wrong("missing argument", None)) };
        let variable = self.intern(variable.text)?;
        Ok(Shell { variable: Some(variable), words: self.shell_words(2)? })
    }

    fn shell(&mut self) -> Result<Shell, ScriptError> {
        if self.words.len() < 2 {
            return Err(self.wrong("missing command", None));
        }
        Ok(Shell { variable: None, words: self.shell_words(1)? })
    }

    fn shell_words(&mut self, first: usize) -> Result<Vec<ShellWord>, ScriptError> {
        let words = self.words.split_off(first);
        let word = |word: &Word<'_>| match word.text {
            [b':', rest @ ..] if rest.first() == Some(&b':') => Ok(ShellWord::Literal(rest.to_vec())),
            [b':', name @ ..] => self.intern(name).map(ShellWord::Variable),
            literal => Ok(ShellWord::Literal(literal.to_vec())),
        };
        words.iter().map(word).collect()
    }
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
            return Err(error(script, index, problem));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(error(script, commands.len(), "\\if without matching \\endif")) }
}

fn error(script: &str, index: usize, problem: &str) -> ScriptError {
    format!("condition error in script \"{script}\" command {}: {problem}", index + 1).into()
}

fn visit(commands: &mut [Command], index: usize, open: &mut Vec<Open>) -> Result<(), &'static str> {
    match commands[index].action {
        Action::If { elif: false, .. } => {
            open.push(Open { undecided: Some(index), to_end: vec![index] });
        }
        Action::If { elif: true, .. } => {
            let open = open.last_mut().ok_or("\\elif without matching \\if")?;
            let before = open.undecided.replace(index).ok_or("\\elif after \\else")?;
            set_otherwise(commands, before, index);
            open.to_end.push(index);
        }
        Action::Else { .. } => {
            let open = open.last_mut().ok_or("\\else without matching \\if")?;
            let before = open.undecided.take().ok_or("\\else after \\else")?;
            set_otherwise(commands, before, index);
            open.to_end.push(index);
        }
        Action::EndIf => {
            let closed = open.pop().ok_or("\\endif without matching \\if")?;
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
