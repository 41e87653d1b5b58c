//! Received bytes that are not yet taken, in a buffer of the loop's [`Pool`].

use super::Error;
use super::pool::Pool;
use pgwire::backend::MESSAGE_BYTES_MAX;

/// The length of a message includes itself, but not the tag before it.
const LENGTH_BYTES: u32 = 4;

/// Counts of the skipped messages of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Rows of data.
    pub rows: u64,
    /// Completed statements.
    pub statements: usize,
}

/// Received bytes of one connection: `bytes[start..end]`.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// All received bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The length of the first message, if it is complete. An invalid length is an error.
    #[inline]
    pub(super) fn message_bytes(&self) -> Result<Option<usize>, Error> {
        let [_, l0, l1, l2, l3, ..] = *self.bytes() else { return Ok(None) };
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        if !(LENGTH_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Error::Limit("the length of a message"));
        }
        let length = length as usize + 1;
        Ok((length <= self.end - self.start).then_some(length))
    }

    /// Skips complete messages that nobody needs, and those whose type `skips`. Their bodies are not parsed.
    /// Returns the type and length of the next complete one; `None` if more bytes are needed.
    #[inline]
    pub(super) fn skim(&mut self, mut skips: impl FnMut(u8) -> bool) -> Result<Option<(u8, usize)>, Error> {
        while let Some(length) = self.message_bytes()? {
            match self.bytes[self.start] {
                // ParseComplete, BindComplete, CloseComplete, ParameterDescription, NoData, PortalSuspended.
                b'1'..=b'3' | b't' | b'n' | b's' => {}
                tag if skips(tag) => {}
                tag => return Ok(Some((tag, length))),
            }
            self.start += length;
        }
        Ok(None)
    }

    /// Takes the first `count` bytes; they remain valid until the next [`Inbox::space`].
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let start = self.start;
        self.start += count;
        &self.bytes[start..self.start]
    }

    /// The buffer to receive into: at least half a buffer, more for a long message.
    #[inline]
    pub(super) fn space(&mut self, pool: &Pool) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.is_empty() {
            self.bytes = pool.take();
        }
        if self.bytes.len() - self.end < self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end > self.bytes.len() / 2 {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Records that `count` bytes were received.
    #[inline]
    pub(super) fn received(&mut self, count: usize) {
        self.end += count;
    }

    /// Appends decrypted bytes.
    pub(super) fn append(&mut self, pool: &Pool, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space(pool);
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.received(count);
            bytes = &bytes[count..];
        }
    }

    /// Returns an empty buffer to the pool. Called before waiting.
    #[inline]
    pub(super) fn rest(&mut self, pool: &Pool) {
        if self.start == self.end && !self.bytes.is_empty() {
            (self.start, self.end) = (0, 0);
            pool.give(std::mem::take(&mut self.bytes));
        }
    }

    /// Number of bytes held, to limit memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.end - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_length_of_a_message_is_that_of_the_parser() {
        let begun = |length: u32| {
            let (mut inbox, pool) = (Inbox::default(), Pool::default());
            inbox.append(&pool, &[&b"D"[..], &length.to_be_bytes()].concat());
            inbox.message_bytes()
        };
        assert!(matches!(begun(LENGTH_BYTES), Ok(Some(5))));
        assert!(matches!(begun(MESSAGE_BYTES_MAX), Ok(None)), "the rest is to come");
        for length in [0, LENGTH_BYTES - 1, MESSAGE_BYTES_MAX + 1, u32::MAX] {
            assert!(matches!(begun(length), Err(Error::Limit(_))), "{length}");
        }
    }
}
