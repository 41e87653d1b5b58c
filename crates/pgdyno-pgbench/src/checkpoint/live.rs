//! How many transactions each client has ended, by the instant: what a checkpoint of seconds ago does not know.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::error::CheckpointError;
use super::file::{Checkpoint, beside, boot};
use reactor::{MappedCounters, read_counters};

/// The first word of the file, which is written last when it is made: "pgdynoL1". Zero: nothing has been counted.
const MARK: u64 = u64::from_le_bytes(*b"pgdynoL1");

/// Words before the first pair: the mark, and one that keeps pairs within a sector of a disk.
const HEADER: usize = 2;

/// By how much a check may lag behind its number: a process can die between the two stores.
const LAG_MAX: u64 = 1;

/// The counters, in a file beside the checkpoint's: how often the run was resumed, then one for each client. They are
/// stores into memory that outlives the process. Each is followed by its complement, so that damage is found. The file's
/// lock keeps a second run from the same checkpoint.
pub struct LiveCounters {
    path: PathBuf,
    file: File,
    /// None before the run begins.
    counters: Option<MappedCounters>,
    /// As a former run left them: a number and its complement each.
    left: Vec<[u64; 2]>,
}

impl LiveCounters {
    /// Takes the file beside a checkpoint.
    pub fn lock(checkpoint: &Path) -> Result<Self, CheckpointError> {
        let path = beside(checkpoint, "live");
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(|source| CheckpointError::OpenCounters { path: path.clone(), source })?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| CheckpointError::InUse(checkpoint.to_owned()))?;
        let bytes =
            fs::read(&path).map_err(|source| CheckpointError::OpenCounters { path: path.clone(), source })?;
        let words = read_counters(&bytes);
        let left = match words.first() {
            Some(&MARK) => {
                words[HEADER.min(words.len())..].chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect()
            }
            Some(0) => Vec::new(),
            None if bytes.is_empty() => Vec::new(),
            _ => return Err(CheckpointError::DamagedCounters(path)),
        };
        Ok(Self { path, file, counters: None, left })
    }

    /// How many transactions the run of a checkpoint ended after it, and whether that is known for sure.
    /// Fails if the file is damaged.
    pub fn since(&self, checkpoint: &Checkpoint) -> Result<(u64, bool), CheckpointError> {
        let clients = || checkpoint.threads.iter().flat_map(|thread| &thread.place.clients);
        let survived = checkpoint.boot == boot();
        let Some((resumed, ended)) = self.left.split_first() else { return Ok((0, false)) };
        // A machine that died may have written any part of it.
        let is_sound = resumed[1] == !resumed[0] && ended.iter().all(is_whole);
        if survived && !(is_sound && ended.len() == clients().count()) {
            return Err(CheckpointError::DamagedCounters(self.path.clone()));
        }
        if resumed[0] != checkpoint.history.resumed {
            // Of the run before: that of the checkpoint had not begun to count.
            return Ok((0, survived));
        }
        let whole = ended.iter().zip(clients()).filter(|(pair, _)| is_whole(pair));
        let since = whole.map(|(pair, client)| pair[0].saturating_sub(client.ended)).sum();
        Ok((since, survived))
    }

    /// Begins to count from a checkpoint on, which is on disk already.
    pub fn begin(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let clients = || checkpoint.threads.iter().flat_map(|thread| &thread.place.clients);
        let count = HEADER + 2 * (clients().count() + 1);
        let counters = MappedCounters::create(&mut self.file, count)
            .map_err(|source| CheckpointError::MapCounters { path: self.path.clone(), source })?;
        set_pair(&counters, 0, checkpoint.history.resumed);
        for (client, state) in clients().enumerate() {
            set_pair(&counters, client + 1, state.ended);
        }
        counters.set(0, MARK);
        self.counters = Some(counters);
        Ok(())
    }

    /// A client has ended so many transactions.
    #[inline]
    pub fn set(&self, client: u32, ended: u64) {
        if let Some(counters) = &self.counters {
            set_pair(counters, client as usize + 1, ended);
        }
    }

    /// The run has ended: nobody will ask. The lock ends with the process.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[inline]
fn set_pair(counters: &MappedCounters, index: usize, number: u64) {
    counters.set(HEADER + 2 * index, number);
    counters.set(HEADER + 2 * index + 1, !number);
}

fn is_whole(pair: &[u64; 2]) -> bool {
    pair[0].checked_sub(!pair[1]).is_some_and(|lag| lag <= LAG_MAX)
}
