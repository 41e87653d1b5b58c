//! Deadlines, earliest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Nanos;

/// The deadlines of a loop.
///
/// An obsolete deadline wakes its task without effect: every future checks its own condition when it is polled.
#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Nanos, Task)>>);

impl Timers {
    pub(super) fn set(&mut self, at: Nanos, task: Task) {
        self.0.push(Reverse((at, task)));
    }

    /// Removes one of these deadlines, if it has not passed. Takes time in proportion to their number.
    pub(super) fn cancel(&mut self, at: Nanos, task: Task) {
        let mut is_found = false;
        self.0.retain(|&Reverse(timer)| {
            let is_it = !is_found && timer == (at, task);
            is_found |= is_it;
            !is_it
        });
    }

    pub(super) fn earliest(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Task> {
        if self.earliest()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, task))| task)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The number of a future within its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task(pub(super) u32);
