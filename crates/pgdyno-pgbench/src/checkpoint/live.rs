//! Live counters of completed transactions per client, for the time after the last checkpoint.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::error::CheckpointError;
use super::file::{Checkpoint, beside, boot};
use reactor::{MappedCounters, read_counters};

/// First word of the file, written last when it is created: "pgdynoL1". Zero: nothing has been counted.
const MARK: u64 = u64::from_le_bytes(*b"pgdynoL1");

/// Words before the first pair: the mark, and one that aligns pairs to disk sectors.
const HEADER: usize = 2;

/// Maximum difference of a check from its number, because a process can die between the two stores.
const LAG_MAX: u64 = 1;

/// Counters in a file next to the checkpoint: number of resumes, then one counter per client.
///
/// They are stores to a memory-mapped file that outlives the process. Each is followed by its complement, to
/// detect damage. The lock of the file prevents a second run with the same checkpoint.
pub struct LiveCounters {
    path: PathBuf,
    file: File,
    /// `None` before the run starts.
    counters: Option<MappedCounters>,
    /// Counters of an earlier run: pairs of a number and its complement.
    left: Vec<[u64; 2]>,
}

impl LiveCounters {
    /// Locks the file next to a checkpoint.
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

    /// Number of transactions that the run completed after its checkpoint, and whether it is exact.
    ///
    /// Fails if the file is damaged.
    pub fn since(&self, checkpoint: &Checkpoint) -> Result<(u64, bool), CheckpointError> {
        let clients = || checkpoint.threads.iter().flat_map(|thread| &thread.place.clients);
        let survived = checkpoint.boot == boot();
        let Some((resumed, ended)) = self.left.split_first() else { return Ok((0, false)) };
        // After a crash of the machine, any part may have been written.
        let is_sound = resumed[1] == !resumed[0] && ended.iter().all(is_whole);
        if survived && !(is_sound && ended.len() == clients().count()) {
            return Err(CheckpointError::DamagedCounters(self.path.clone()));
        }
        if resumed[0] != checkpoint.history.resumed {
            // Of the run before: the run of the checkpoint had not started to count.
            return Ok((0, survived));
        }
        let whole = ended.iter().zip(clients()).filter(|(pair, _)| is_whole(pair));
        let since = whole.map(|(pair, client)| pair[0].saturating_sub(client.ended)).sum();
        Ok((since, survived))
    }

    /// Starts to count from a checkpoint, which is already on disk.
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

    /// Sets the number of completed transactions of a client.
    #[inline]
    pub fn set(&self, client: u32, ended: u64) {
        if let Some(counters) = &self.counters {
            set_pair(counters, client as usize + 1, ended);
        }
    }

    /// Removes the file at the end of the run. The lock is released with the process.
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
