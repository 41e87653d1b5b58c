//! Positions of clients: restored from a checkpoint, and kept for the next one.

use std::cell::RefCell;

use super::{Client, Thread};
use crate::checkpoint::{ClientState, ThreadPosition, ThreadState};
use crate::record::lock;
use pgbench::session::ScriptRunner;
use reactor::Connection;

impl Thread<'_> {
    /// The thread's state between two turns of its loop: completed transactions are counted, all others are
    /// executed from their start.
    pub fn state(&self) -> ThreadState {
        let clients = self.clients.iter().map(|client| client.borrow().clone()).collect();
        let place =
            ThreadPosition { streams: self.streams.get(), connecting: self.connecting.get(), clients };
        ThreadState { place, record: lock(self.record).clone() }
    }
}

impl<'a, 'b> Client<'a, 'b> {
    /// Creates a client from its thread's state.
    pub fn new(thread: &'a Thread<'b>, mut runner: ScriptRunner, connection: Option<Connection>) -> Self {
        let client = runner.client_mut();
        let state = thread.clients[(client.id - thread.first) as usize].borrow();
        client.random = state.random;
        client.variables.copy_from(&state.variables);
        Self { thread, runner, connection, ended: state.ended, drawn: state.script }
    }

    /// Stores the state at the start of a transaction, if checkpoints are written.
    pub(super) fn keep_place(&self, script: usize) {
        if self.thread.bench.checkpoint_files.is_none() {
            return;
        }
        let client = self.runner.client();
        let mut place = self.place().borrow_mut();
        (place.script, place.random) = (Some(script), client.random);
        place.variables.copy_from(&client.variables);
    }

    fn place(&self) -> &RefCell<ClientState> {
        &self.thread.clients[(self.runner.client().id - self.thread.first) as usize]
    }

    /// Stores the number of completed transactions, if checkpoints are written.
    pub(super) fn keep_count(&self) {
        if let Some(checkpoint_files) = &self.thread.bench.checkpoint_files {
            self.place().borrow_mut().ended = self.ended;
            checkpoint_files.live.set(self.runner.client().id, self.ended);
        }
    }
}
