//! CPU affinity of threads and of all processes of a server.
//!
//! A process inherits its parent's affinity. The postmaster is therefore set first, so that new processes have
//! the right affinity. Work of the kernel for a server (mostly writeback) has no process of the server and is
//! not affected.

use std::{fs, io};

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::Error;

/// Upper bound (exclusive) of CPU numbers.
pub const CORES_MAX: usize = CpuSet::MAX_CPU;

/// Maximum number of passes over a server's processes until there is no new one. The kernel may omit a process
/// from the list while another one exits.
const READS_MAX: usize = 4;

/// The set of these CPUs.
#[must_use]
pub fn core_set(numbers: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &number in numbers {
        set.set(number);
    }
    set
}

/// Sets the affinity of the calling thread.
pub fn keep_thread_to(cores: &CpuSet) -> Result<(), Error> {
    sched_setaffinity(None, cores).map_err(|e| Error::system("choose the cores of a thread of the driver", e))
}

/// A server whose processes are pinned to CPUs until [`Self::let_go`].
pub struct KeptServer {
    postmaster: Pid,
    before: CpuSet,
}

impl KeptServer {
    /// The server with this postmaster, not yet pinned.
    pub fn new(postmaster_pid: u32) -> Result<Self, Error> {
        let postmaster = i32::try_from(postmaster_pid).ok().and_then(Pid::from_raw);
        let postmaster = postmaster.ok_or_else(|| wrong(postmaster_pid, Errno::SRCH))?;
        let before = sched_getaffinity(Some(postmaster)).map_err(|e| wrong(postmaster_pid, e))?;
        Ok(Self { postmaster, before })
    }

    /// Pins all its processes to these CPUs.
    pub fn keep_to(&self, cores: &CpuSet) -> Result<(), Error> {
        let postmaster = self.postmaster.as_raw_nonzero().get() as u32;
        sched_setaffinity(Some(self.postmaster), cores).map_err(|e| wrong(postmaster, e))?;
        let mut kept = Vec::new();
        for _ in 0..READS_MAX {
            let before = kept.len();
            for child in children(postmaster) {
                if !kept.contains(&child) {
                    keep_process_to(child, cores)?;
                    kept.push(child);
                }
            }
            if kept.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Restores the affinity of its processes.
    ///
    /// A process that has exited or cannot be changed is ignored: nothing is measured after this.
    pub fn let_go(&self) {
        let _ = self.keep_to(&self.before);
    }
}

/// Pins all threads of a process. A process that has exited is ignored, and so are processes that the kernel
/// pins.
fn keep_process_to(pid: u32, cores: &CpuSet) -> Result<(), Error> {
    for thread in numbers_in(&format!("/proc/{pid}/task")) {
        match sched_setaffinity(i32::try_from(thread).ok().and_then(Pid::from_raw), cores) {
            Err(Errno::SRCH) => {}
            Err(errno) if thread == pid => return Err(wrong(pid, errno)),
            _ => {}
        }
    }
    Ok(())
}

fn wrong(pid: u32, errno: Errno) -> Error {
    let remedy = match errno {
        Errno::PERM => "; that takes the server's user or the capability SYS_NICE",
        Errno::INVAL => "; are they of this machine, and for us to use?",
        _ => "",
    };
    let source = io::Error::other(format!("{}{remedy}", io::Error::from(errno)));
    Error::system(format!("choose the cores of process {pid} of the server"), source)
}

/// Children of a single-threaded process such as a postmaster.
fn children(pid: u32) -> Vec<u32> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(list) => list.split_whitespace().filter_map(|child| child.parse().ok()).collect(),
        // A kernel without the list, or no such process.
        Err(_) => numbers_in("/proc").filter(|&other| parent_of(other) == Some(pid)).collect(),
    }
}

/// Numeric names in a directory.
fn numbers_in(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    // The program name in parentheses may contain any character.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    fn cores_of(pid: u32) -> CpuSet {
        sched_getaffinity(i32::try_from(pid).ok().and_then(Pid::from_raw)).expect("a process")
    }

    #[test]
    fn a_server_is_pinned_with_its_children_and_unpinned() {
        // A shell with two children that wait for the end of their input.
        let script = "exec 3<&0; cat <&3 & cat <&3 & echo ready; wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let all = cores_of(shell.id());
        let one = (0..CORES_MAX).find(|&core| all.is_set(core)).expect("a core");
        let server = KeptServer::new(shell.id()).expect("a process");
        let processes = || [children(shell.id()), vec![shell.id()]].concat();
        assert_eq!(processes().len(), 3);
        server.keep_to(&core_set(&[one])).expect("ours");
        assert!(processes().into_iter().all(|pid| cores_of(pid) == core_set(&[one])));
        server.let_go();
        assert!(processes().into_iter().all(|pid| cores_of(pid) == all));
        drop(shell.stdin.take());
        shell.wait().expect("its end");
        let gone = server.keep_to(&all).expect_err("it has ended").to_string();
        assert!(gone.starts_with(&format!("cannot choose the cores of process {}", shell.id())), "{gone}");
    }

    #[test]
    fn children_are_found_without_the_kernels_list() {
        let parent = parent_of(std::process::id());
        assert_eq!(parent, Some(std::os::unix::process::parent_id()));
    }
}
