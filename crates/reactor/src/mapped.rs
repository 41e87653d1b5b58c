//! Counters in a file that is mapped into memory: to set one costs a store, and what was set outlives this process.

#![allow(unsafe_code)] // rustix's mmap is as unsafe as libc's.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, all zero at first. They reach the disk when the kernel likes: they survive a process, not a machine.
pub struct MappedCounters {
    first: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone until it is dropped, and its counters are atomic.
unsafe impl Send for MappedCounters {}
// SAFETY: as above.
unsafe impl Sync for MappedCounters {}

impl MappedCounters {
    /// Makes `file`, which can be read and written, so many counters. As long as they live nobody may shorten it.
    pub fn create(file: &mut File, count: usize) -> io::Result<Self> {
        // Written, not only reserved: a page that finds no room on the disk later would kill the process.
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&vec![0; Self::bytes(count)])?;
        // SAFETY: a new mapping, of a file that is as long.
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

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: so many lie there, on a page's boundary, until this value is dropped.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    /// Sets one of them.
    #[inline]
    pub fn set(&self, index: usize, value: u64) {
        // After what was set before it: whoever reads the file of a process that died relies on the order.
        self.all()[index].store(value, Ordering::Release);
    }
}

impl Drop for MappedCounters {
    fn drop(&mut self) {
        // SAFETY: what create mapped, and nobody has a counter of it any more.
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
    fn what_was_set_is_in_the_file() -> io::Result<()> {
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
