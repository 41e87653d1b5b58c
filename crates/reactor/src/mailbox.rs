//! Commands from one thread to the loop of another. Each costs a lock and a system call: not for the hot path.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::Error;
use super::reactor::Reactor;
use super::socket::Socket;

struct Shared<T> {
    letters: Mutex<VecDeque<T>>,
    bell: OwnedFd,
}

/// The sending end, for any thread.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving end.
pub struct Mailbox<T>(Arc<Shared<T>>);

/// Creates a pair of ends.
pub fn mailbox<T>() -> Result<(Sender<T>, Mailbox<T>), Error> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| Error::system("create an eventfd", e))?;
    let shared = Arc::new(Shared { letters: Mutex::default(), bell });
    Ok((Sender(Arc::clone(&shared)), Mailbox(shared)))
}

impl<T> Sender<T> {
    /// Sends and wakes the receiving loop.
    pub fn send(&self, letter: T) -> Result<(), Error> {
        self.0.letters.lock().unwrap_or_else(PoisonError::into_inner).push_back(letter);
        rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes())
            .map(|_| ())
            .map_err(|e| Error::system("ring another thread", e))
    }
}

impl<T> Mailbox<T> {
    /// Calls `deliver` with each letter until it returns false.
    pub async fn serve(self, reactor: &Reactor, mut deliver: impl FnMut(T) -> bool) -> Result<(), Error> {
        let bell = self.0.bell.try_clone().map_err(|source| Error::system("share an eventfd", source))?;
        let bell = Socket::new(reactor, bell)?;
        loop {
            while let Some(letter) = self.take() {
                if !deliver(letter) {
                    return Ok(());
                }
            }
            bell.readable().await;
            bell.acknowledge();
        }
    }

    fn take(&self) -> Option<T> {
        self.0.letters.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
