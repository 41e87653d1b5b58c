//! Where durable contents are kept.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// Durable contents of a disk, of a fixed size.
pub trait Store {
    /// Reads exactly `out.len()` bytes at `offset`.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `parts`, one after the other, from `offset` on.
    fn write_parts(&mut self, offset: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_parts(offset, &mut [IoSlice::new(data)])
    }
}

/// An image file. It is not synced: the power of the machine that runs the test is not cut.
impl Store for File {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write_parts(&mut self, mut offset: u64, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        while !parts.is_empty() {
            match rustix::io::pwritev(&*self, parts, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut parts, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// An image in memory.
#[cfg(test)]
impl Store for Vec<u8> {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write_parts(&mut self, offset: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset as usize;
        for part in parts {
            self[at..][..part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(())
    }
}
