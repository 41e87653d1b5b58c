//! What the kernel knows of this process: the processor time it used, its memory, its limits, its signals.
//!
//! Unsafe code: rustix has neither `getrusage` nor `sigwait`.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::{fs, ptr, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Error, Nanos};

/// Processor time of this process, all threads, or of one of them, so far. The kernel divides it into user and system by the state
/// that its ticks find the process in, but the sum is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In our own code.
    pub user: Nanos,
    /// In the kernel on our behalf.
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

/// The processor time used so far.
#[must_use]
pub fn usage() -> Usage {
    usage_of(libc::RUSAGE_SELF)
}

/// The processor time that the calling thread has used so far.
#[must_use]
pub fn thread_usage() -> Usage {
    usage_of(libc::RUSAGE_THREAD)
}

fn usage_of(whom: libc::c_int) -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the structure or fails; zeroed, it is valid in either case.
    let usage = unsafe {
        libc::getrusage(whom, usage.as_mut_ptr());
        usage.assume_init()
    };
    let nanos = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000);
    Usage { user: nanos(usage.ru_utime), system: nanos(usage.ru_stime) }
}

/// The most memory that this process had resident at any time; 0 where the kernel does not say.
/// (`ru_maxrss` would not do: it counts the memory that our parent had when it forked.)
#[must_use]
pub fn memory_peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The files that this process may have open, as far as it can be raised.
#[must_use]
pub fn file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    limit.current.and(limit.maximum).unwrap_or(u64::MAX)
}

/// Sees to it that this process may have `needed` files open, within what the hard limit allows.
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

/// Calls `act` whenever SIGINT or SIGTERM comes, in a thread of its own and not in a signal handler. To be called
/// before any other thread is started, so that all of them leave these signals to it.
pub fn catch_termination(act: impl Fn() + Send + 'static) -> Result<(), Error> {
    let mut signals = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is initialised by sigemptyset before it is used, and lives through the calls.
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
        // SAFETY: both pointers are to live variables of the right type.
        while unsafe { libc::sigwait(&raw const signals, &raw mut signal) } == 0 {
            act();
        }
    };
    let started = thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(wait);
    started.map(|_| ()).map_err(|source| Error::System { action: "start a thread".to_owned(), source })
}
