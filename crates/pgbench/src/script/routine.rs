//! Detection of SQL-standard routine bodies, `CREATE FUNCTION … BEGIN ATOMIC …; …; END`, whose semicolons do
//! not end the command.
//!
//! This is psql's heuristic: the first words of the statement decide; then BEGIN and CASE open, END closes.

/// Relevant words of a statement.
#[derive(Debug, Default)]
pub struct Routine {
    words: usize,
    /// Initials of the first four words that are CREATE, OR, REPLACE, FUNCTION or PROCEDURE.
    initials: [u8; 4],
    depth: usize,
}

impl Routine {
    /// Resets at the end of a statement.
    pub fn end_statement(&mut self) {
        self.words = 0;
    }

    /// Whether a body is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.depth > 0
    }

    /// Processes the next word. `outside`: it is not in parentheses.
    pub fn word(&mut self, word: &[u8], outside: bool) {
        if self.words == 0 {
            self.initials = [0; 4];
        }
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        if ["create", "function", "procedure", "or", "replace"].into_iter().any(is) {
            if let Some(initial) = self.initials.get_mut(self.words) {
                *initial = word[0].to_ascii_lowercase();
            }
        }
        self.words += 1;
        if !outside || !self.creates_routine() {
        } else if is("begin") || (is("case") && self.is_open()) {
            self.depth += 1;
        } else if is("end") {
            self.depth = self.depth.saturating_sub(1);
        }
    }

    fn creates_routine(&self) -> bool {
        matches!(self.initials, [b'c', b'f' | b'p', ..] | [b'c', b'o', b'r', b'f' | b'p'])
    }
}
