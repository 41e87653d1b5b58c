//! Collects the states of the threads and writes checkpoints.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::{Checkpoint, ThreadState};
use crate::bench::Bench;
use reactor::Nanos;

/// States of each thread that wait to be written: where the disk is slow, the next ones are not taken.
const WAITING_MAX: usize = 2;

/// A thread's state.
pub struct ThreadSnapshot {
    /// Which thread's.
    pub thread: usize,
    /// When, in the time of the run.
    pub run: Nanos,
    /// It.
    pub state: ThreadState,
    /// Whether its clients have nothing more to do.
    pub is_over: bool,
}

/// The way of the states.
#[must_use]
pub fn channel(threads: usize) -> (SyncSender<ThreadSnapshot>, Receiver<ThreadSnapshot>) {
    sync_channel(threads * WAITING_MAX)
}

/// Writes a checkpoint whenever each thread has given a state, until the last thread has ended, and once more then.
pub fn keep(bench: Arc<Bench>, states: Receiver<ThreadSnapshot>) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("checkpoints".to_owned())
        .spawn(move || CheckpointWriter::new(&bench).run(&states))
}

struct CheckpointWriter<'a> {
    bench: &'a Bench,
    checkpoint: Checkpoint,
    /// By thread: whether its state is newer than what was written last.
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
