//! Checks of files before the first connection: the limit of open files, and the result files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};

use super::libpq::system_text;
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

/// First bytes of the two result files. A file with another start is not overwritten.
const PERCENTILES: &str = "       Value";
const HISTOGRAM_LOG: &str = "#[";

/// Checks that the result files can be written, and that they do not replace files of another kind.
///
/// Does not change or create files. Errors are reported.
pub fn try_results(options: &Options, log: &Log) -> Result<(), Reported> {
    let detail = &options.detail;
    let files = [(&detail.hdr_file, PERCENTILES), (&detail.hdr_log, HISTOGRAM_LOG)];
    for (path, start) in files.into_iter().filter_map(|(path, start)| Some((path.as_ref()?, start))) {
        // Pipes and devices are not opened, because that may wait for a reader.
        if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            continue;
        }
        let is_new = fs::symlink_metadata(path).is_err();
        let tried = OpenOptions::new().append(true).create(true).open(path);
        let ours = tried.and_then(|_| begins_with(path, start)).map_err(|error| {
            log.error(&format!("could not write file \"{path}\": {}", system_text(&error)));
            Reported
        })?;
        if !ours {
            log.error(&format!("file \"{path}\" exists and has other content"));
            log.hint("Name another file, or remove this one.");
            return Err(Reported);
        }
        if is_new {
            // The file does not exist before there are results. If it remains, it is empty.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Whether the file is empty or starts with this text.
fn begins_with(path: &str, start: &str) -> io::Result<bool> {
    let mut found = Vec::new();
    File::open(path)?.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found == start.as_bytes())
}
