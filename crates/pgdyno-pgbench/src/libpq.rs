//! Errors and notices of the server in libpq's format: the line of the statement with a caret under the
//! position.

use std::io;

use pgwire::backend::{ErrorFields, ServerError};
use reactor::tell;

/// Maximum number of columns of a statement line.
const COLUMNS_MAX: usize = 60;
/// Minimum number of columns shown after the position.
const COLUMNS_BEHIND: usize = 10;

/// Formats an error in several lines. `statement` is the text sent, if libpq would know it.
pub fn error_text(error: &ServerError, statement: Option<&str>) -> String {
    text(error, statement, error.context.as_deref())
}

/// Prints a notice or warning to standard error.
pub fn print_notice(fields: &ErrorFields<'_>) {
    tell(format_args!("{}\n", text(&fields.to_owned(), None, None)));
}

fn text(error: &ServerError, statement: Option<&str>, context: Option<&str>) -> String {
    let mut first = format!("{}:  {}", error.severity, error.message);
    let (position, meant) = match error.position {
        Some(position) => (Some(position), statement),
        None => (error.internal_position, error.internal_query.as_deref()),
    };
    let mut marked = None;
    if let Some(position) = position {
        match meant {
            Some(meant) => marked = marked_line(meant, position as usize),
            None => first = format!("{first} at character {position}"),
        }
    }
    let parts = [
        ("DETAIL:  ", error.detail.as_deref()),
        ("HINT:  ", error.hint.as_deref()),
        ("QUERY:  ", error.internal_query.as_deref()),
        ("CONTEXT:  ", context),
    ];
    let more = parts.iter().filter_map(|(name, part)| part.map(|part| format!("{name}{part}")));
    std::iter::once(first).chain(marked).chain(more).collect::<Vec<_>>().join("\n")
}

/// The line with the character at `position` (from 1), and a line with a caret under it.
fn marked_line(statement: &str, position: usize) -> Option<String> {
    let place = position.checked_sub(1)?;
    let characters: Vec<char> = statement.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    let before = characters.get(..place)?;
    let is_end = |c: &char| matches!(c, '\r' | '\n');
    let mut begin = before.iter().rposition(is_end).map_or(0, |end| end + 1);
    let mut end = characters[place..].iter().position(is_end).map_or(characters.len(), |end| place + end);
    // A carriage return with a line feed is one line break.
    let pairs = before.windows(2).filter(|pair| *pair == ['\r', '\n']).count();
    let number = before.iter().filter(|c| is_end(c)).count() - pairs + 1;

    let columns = |from: usize, to: usize| characters[from..to].iter().map(|&c| width(c)).sum::<usize>();
    let (whole, mut has_more) = (end, false);
    let (mut ahead, mut behind) = (columns(begin, place), columns(place, end));
    if ahead + behind > COLUMNS_MAX {
        let behind_max = COLUMNS_MAX.saturating_sub(ahead).max(COLUMNS_BEHIND);
        while behind > behind_max {
            end -= 1;
            behind -= width(characters[end]);
        }
        while ahead + behind > COLUMNS_MAX {
            ahead -= width(characters[begin]);
            begin += 1;
            has_more = true;
        }
    }
    let dots = |are: bool| if are { "..." } else { "" };
    let prefix = format!("LINE {number}: {}", dots(has_more));
    let shown: String = characters[begin..end].iter().collect();
    let blanks = " ".repeat(prefix.len() + ahead);
    Some(format!("{prefix}{shown}{}\n{blanks}^", dots(end < whole)))
}

/// Width of a character on a terminal: two columns for East Asian wide characters and emoji.
fn width(c: char) -> usize {
    let is_wide = matches!(u32::from(c),
        0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0xA4CF | 0xA960..=0xA97C | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF01..=0xFF60 | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F | 0x1F900..=0x1F9FF | 0x20000..=0x3FFFD);
    1 + usize::from(is_wide)
}

/// An error of the operating system, as by C's strerror.
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_the_error_is_shown_with_a_caret() {
        let long = format!("select {}, x", "a".repeat(70));
        let cases = [
            ("select x", 8, "LINE 1: select x\n               ^"),
            ("select\tx", 8, "LINE 1: select x\n               ^"),
            ("select 1,\r\n  x\nfrom t", 14, "LINE 2:   x\n          ^"),
            ("select 1,\n\n  x\rfrom t", 21, "LINE 4: from t\n             ^"),
            ("select", 7, "LINE 1: select\n              ^"),
            ("select '表', x", 13, "LINE 1: select '表', x\n                     ^"),
            (&long, 1, &format!("LINE 1: select {}...\n        ^", "a".repeat(53))),
            (&long, 80, &format!("LINE 1: ...{}, x\n{}^", "a".repeat(57), " ".repeat(70))),
        ];
        for (statement, position, expected) in cases {
            assert_eq!(marked_line(statement, position).as_deref(), Some(expected), "{statement}");
        }
        // Linear time: a quadratic algorithm would not finish with a million characters.
        let longest = "a".repeat(1_000_000);
        for (position, expected) in [(1, ""), (500_000, "..."), (1_000_000, "...")] {
            let line = marked_line(&longest, position).expect("a line");
            assert!(line.starts_with(&format!("LINE 1: {expected}a")) && line.len() < 200, "{line}");
        }
        assert_eq!(marked_line("select", 0), None);
        assert_eq!(marked_line("select", 8), None, "beyond the end");
    }
}
