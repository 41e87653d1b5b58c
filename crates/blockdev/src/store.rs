//! Where durable contents are kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Durable contents of a disk, of a fixed size.
pub trait Store {
    /// Reads exactly `out.len()` bytes at `offset`.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// An image file. It is not synced: the power of the machine that runs the test is not cut.
impl Store for File {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }
}

/// An image in memory, for tests.
impl Store for Vec<u8> {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self[offset as usize..][..out.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}
