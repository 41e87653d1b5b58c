//! Dataset format: a digest of everything that a load writes, which detects datasets with older rows, indexes
//! or routines.

use std::fmt::Write;

use ring::digest::{self, SHA256};

const BYTES: usize = 6;

/// The digest of these parts, in order.
pub fn format_of<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut context = digest::Context::new(&SHA256);
    for part in parts {
        context.update(part.as_bytes());
        context.update(&[0]);
    }
    context.finish().as_ref()[..BYTES].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // Writing to a String cannot fail.
        text
    })
}

#[cfg(test)]
mod tests {
    use super::format_of;

    #[test]
    fn the_same_text_split_differently_has_another_format() {
        assert_ne!(format_of(["ab", "c"].into_iter()), format_of(["a", "bc"].into_iter()));
        assert_eq!(format_of(["ab", "c"].into_iter()).len(), 2 * super::BYTES);
    }
}
