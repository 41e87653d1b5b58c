//! Options that scripts define and the command line gives: types, values, and their text.

use std::fmt::Write;

/// The type of an option, with the number that scripts give (`sysbench.cmdline.ARG_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionType {
    /// No value.
    Null,
    /// `on` or `off`; without a value it is on.
    Bool,
    /// A whole number.
    Int,
    /// A whole number with a suffix: K, M, G, T, P or E.
    Size,
    /// A number.
    Double,
    /// A text.
    Text,
    /// Texts, separated by commas.
    List,
    /// The name of a file.
    File,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// `on` or `off`
    Bool(bool),
    /// A whole number or a size.
    Int(i64),
    /// A number.
    Double(f64),
    /// A text or the name of a file.
    Text(String),
    /// Texts.
    List(Vec<String>),
}

/// An option.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name, as the script wrote it.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its type.
    pub option_type: OptionType,
    /// Its default as text, if it has one.
    pub default: Option<String>,
}

impl OptionType {
    /// The type of this number.
    #[must_use]
    pub fn of_number(number: i64) -> Option<Self> {
        let types =
            [Self::Null, Self::Bool, Self::Int, Self::Size, Self::Double, Self::Text, Self::List, Self::File];
        types.get(usize::try_from(number).ok()?).copied()
    }

    /// Reads a value as sysbench does: a number ends where its digits end, and is 0 without any. A missing value is an empty text.
    #[must_use]
    pub fn read(self, text: &str) -> OptionValue {
        match self {
            Self::Bool => OptionValue::Bool(!matches!(text, "off" | "false" | "0")),
            Self::Int => OptionValue::Int(leading_int(text).0),
            Self::Size => OptionValue::Int(size(text)),
            Self::Double => OptionValue::Double(leading_double(text)),
            Self::List => {
                let parts = text.split(',').filter(|part| !part.is_empty());
                OptionValue::List(parts.map(|part| part.trim().to_owned()).collect())
            }
            Self::Null | Self::Text | Self::File => OptionValue::Text(text.to_owned()),
        }
    }

    /// Why sysbench does not take this text as a value of the option.
    #[must_use]
    pub fn refusal(self, name: &str, text: &str) -> Option<String> {
        match self {
            Self::Bool if !matches!(text, "" | "on" | "true" | "1" | "off" | "false" | "0") => {
                Some(format!("invalid option: --{name}={text}"))
            }
            Self::Int if !text.is_empty() && text.trim_start().parse::<i32>().is_err() => {
                Some(format!("Invalid value for the '{}' option: '{text}'", name.replace('-', "_")))
            }
            _ => None,
        }
    }

    /// The value's form in the help text, behind the option's name.
    #[must_use]
    pub fn form(self) -> &'static str {
        match self {
            Self::Null => "",
            Self::Bool => "[=on|off]",
            Self::Int | Self::Double => "=N",
            Self::Size => "=SIZE",
            Self::Text => "=STRING",
            Self::List => "=[LIST,...]",
            Self::File => "=FILENAME",
        }
    }
}

impl Definition {
    /// Its value if nobody gives one.
    #[must_use]
    pub fn default_value(&self) -> OptionValue {
        match (&self.default, self.option_type) {
            (None, OptionType::Bool) => OptionValue::Bool(false),
            (default, option_type) => option_type.read(default.as_deref().unwrap_or_default()),
        }
    }

    /// Its key in `sysbench.opt`.
    #[must_use]
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// The options as help shows them: sorted by name, descriptions in one column.
#[must_use]
pub fn help(definitions: &[Definition]) -> String {
    let mut sorted: Vec<_> = definitions.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let label = |definition: &Definition| format!("--{}{}", definition.name, definition.option_type.form());
    let width = sorted.iter().map(|definition| label(definition).len()).max().unwrap_or(0);
    sorted.into_iter().fold(String::new(), |mut text, definition| {
        let _ = write!(text, "  {:width$} {}", label(definition), definition.description);
        if let Some(default) = &definition.default {
            let _ = match definition.option_type {
                OptionType::List | OptionType::Text | OptionType::File if default.is_empty() => Ok(()),
                _ => write!(text, " [{default}]"),
            };
        }
        text.push('\n');
        text
    })
}

/// The integer that a text begins with, and what follows.
fn leading_int(text: &str) -> (i64, &str) {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = text.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    (text[..end].trim_start_matches('+').parse().unwrap_or(0), &text[end..])
}

fn leading_double(text: &str) -> f64 {
    let text = text.trim();
    (1..=text.len()).rev().find_map(|end| text.get(..end)?.parse().ok()).unwrap_or(0.0)
}

fn size(text: &str) -> i64 {
    let (number, rest) = leading_int(text);
    let power = rest
        .bytes()
        .next()
        .and_then(|suffix| b"KMGTPE".iter().position(|c| *c == suffix.to_ascii_uppercase()));
    power.map_or(number, |power| number.saturating_mul(1 << (10 * (power + 1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_sysbench_reads_them() {
        use OptionValue::{Bool, Double, Int};
        let cases = [
            (OptionType::Int, "7", Int(7)),
            (OptionType::Int, "-3", Int(-3)),
            (OptionType::Size, "3K", Int(3072)),
            (OptionType::Size, "1M", Int(1 << 20)),
            (OptionType::Size, "5", Int(5)),
            (OptionType::Double, "1e3", Double(1000.0)),
            (OptionType::Double, "7.5x", Double(7.5)),
            (OptionType::Bool, "", Bool(true)),
            (OptionType::Bool, "on", Bool(true)),
            (OptionType::Bool, "off", Bool(false)),
        ];
        for (option_type, text, expected) in cases {
            assert_eq!(option_type.read(text), expected, "{text}");
        }
        let list = OptionValue::List(vec!["x".into(), "y".into()]);
        assert_eq!(OptionType::List.read("x,y"), list);
    }

    #[test]
    fn values_that_sysbench_does_not_take_are_refused() {
        for (option_type, text, is_taken) in [
            (OptionType::Bool, "true", true),
            (OptionType::Bool, "0", true),
            (OptionType::Bool, "yes", false),
            (OptionType::Int, " 7", true),
            (OptionType::Int, "", true),
            (OptionType::Int, "7k", false),
            (OptionType::Int, "x", false),
            (OptionType::Int, "-", false),
            (OptionType::Int, "+3", true),
            (OptionType::Int, "99999999999", false),
            (OptionType::Double, "x", true),
        ] {
            assert_eq!(option_type.refusal("o", text).is_none(), is_taken, "{text}");
        }
    }

    #[test]
    fn help_is_sorted_and_aligned() {
        let option = |name: &str, option_type, default: Option<&str>| Definition {
            name: name.into(),
            description: format!("The {name}"),
            option_type,
            default: default.map(str::to_owned),
        };
        let definitions = [
            option("tables", OptionType::Int, Some("1")),
            option("auto_inc", OptionType::Bool, Some("on")),
            option("none", OptionType::Text, None),
        ];
        let expected = "  --auto_inc[=on|off] The auto_inc [on]\n  --none=STRING       The none\n  --tables=N          The tables [1]\n";
        assert_eq!(help(&definitions), expected);
    }
}
