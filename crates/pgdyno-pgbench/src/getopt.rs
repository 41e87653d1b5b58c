//! Options as getopt_long takes them: combined short ones, unique beginnings of long ones, operands anywhere.

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// Its letter, or a zero byte.
    pub short: u8,
    /// Its long name.
    pub long: &'static str,
    /// Whether it takes a value.
    pub takes: bool,
    /// Whether a beginning of its long name will do.
    pub abbreviates: bool,
}

impl Spelling {
    fn is_meant(&self, name: &str) -> bool {
        if self.abbreviates { self.long.starts_with(name) } else { self.long == name }
    }
}

/// Options in order, each with its value; then the operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// By their long names.
    pub options: Vec<(&'static str, String)>,
    /// What is no option.
    pub operands: Vec<String>,
}

/// Reads arguments. The error is what getopt prints behind the program's name.
pub fn parse(spellings: &[Spelling], arguments: &[String]) -> Result<Parsed, String> {
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
                (true, None) => rest
                    .next()
                    .cloned()
                    .ok_or_else(|| format!("option '--{}' requires an argument", spelling.long))?,
                (false, Some(_)) => {
                    return Err(format!("option '--{}' doesn't allow an argument", spelling.long));
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

/// A word of short options, the last of which may take the rest of it, or the next argument, as its value.
fn short<'a>(
    spellings: &[Spelling],
    mut word: &str,
    rest: &mut impl Iterator<Item = &'a String>,
    parsed: &mut Parsed,
) -> Result<(), String> {
    while let Some(letter) = word.chars().next() {
        word = &word[letter.len_utf8()..];
        let spelling = spellings.iter().find(|spelling| char::from(spelling.short) == letter);
        let spelling = spelling.ok_or_else(|| format!("invalid option -- '{letter}'"))?;
        let value = match (spelling.takes, word) {
            (false, _) => String::new(),
            (true, "") => {
                rest.next().cloned().ok_or_else(|| format!("option requires an argument -- '{letter}'"))?
            }
            (true, value) => value.to_owned(),
        };
        parsed.options.push((spelling.long, value));
        if spelling.takes {
            break;
        }
    }
    Ok(())
}

fn find_long(spellings: &[Spelling], name: &str) -> Result<Spelling, String> {
    let found: Vec<_> = spellings.iter().filter(|spelling| spelling.is_meant(name)).collect();
    match found.as_slice() {
        [one] => Ok(**one),
        [] => Err(format!("unrecognized option '--{name}'")),
        several => {
            if let Some(exact) = several.iter().find(|spelling| spelling.long == name) {
                return Ok(**exact);
            }
            let names: Vec<_> = several.iter().map(|spelling| format!(" '--{}'", spelling.long)).collect();
            Err(format!("option '--{name}' is ambiguous; possibilities:{}", names.concat()))
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

    fn parsed(line: &str) -> Result<Parsed, String> {
        let arguments: Vec<_> = line.split(' ').map(str::to_owned).collect();
        parse(&SPELLINGS, &arguments)
    }

    #[test]
    fn options_are_taken_in_every_way_to_write_them() {
        for line in ["-nc4 db", "-n -c 4 db", "db -n -c 4", "--no-vacuum --client=4 db", "--no --cl 4 -- db"]
        {
            let read = parsed(line).expect(line);
            assert_eq!(read.options, [("no-vacuum", String::new()), ("client", "4".to_owned())], "{line}");
            assert_eq!(read.operands, ["db"], "{line}");
        }
    }

    #[test]
    fn an_option_that_must_be_spelt_in_full_makes_no_other_ambiguous() {
        let names = ["--no", "--no-wonder"].map(|line| parsed(line).unwrap_or_default().options[0].0);
        assert_eq!(names, ["no-vacuum", "no-wonder"]);
    }

    #[test]
    fn what_is_wrong_is_said_as_getopt_says_it() {
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
            assert_eq!(parsed(line), Err(message.to_owned()), "{line}");
        }
    }
}
