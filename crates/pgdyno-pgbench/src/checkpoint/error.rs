//! Errors of checkpoints.

use std::io;
use std::path::PathBuf;

use crate::libpq::system_text;

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
