//! Information of the kernel about this process: CPU time, memory, limits and signals.
//!
//! Unsafe code: rustix has neither `getrusage` nor `sigwait`.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::{fs, ptr, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Error, Nanos};

/// CPU time of this process (all threads) or of one thread.
///
/// The kernel splits it into user and system by sampling; the sum is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User time.
    pub user: Nanos,
    /// System time.
    pub system: Nanos,
}

impl std::ops::Sub for Usage {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.user = self.user + other.user;
        self.system = self.system + other.system;
    }
}

/// The CPU time of the process so far.
#[must_use]
pub fn usage() -> Usage {
    usage_of(libc::RUSAGE_SELF)
}

/// The CPU time of the calling thread so far.
#[must_use]
pub fn thread_usage() -> Usage {
    usage_of(libc::RUSAGE_THREAD)
}

fn usage_of(whom: libc::c_int) -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the structure or fails; a zeroed one is valid.
    let usage = unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    };
    let nanos = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000);
    Usage { user: nanos(usage.ru_utime), system: nanos(usage.ru_stime) }
}

/// The peak resident memory of this process; 0 if the kernel does not report it.
///
/// `ru_maxrss` is not used, because it includes the memory of the parent at the fork.
#[must_use]
pub fn memory_peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Maximum number of open files after raising the limit.
#[must_use]
pub fn file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    limit.current.and(limit.maximum).unwrap_or(u64::MAX)
}

/// Raises the limit of open files to `needed`, within the hard limit.
pub fn raise_file_limit(needed: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Error::Connect(format!(
            "{needed} open files are needed, but this process may have {}; raise the limit (ulimit -Hn) or use fewer clients",
            limit.maximum.unwrap_or(0),
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|e| Error::system("raise the limit of open files", e))
}

/// Calls `act` on SIGINT or SIGTERM in a separate thread, not in a signal handler.
///
/// Call it before any other thread is started, so that all of them block these signals.
pub fn catch_termination(act: impl Fn() + Send + 'static) -> Result<(), Error> {
    let mut signals = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is initialized by sigemptyset and outlives the calls.
    let (signals, status) = unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGTERM);
        let signals = signals.assume_init();
        (signals, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, ptr::null_mut()))
    };
    if status != 0 {
        return Err(Error::system("block signals", rustix::io::Errno::from_raw_os_error(status)));
    }
    let wait = move || {
        let mut signal = 0;
        // SAFETY: both pointers refer to live variables of the right type.
        while unsafe { libc::sigwait(&raw const signals, &raw mut signal) } == 0 {
            act();
        }
    };
    let started = thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(wait);
    started.map(|_| ()).map_err(|source| Error::system("start a thread", source))
}
