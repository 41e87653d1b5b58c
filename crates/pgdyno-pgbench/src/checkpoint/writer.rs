//! Writer of checkpoints from the states of the threads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::{Checkpoint, ThreadState};
use crate::bench::Bench;
use reactor::Nanos;

/// Maximum number of queued states per thread. With a slow disk, further states are not captured.
const WAITING_MAX: usize = 2;

/// State of a thread at an instant.
pub struct ThreadSnapshot {
    /// Number of the thread.
    pub thread: usize,
    /// Time of the run.
    pub run: Nanos,
    /// State.
    pub state: ThreadState,
    /// Whether its clients have ended.
    pub is_over: bool,
}

/// Creates the channel for states.
#[must_use]
pub fn channel(threads: usize) -> (SyncSender<ThreadSnapshot>, Receiver<ThreadSnapshot>) {
    sync_channel(threads * WAITING_MAX)
}

/// Writes a checkpoint when each thread has sent a state, and a last one when all threads have ended.
pub fn keep(bench: Arc<Bench>, states: Receiver<ThreadSnapshot>) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("checkpoints".to_owned())
        .spawn(move || CheckpointWriter::new(&bench).run(&states))
}

struct CheckpointWriter<'a> {
    bench: &'a Bench,
    checkpoint: Checkpoint,
    /// By thread: whether its state is newer than the last checkpoint.
    is_new: Vec<bool>,
    is_over: Vec<bool>,
}

impl<'a> CheckpointWriter<'a> {
    fn new(bench: &'a Bench) -> Self {
        let checkpoint = bench.checkpoint();
        let count = checkpoint.threads.len();
        Self { bench, checkpoint, is_new: vec![false; count], is_over: vec![false; count] }
    }

    fn run(mut self, states: &Receiver<ThreadSnapshot>) {
        while let Ok(snapshot) = states.recv() {
            self.take(snapshot);
            let all_new = self.is_new.iter().zip(&self.is_over).all(|(is_new, is_over)| *is_new || *is_over);
            if all_new && !self.is_finished() {
                self.write();
                self.is_new.fill(false);
            }
        }
        self.write();
    }

    fn is_finished(&self) -> bool {
        self.is_over.iter().all(|is_over| *is_over)
    }

    fn take(&mut self, ThreadSnapshot { thread, run, state, is_over }: ThreadSnapshot) {
        self.checkpoint.threads[thread] = state;
        self.checkpoint.run = self.checkpoint.run.max(run);
        self.is_new[thread] = true;
        self.is_over[thread] = is_over;
    }

    fn write(&mut self) {
        let Some(checkpoint_files) = &self.bench.checkpoint_files else { return };
        self.checkpoint.is_finished = self.is_finished();
        self.checkpoint.set_cpu(self.bench.cpu());
        match self.checkpoint.write(&checkpoint_files.path) {
            Ok(()) if self.checkpoint.is_finished => checkpoint_files.live.remove(),
            Ok(()) => {}
            Err(error) => self.bench.log.warning(&error.to_string()),
        }
    }
}
