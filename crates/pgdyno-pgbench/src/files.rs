//! The limit of open files, before the first connection.

use super::log::{Log, Reported};
use super::options::Options;
use reactor::{file_limit, raise_file_limit};

/// Number of files that pgbench reserves besides its connections.
const FILES_OF_PGBENCH: u64 = 3;
/// Files besides the connections: those of a loop and its log, and of the process.
const FILES_PER_THREAD: u64 = 8;
const FILES_OF_PROCESS: u64 = 12;
/// Factor of the requested limit over the needed files, for temporary ones.
const ROOM: u64 = 4;

/// Raises the limit of open files for the clients of a run. Errors are reported.
pub fn reserve(options: &Options, log: &Log) -> Result<(), Reported> {
    let clients = u64::from(options.clients);
    let all = clients + u64::from(options.jobs) * FILES_PER_THREAD + FILES_OF_PROCESS;
    let (limit, least) = (file_limit(), clients + FILES_OF_PGBENCH);
    // As in pgbench, the message contains the number of clients, although more files are needed.
    let needed = if limit < least { least } else { all };
    if limit < needed {
        log.error(&format!("need at least {needed} open files, but system limit is {limit}"));
        log.hint("Reduce number of clients, or use limit/ulimit to increase the system limit.");
        return Err(Reported);
    }
    // \shell has pipes for each client.
    raise_file_limit(limit.min(needed * ROOM)).map_err(|error| {
        log.error(&format!("need at least {needed} open files, but couldn't raise the limit: {error}"));
        Reported
    })
}
