//! The body of a routine in SQL, `CREATE FUNCTION … BEGIN ATOMIC …; …; END`, whose semicolons do not end the command.
//!
//! psql's heuristic: the words that a statement begins with decide whether it is such a one; then BEGIN and CASE open,
//! END closes.

/// Words of a statement, as far as they matter.
#[derive(Debug, Default)]
pub struct Routine {
    words: usize,
    /// The initials of the first four words that are CREATE, OR, REPLACE, FUNCTION or PROCEDURE.
    initials: [u8; 4],
    depth: usize,
}

impl Routine {
    /// A statement has ended: the next word is a first one.
    pub fn end_statement(&mut self) {
        self.words = 0;
    }

    /// Whether a body has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.depth > 0
    }

    /// Takes the next word. `outside` is whether it is outside of brackets.
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
