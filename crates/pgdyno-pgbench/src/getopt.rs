//! Option parsing as by getopt_long: combined short options, unique prefixes of long ones, operands at any
//! position.

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// Short option, or a zero byte.
    pub short: u8,
    /// Its long name.
    pub long: &'static str,
    /// Whether it takes a value.
    pub takes: bool,
    /// Whether a prefix of its long name is accepted.
    pub abbreviates: bool,
}

impl Spelling {
    fn is_meant(&self, name: &str) -> bool {
        if self.abbreviates { self.long.starts_with(name) } else { self.long == name }
    }
}

/// Options in order with their values, and operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// By their long names.
    pub options: Vec<(&'static str, String)>,
    /// Operands.
    pub operands: Vec<String>,
}

/// Errors of getopt, with its messages after the program's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetoptError {
    /// A long option without its value.
    #[error("option '--{0}' requires an argument")]
    MissingValue(&'static str),
    /// A long option with a value that it does not take.
    #[error("option '--{0}' doesn't allow an argument")]
    UnexpectedValue(&'static str),
    /// A short option without its value.
    #[error("option requires an argument -- '{0}'")]
    MissingShortValue(char),
    /// Unknown short option.
    #[error("invalid option -- '{0}'")]
    UnknownLetter(char),
    /// Unknown long option.
    #[error("unrecognized option '--{0}'")]
    UnknownName(String),
    /// Ambiguous prefix.
    #[error("option '--{name}' is ambiguous; possibilities:{}", listed(.possible))]
    Ambiguous {
        /// As given.
        name: String,
        /// Matching options.
        possible: Vec<&'static str>,
    },
}

fn listed(names: &[&str]) -> String {
    names.iter().flat_map(|name| [" '--", name, "'"]).collect()
}

/// Parses arguments.
pub fn parse(spellings: &[Spelling], arguments: &[String]) -> Result<Parsed, GetoptError> {
    let mut parsed = Parsed::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            parsed.operands.extend(rest.cloned());
            break;
        } else if let Some(long) = argument.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            let spelling = find_long(spellings, name)?;
            let value = match (spelling.takes, value) {
                (true, Some(value)) => value.to_owned(),
                (true, None) => rest.next().cloned().ok_or(GetoptError::MissingValue(spelling.long))?,
                (false, Some(_)) => {
                    return Err(GetoptError::UnexpectedValue(spelling.long));
                }
                (false, None) => String::new(),
            };
            parsed.options.push((spelling.long, value));
        } else if argument.len() > 1 && argument.starts_with('-') {
            short(spellings, &argument[1..], &mut rest, &mut parsed)?;
        } else {
            parsed.operands.push(argument.clone());
        }
    }
    Ok(parsed)
}

/// Parses a group of short options. The last one may take the rest of the group, or the next argument, as its
/// value.
fn short<'a>(
    spellings: &[Spelling],
    mut word: &str,
    rest: &mut impl Iterator<Item = &'a String>,
    parsed: &mut Parsed,
) -> Result<(), GetoptError> {
    while let Some(letter) = word.chars().next() {
        word = &word[letter.len_utf8()..];
        let spelling = spellings.iter().find(|spelling| char::from(spelling.short) == letter);
        let spelling = spelling.ok_or(GetoptError::UnknownLetter(letter))?;
        let value = match (spelling.takes, word) {
            (false, _) => String::new(),
            (true, "") => rest.next().cloned().ok_or(GetoptError::MissingShortValue(letter))?,
            (true, value) => value.to_owned(),
        };
        parsed.options.push((spelling.long, value));
        if spelling.takes {
            break;
        }
    }
    Ok(())
}

fn find_long(spellings: &[Spelling], name: &str) -> Result<Spelling, GetoptError> {
    let found: Vec<_> = spellings.iter().filter(|spelling| spelling.is_meant(name)).collect();
    match found.as_slice() {
        [one] => Ok(**one),
        [] => Err(GetoptError::UnknownName(name.to_owned())),
        several => {
            if let Some(exact) = several.iter().find(|spelling| spelling.long == name) {
                return Ok(**exact);
            }
            let possible = several.iter().map(|spelling| spelling.long).collect();
            Err(GetoptError::Ambiguous { name: name.to_owned(), possible })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPELLINGS: [Spelling; 5] = [
        Spelling { short: b'c', long: "client", takes: true, abbreviates: true },
        Spelling { short: b'C', long: "connect", takes: false, abbreviates: true },
        Spelling { short: b'n', long: "no-vacuum", takes: false, abbreviates: true },
        Spelling { short: 0, long: "max-tries", takes: true, abbreviates: true },
        Spelling { short: 0, long: "no-wonder", takes: false, abbreviates: false },
    ];

    fn parsed(line: &str) -> Result<Parsed, GetoptError> {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        parse(&SPELLINGS, &arguments)
    }

    #[test]
    fn options_are_accepted_in_every_notation() {
        for line in ["-nc4 db", "-n -c 4 db", "db -n -c 4", "--no-vacuum --client=4 db", "--no --cl 4 -- db"]
        {
            let read = parsed(line).expect(line);
            assert_eq!(read.options, [("no-vacuum", String::new()), ("client", "4".to_owned())], "{line}");
            assert_eq!(read.operands, ["db"], "{line}");
        }
    }

    #[test]
    fn an_option_without_abbreviation_does_not_make_others_ambiguous() {
        let names = ["--no", "--no-wonder"].map(|line| parsed(line).unwrap_or_default().options[0].0);
        assert_eq!(names, ["no-vacuum", "no-wonder"]);
    }

    #[test]
    fn errors_have_the_messages_of_getopt() {
        let cases = [
            ("-x", "invalid option -- 'x'"),
            ("-c", "option requires an argument -- 'c'"),
            ("--client", "option '--client' requires an argument"),
            ("--no-vacuum=1", "option '--no-vacuum' doesn't allow an argument"),
            ("--no-w", "unrecognized option '--no-w'"),
            ("--nothing", "unrecognized option '--nothing'"),
            ("--c", "option '--c' is ambiguous; possibilities: '--client' '--connect'"),
        ];
        for (line, message) in cases {
            assert_eq!(parsed(line).map_err(|error| error.to_string()), Err(message.to_owned()), "{line}");
        }
    }
}
