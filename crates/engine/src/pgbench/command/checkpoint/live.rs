//! How many transactions each client has ended, by the instant: what a checkpoint of seconds ago does not know.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::file::{Checkpoint, beside, boot};
use crate::io::{MappedCounters, read_counters};
use crate::pgbench::command::log::system_text;

/// The counters, in a file beside the checkpoint's: how often the run was resumed, then one for each client. They are
/// stores into memory that outlives the process. The file's lock keeps a second run from the same checkpoint.
pub struct Live {
    path: PathBuf,
    file: File,
    /// None before the run begins.
    counters: Option<MappedCounters>,
    /// As a former run left them.
    left: Vec<u64>,
}

impl Live {
    /// Takes the file beside a checkpoint. The error is a message.
    pub fn lock(checkpoint: &Path) -> Result<Self, String> {
        let path = beside(checkpoint, "live");
        let shown = path.display();
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(|error| format!("could not open \"{shown}\": {}", system_text(&error)))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| format!("checkpoint \"{}\" is in use by another run", checkpoint.display()))?;
        let left = fs::read(&path).map(|bytes| read_counters(&bytes)).unwrap_or_default();
        Ok(Self { path, file, counters: None, left })
    }

    /// How many transactions the run of a checkpoint ended after it, and whether that is known for sure.
    #[must_use]
    pub fn since(&self, checkpoint: &Checkpoint) -> (u64, bool) {
        let clients = || checkpoint.threads.iter().flat_map(|thread| &thread.place.clients);
        let Some((resumed, ended)) = self.left.split_first() else { return (0, false) };
        if *resumed != checkpoint.history.resumed {
            // Of the run before: that of the checkpoint had not begun to count.
            return (0, checkpoint.boot == boot());
        }
        let since =
            ended.iter().zip(clients()).map(|(ended, client)| ended.saturating_sub(client.ended)).sum();
        (since, checkpoint.boot == boot() && ended.len() == clients().count())
    }

    /// Begins to count from a checkpoint on, which is on disk already.
    pub fn begin(&mut self, checkpoint: &Checkpoint) -> Result<(), String> {
        let ended: Vec<_> = checkpoint
            .threads
            .iter()
            .flat_map(|thread| &thread.place.clients)
            .map(|client| client.ended)
            .collect();
        let counters = MappedCounters::create(&mut self.file, ended.len() + 1);
        let counters = counters
            .map_err(|error| format!("could not map \"{}\": {}", self.path.display(), system_text(&error)))?;
        for (client, ended) in ended.into_iter().enumerate() {
            counters.set(client + 1, ended);
        }
        counters.set(0, checkpoint.history.resumed);
        self.counters = Some(counters);
        Ok(())
    }

    /// A client has ended so many transactions.
    #[inline]
    pub fn set(&self, client: u32, ended: u64) {
        if let Some(counters) = &self.counters {
            counters.set(client as usize + 1, ended);
        }
    }

    /// The run has ended: nobody will ask. The lock ends with the process.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}
