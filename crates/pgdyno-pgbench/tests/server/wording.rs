//! Comparison of messages by meaning, because an installed pgbench of another minor version may have other
//! texts.
//!
//! Two lines are equivalent if their level and their values are equal, and at least half of their words. Values
//! are quoted texts, numbers, variables and meta-commands. Errors of the server are compared exactly, because
//! both programs use the same server. The exact output is in `golden`.

use std::fmt::Debug;

/// Start of a server error in a line; libpq puts two spaces after its level.
const REPORTS: [&str; 8] =
    ["ERROR:  ", "FATAL:  ", "PANIC:  ", "WARNING:  ", "NOTICE:  ", "DETAIL:  ", "HINT:  ", "CONTEXT:  "];

const LEVELS: [&str; 4] = ["error:", "warning:", "detail:", "hint:"];

/// Panics unless both are equivalent, line by line. Hints are optional and do not count.
pub fn assert_equivalent(ours: &[String], real: &[String], what: impl Debug) {
    let without_hints = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.starts_with("pgbench: hint: ")).cloned().collect()
    };
    let (our_lines, real_lines) = (without_hints(ours), without_hints(real));
    let alike = our_lines.len() == real_lines.len()
        && our_lines.iter().zip(&real_lines).all(|(ours, real)| mean_the_same(ours, real));
    assert!(alike, "{what:?} means another thing\n  ours: {ours:#?}\n  real: {real:#?}");
}

/// Panics unless both texts of several lines are equivalent.
pub fn assert_texts_equivalent(ours: &str, real: &str, what: impl Debug) {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    assert_equivalent(&lines(ours), &lines(real), what);
}

/// The position of a server error in this line, if any.
pub fn report_in(line: &str) -> Option<usize> {
    REPORTS.iter().filter_map(|report| line.find(report)).min()
}

fn mean_the_same(ours: &str, real: &str) -> bool {
    if ours == real {
        return true;
    }
    let (ours, real) = (Meaning::of(ours), Meaning::of(real));
    let mut left = real.words.clone();
    let mut common = 0;
    for word in &ours.words {
        if let Some(at) = left.iter().position(|other| other == word) {
            left.swap_remove(at);
            common += 1;
        }
    }
    let is_same = (&ours.level, &ours.values, ours.report) == (&real.level, &real.values, real.report);
    is_same && 2 * common >= ours.words.len().max(real.words.len())
}

#[derive(Debug)]
struct Meaning<'a> {
    level: String,
    values: Vec<String>,
    words: Vec<String>,
    report: &'a str,
}

impl<'a> Meaning<'a> {
    fn of(line: &'a str) -> Self {
        let (own, report) = line.split_at(report_in(line).unwrap_or(line.len()));
        let own_words = own.strip_prefix("pgbench: ");
        let level = own_words.and_then(|text| LEVELS.iter().find(|level| text.starts_with(**level)));
        let level = format!("{}{}", own_words.map_or("", |_| "pgbench: "), level.map_or("", |level| *level));
        let mut meaning = Self { level, values: vec![], words: vec![], report };
        if own.trim_start().starts_with('^') {
            // It points to a column of the line above.
            meaning.values.push(format!("column {}", own.find('^').unwrap_or_default()));
        }
        for (at, part) in own[meaning.level.len()..].split('"').enumerate() {
            if at % 2 == 1 {
                meaning.values.push(part.to_owned());
            } else {
                part.split_whitespace().for_each(|token| meaning.add(token));
            }
        }
        meaning
    }

    fn add(&mut self, token: &str) {
        let core = token.trim_matches(|c: char| "(),.;".contains(c));
        let is_option = core.starts_with('-') && core.contains(|c: char| c.is_ascii_alphabetic());
        let is_value =
            core.contains(|c: char| c.is_ascii_digit() || c == '#') || core.starts_with([':', '\\']);
        if is_value && !is_option {
            self.values.push(core.to_owned());
        } else if !core.is_empty() {
            self.words.push(core.to_owned());
        }
    }
}

#[test]
fn different_words_are_equivalent_and_different_values_are_not() {
    let cases = [
        (
            "pgbench: error: -c/--client must be in range 1..2147483647",
            "pgbench: error: -c/--clients must be in range 1..2147483647",
            true,
        ),
        (
            "pgbench: error: -c/--clients must be in range 1..2147483647",
            "pgbench: error: -c/--clients must be in range 1..100",
            false,
        ),
        ("pgbench: error: could not open file \"a\"", "pgbench: error: cannot open file \"a\"", true),
        ("pgbench: error: could not open \"a\"", "pgbench: error: could not open \"b\"", false),
        ("pgbench: error: could not open \"a\"", "pgbench: warning: could not open \"a\"", false),
        ("pgbench: error: could not open \"a\"", "could not open \"a\"", false),
        ("pgbench: error: division by zero", "pgbench: error: bigint out of range", false),
        ("pgbench: client 0 sending select 1", "pgbench: client 0 sending select 2", false),
        ("pgbench: client 0 executing \\set a", "pgbench: client 0 executing \\if a", false),
        ("aborted: ERROR:  division by zero", "was aborted: ERROR:  division by zero", true),
        ("aborted: ERROR:  division by zero", "aborted: ERROR:  division by nothing", false),
        ("tps = # (without initial connection time)", "tps = # (excluding initial connection time)", true),
        ("   ^ error found here", "    ^ error found here", false),
    ];
    for (ours, real, expected) in cases {
        assert_eq!(mean_the_same(ours, real), expected, "{ours:?} {real:?}");
    }
}
