//! Buffers shared by the connections of a loop.
//!
//! A connection takes one when it receives bytes or writes a message, and returns it when they are taken or
//! sent. (One in the ring writes messages into the buffer of its line.) Idle connections hold no buffer, and the
//! few buffers in use stay in the CPU cache.

use std::cell::RefCell;

/// Initial size of a buffer: the responses of many transactions, or a thousand rows.
const BUFFER_BYTES: usize = 16 << 10;

/// Free buffers.
#[derive(Default)]
pub(super) struct Pool {
    received: RefCell<Vec<Vec<u8>>>,
    to_send: RefCell<Vec<Vec<u8>>>,
}

impl Pool {
    /// A receive buffer. Its whole length is writable.
    #[inline]
    pub(super) fn take(&self) -> Vec<u8> {
        self.received.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    #[inline]
    pub(super) fn give(&self, buffer: Vec<u8>) {
        // Drop a buffer that has grown: its size was an exception.
        if buffer.len() == BUFFER_BYTES {
            self.received.borrow_mut().push(buffer);
        }
    }

    /// An empty send buffer.
    #[inline]
    pub(super) fn take_to_send(&self) -> Vec<u8> {
        self.to_send.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Returns an empty send buffer. One that has grown stays with its connection, which will probably send as
    /// much again.
    #[inline]
    pub(super) fn give_to_send(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == BUFFER_BYTES {
            self.to_send.borrow_mut().push(std::mem::take(buffer));
        }
    }
}
