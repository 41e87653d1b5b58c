//! Waiting for a condition that another future of the same thread makes true.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use super::reactor::Reactor;
use super::timers::Task;

/// A queue in which futures of one loop wait for a condition, in FIFO order.
#[derive(Default)]
pub struct Gate(RefCell<Queue>);

#[derive(Default)]
struct Queue {
    /// In ascending order of tickets.
    waiting: VecDeque<(u64, Task)>,
    tickets: u64,
}

impl Gate {
    /// Waits until `condition` returns a value. It is checked now and after a [`Gate::notify`].
    pub async fn wait<T>(&self, reactor: &Reactor, mut condition: impl FnMut() -> Option<T>) -> T {
        let mut ticket = 0;
        poll_fn(|_| {
            let found = condition();
            let queue = &mut *self.0.borrow_mut();
            let place = queue.waiting.binary_search_by_key(&ticket, |&(ticket, _)| ticket);
            match (found, place) {
                (Some(value), Ok(place)) => {
                    // Polled for another reason: leave the queue, so that no notification is wasted.
                    queue.waiting.remove(place);
                    Poll::Ready(value)
                }
                (Some(value), Err(_)) => Poll::Ready(value),
                (None, Ok(_)) => Poll::Pending,
                (None, Err(_)) => {
                    queue.tickets += 1;
                    ticket = queue.tickets;
                    queue.waiting.push_back((ticket, reactor.current()));
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Makes all waiting futures check their condition again.
    pub fn notify(&self, reactor: &Reactor) {
        for (_, task) in self.0.borrow_mut().waiting.drain(..) {
            reactor.wake(task);
        }
    }

    /// Notifies the first waiting future only, if one is enough.
    ///
    /// A future that is dropped while it waits would still receive the notification. Futures at such a gate
    /// must not be dropped.
    pub fn notify_one(&self, reactor: &Reactor) {
        if let Some((_, task)) = self.0.borrow_mut().waiting.pop_front() {
            reactor.wake(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Clock, Routine};

    /// Runs a loop in which `waiting` futures each take one of the permits. Returns their numbers in order.
    fn taken(waiting: u32, free: &Cell<u32>, beside: impl AsyncFnOnce(&Reactor, &Gate)) -> Vec<u32> {
        let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
        let (gate, order) = (Gate::default(), RefCell::default());
        let (reactor, gate, order) = (&reactor, &gate, &order);
        let wait = |number| {
            let permit = move || (free.get() > 0).then(|| free.set(free.get() - 1));
            let waits = async move {
                gate.wait(reactor, permit).await;
                RefCell::<Vec<u32>>::borrow_mut(order).push(number);
            };
            Box::pin(waits) as Routine<'_>
        };
        reactor.run_concurrently(beside(reactor, gate), (0..waiting).map(wait).collect()).expect("its end");
        order.take()
    }

    #[test]
    fn a_free_permit_goes_to_the_first_waiting_future() {
        let free = Cell::new(1);
        let order = taken(4, &free, async |reactor, gate| {
            for _ in 0..2 {
                reactor.pause().await;
                free.set(free.get() + 1);
                gate.notify_one(reactor);
                reactor.pause().await;
            }
        });
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn a_future_that_no_longer_waits_is_not_notified() {
        let free = Cell::new(0);
        let order = taken(2, &free, async |reactor, gate| {
            reactor.pause().await;
            free.set(1);
            // The timer wakes this future before the others.
            reactor.wake_all();
            reactor.pause().await;
            reactor.pause().await;
            assert_eq!(free.get(), 0);
            free.set(1);
            gate.notify_one(reactor);
            reactor.pause().await;
        });
        assert_eq!(order, [0, 1]);
    }

    #[test]
    fn all_waiting_futures_are_notified_once() {
        let free = Cell::new(0);
        let order = taken(3, &free, async |reactor, gate| {
            reactor.pause().await;
            free.set(2);
            gate.notify(reactor);
            gate.notify(reactor);
            reactor.pause().await;
        });
        assert_eq!((order, free.get()), (vec![0, 1], 0));
    }
}
