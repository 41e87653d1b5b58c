//! Counters in a memory-mapped file. Setting one costs a store, and values survive this process.

#![allow(unsafe_code)] // rustix's mmap is unsafe, too.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, initially zero. The kernel writes them to disk at any time: they survive a crash of the process,
/// not of the machine.
pub struct MappedCounters {
    first: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this value until it is dropped, and its counters are atomic.
unsafe impl Send for MappedCounters {}
// SAFETY: as above.
unsafe impl Sync for MappedCounters {}

impl MappedCounters {
    /// Maps `count` counters to `file`, which must be readable and writable. The file must not be truncated
    /// while they exist.
    pub fn create(file: &mut File, count: usize) -> io::Result<Self> {
        // Write zeros instead of only reserving: a page without disk space would later kill the process.
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&vec![0; Self::bytes(count)])?;
        // SAFETY: a new mapping of a file with this length.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::bytes(count),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast::<AtomicU64>()) {
            Some(first) if address != libc::MAP_FAILED => Ok(Self { first, count }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn bytes(count: usize) -> usize {
        count.max(1) * size_of::<AtomicU64>()
    }

    /// All counters.
    #[must_use]
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length, is page-aligned, and exists until this value is dropped.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    /// Sets one counter.
    #[inline]
    pub fn set(&self, index: usize, value: u64) {
        // Release: readers of the file of a dead process rely on the order of stores.
        self.all()[index].store(value, Ordering::Release);
    }
}

impl Drop for MappedCounters {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping of `create`, to which no reference remains.
        unsafe { libc::munmap(self.first.as_ptr().cast(), Self::bytes(self.count)) };
    }
}

/// The counters in the bytes of such a file.
#[must_use]
pub fn read_counters(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, process};

    #[test]
    fn counters_that_were_set_are_in_the_file() -> io::Result<()> {
        let path = env::temp_dir().join(format!("pgdyno-counters-{}", process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let counters = MappedCounters::create(&mut file, 1000)?;
        counters.set(0, 7);
        counters.set(999, u64::MAX);
        assert_eq!(counters.all()[999].load(Ordering::Relaxed), u64::MAX);
        let read = read_counters(&fs::read(&path)?);
        assert_eq!((read.len(), read[0], read[1], read[999]), (1000, 7, 0, u64::MAX));
        drop(counters);
        fs::remove_file(path)
    }
}
