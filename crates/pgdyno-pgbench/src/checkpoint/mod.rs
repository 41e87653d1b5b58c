//! Runs that can be resumed after a crash of driver or machine: `--checkpoint`, `--resume`.
//!
//! | topic | module |
//! |---|---|
//! | position of each client and thread | [`ThreadState`] |
//! | checkpoint file, and comparison with the present configuration | [`Checkpoint`] |
//! | number of transactions after a checkpoint | [`LiveCounters`] |
//! | start of a run | `resume` |
//! | writing of checkpoints | [`writer`] |
//!
//! A thread's state is captured between two turns of its loop, so it is consistent: every transaction that it
//! counts has ended, and the resumed run executes every other transaction from its start. No client waits for
//! it.

mod options;
mod resume;
#[cfg(test)]
mod tests;
pub mod writer;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pgbench::random::{Prng, ThreadStreams, clients_per_thread};
use pgbench::session::Program;
use pgbench::variables::Variables;
use reactor::{MappedCounters, Nanos, Usage, read_counters};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use options::CheckpointOptions;
pub use resume::open;

use super::libpq::system_text;
use super::record::Record;

/// Statistics of earlier runs of this checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Number of resumes.
    pub resumed: u64,
    /// Transactions completed after the checkpoints used to resume: they ran again and were counted once.
    pub run_again: u64,
    /// Number of clients with transactions in flight: upper bound of further transactions that may have run
    /// again.
    pub in_flight_max: u64,
    /// Whether the machine crashed or a file was lost: then `run_again` is a lower bound.
    pub is_incomplete: bool,
}

/// State that earlier runs leave to this one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// Duration.
    pub run: Nanos,
    /// CPU time of their processes.
    pub cpu: Usage,
    /// Statistics.
    pub history: History,
}

/// Files with the state of a run.
pub struct CheckpointFiles {
    /// Checkpoint file.
    pub path: PathBuf,
    /// Interval between checkpoints.
    pub every: Nanos,
    /// Live counters.
    pub live: LiveCounters,
}

/// Error of a checkpoint, one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("could not read checkpoint \"{}\": {}", .path.display(), system_text(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("could not write checkpoint \"{}\": {}", .path.display(), system_text(.source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file of the counters cannot be opened.
    #[error("could not open \"{}\": {}", .path.display(), system_text(.source))]
    OpenCounters {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file of the counters cannot be mapped into memory.
    #[error("could not map \"{}\": {}", .path.display(), system_text(.source))]
    MapCounters {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file of the counters is damaged, or of another program.
    #[error(
        "\"{}\" is damaged, or not of pgdyno-pgbench: remove it to go on without the number of transactions run again",
        .0.display()
    )]
    DamagedCounters(PathBuf),
    /// The file has another format.
    #[error("\"{}\" is not a checkpoint of this version of pgdyno-pgbench", .0.display())]
    OtherFormat(PathBuf),
    /// A new run would overwrite one that can be resumed.
    #[error("checkpoint \"{}\" is of a run that has not ended: --resume it, or remove the file", .0.display())]
    NotEnded(PathBuf),
    /// The run is complete and cannot be resumed.
    #[error("the run of checkpoint \"{}\" has ended: there is nothing to resume", .0.display())]
    Ended(PathBuf),
    /// Another process uses the file.
    #[error("checkpoint \"{}\" is in use by another run", .0.display())]
    InUse(PathBuf),
    /// The configuration differs from that of the checkpoint.
    #[error("checkpoint \"{}\" is of a run with other options: {difference}", .path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The difference.
        difference: String,
    },
}

/// Identifier of the file format. Change it with the format.
const FORMAT: &str = "pgdyno-pgbench checkpoint 1";

/// State of a run at an instant.
#[derive(Clone, Serialize, Deserialize)]
pub struct Checkpoint {
    format: String,
    /// Configuration of the run: see [`super::run_config`].
    pub asked: Value,
    /// Whether the run is complete.
    pub is_finished: bool,
    /// Boot ID of the machine.
    pub boot: String,
    /// Duration of the run so far.
    pub run: Nanos,
    cpu_user: Nanos,
    cpu_system: Nanos,
    /// Statistics of earlier runs.
    pub history: History,
    /// By thread.
    pub threads: Vec<ThreadState>,
}

impl Checkpoint {
    /// Creates a checkpoint of the run so far.
    #[must_use]
    pub fn new(asked: Value, is_finished: bool, so_far: &Before, threads: Vec<ThreadState>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            asked,
            is_finished,
            boot: boot(),
            run: so_far.run,
            cpu_user: so_far.cpu.user,
            cpu_system: so_far.cpu.system,
            history: so_far.history,
            threads,
        }
    }

    /// Seed of the generators.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.asked["random_seed"].as_u64()
    }

    /// Sets the CPU time used by the run.
    pub fn set_cpu(&mut self, cpu: Usage) {
        (self.cpu_user, self.cpu_system) = (cpu.user, cpu.system);
    }

    /// State for the run that resumes.
    #[must_use]
    pub fn before(&self) -> Before {
        let cpu = Usage { user: self.cpu_user, system: self.cpu_system };
        Before { run: self.run, cpu, history: self.history }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let text =
            fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
        let checkpoint = serde_json::from_slice::<Self>(&text).ok().filter(|read| read.format == FORMAT);
        checkpoint.ok_or_else(|| CheckpointError::OtherFormat(path.to_owned()))
    }

    /// Writes the file atomically: it is complete after a crash of the machine at any time.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        self.replace(path).map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
    }

    fn replace(&self, path: &Path) -> io::Result<()> {
        let new = beside(path, "pgdyno-new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Describes the difference from the present configuration; `None` if the run can be resumed.
    #[must_use]
    pub fn difference(&self, asked: &Value) -> Option<String> {
        let (Some(then), Some(now)) = (self.asked.as_object(), asked.as_object()) else {
            return Some("it says nothing of its run".to_owned());
        };
        let name = then.keys().chain(now.keys()).find(|name| then.get(*name) != now.get(*name))?;
        let shown = |value: Option<&Value>| value.unwrap_or(&Value::Null).to_string();
        if name == "scripts" {
            return Some("the scripts or their weights are others".to_owned());
        }
        Some(format!("{name} is {} now and was {}", shown(now.get(name)), shown(then.get(name))))
    }
}

/// Appends a suffix to the file name.
#[must_use]
pub fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

/// The boot ID from the kernel; empty if there is none.
#[must_use]
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

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

/// A client at the start of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientState {
    /// Number of its completed transactions, with any outcome.
    pub ended: u64,
    /// Script drawn for the transaction, if any.
    pub script: Option<usize>,
    /// Generator.
    pub random: Prng,
    /// Variables.
    pub variables: Variables,
}

/// Position of a thread and its clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadPosition {
    /// Generators of the thread.
    pub streams: ThreadStreams,
    /// Time spent on connecting with `--connect`.
    pub connecting: Nanos,
    /// Clients in the order of their numbers.
    pub clients: Vec<ClientState>,
}

/// Position and record of a thread.
#[derive(Clone, Serialize, Deserialize)]
pub struct ThreadState {
    /// Position.
    pub place: ThreadPosition,
    /// Record of its clients up to this position.
    pub record: Record,
}

impl ThreadState {
    /// All threads of a run before their first transactions.
    #[must_use]
    pub fn all(program: &Program, clients: usize, jobs: usize, is_detailed: bool) -> Vec<Self> {
        let mut ids = 0..;
        let mut client = || {
            let client = program.startup.client(ids.next().unwrap_or_default());
            ClientState { ended: 0, script: None, random: client.random, variables: client.variables }
        };
        let counts = clients_per_thread(clients, jobs).into_iter();
        let threads = counts.zip(program.startup.threads()).map(|(count, streams)| Self {
            place: ThreadPosition {
                streams: *streams,
                connecting: Nanos::ZERO,
                clients: (0..count).map(|_| client()).collect(),
            },
            record: Record::new(&program.scripts, is_detailed),
        });
        threads.collect()
    }
}
