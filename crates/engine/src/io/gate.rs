//! Waiting, within one thread, for something that another future of the same thread does.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use super::reactor::{Reactor, Task};

/// A place where futures of one loop wait for a condition.
#[derive(Default)]
pub struct Gate(RefCell<Vec<Task>>);

impl Gate {
    /// Waits until `condition` gives something; it is looked at now and after every [`Gate::notify`].
    pub async fn wait<T>(&self, reactor: &Reactor, mut condition: impl FnMut() -> Option<T>) -> T {
        poll_fn(|_| {
            if let Some(value) = condition() {
                return Poll::Ready(value);
            }
            let task = reactor.current();
            let mut waiting = self.0.borrow_mut();
            if !waiting.contains(&task) {
                waiting.push(task);
            }
            Poll::Pending
        })
        .await
    }

    /// Lets all that wait look at their condition again.
    pub fn notify(&self, reactor: &Reactor) {
        for task in self.0.borrow_mut().drain(..) {
            reactor.wake(task);
        }
    }
}
