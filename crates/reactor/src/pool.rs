//! Buffers that a loop's connections share.
//!
//! A connection borrows one when bytes come, or when it writes a message, and gives it back when these are taken, or
//! sent. A thousand waiting connections hold no buffer, and the few that are in use stay in the processor's cache.

use std::cell::RefCell;

/// A buffer's first size: the answers of many transactions, or a thousand rows.
const BUFFER_BYTES: usize = 16 << 10;

/// Buffers that no connection needs now.
#[derive(Default)]
pub(super) struct Pool {
    received: RefCell<Vec<Vec<u8>>>,
    to_send: RefCell<Vec<Vec<u8>>>,
}

impl Pool {
    /// A buffer to receive into: all of its length is to be written to.
    #[inline]
    pub(super) fn take(&self) -> Vec<u8> {
        self.received.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    #[inline]
    pub(super) fn give(&self, buffer: Vec<u8>) {
        // One that had to grow is let go: its size was an exception.
        if buffer.len() == BUFFER_BYTES {
            self.received.borrow_mut().push(buffer);
        }
    }

    /// An empty buffer for messages.
    #[inline]
    pub(super) fn take_to_send(&self) -> Vec<u8> {
        self.to_send.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Takes an empty buffer back. One that had to grow stays where it is: who sends so much does it again.
    #[inline]
    pub(super) fn give_to_send(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == BUFFER_BYTES {
            self.to_send.borrow_mut().push(std::mem::take(buffer));
        }
    }
}
