//! The disk as a FUSE file system: a directory with one file, the image.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::disk::{Disk, Fault};
use crate::store::Store;

/// The name of the image in the mounted directory.
pub const IMAGE_NAME: &str = "image";
const IMAGE: INodeNo = INodeNo(2);
/// Attributes never change while the disk is served.
const VALID: Duration = Duration::from_secs(3600);

/// Serves a disk.
pub struct ImageFile<S>(pub Arc<Disk<S>>);

impl<S: Store> ImageFile<S> {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_image = inode == IMAGE;
        let size = if is_image { self.0.size_bytes() } else { 0 };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_image { FileType::RegularFile } else { FileType::Directory },
            perm: if is_image { 0o600 } else { 0o700 },
            nlink: if is_image { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn errno(fault: &Fault) -> Errno {
    match fault {
        Fault::Outside => Errno::ENOSPC,
        Fault::Off | Fault::Injected | Fault::Image(_) => Errno::EIO,
    }
}

impl<S: Store + Send + 'static> Filesystem for ImageFile<S> {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == IMAGE_NAME {
            reply.entry(&VALID, &self.attributes(IMAGE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(inode));
    }

    /// Without the page cache of the kernel: its contents would outlive a cut.
    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if inode == IMAGE {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        } else {
            reply.error(Errno::EISDIR);
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(offset, size as usize) {
            Ok(data) => reply.data(&data),
            Err(fault) => reply.error(errno(&fault)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(fault) => reply.error(errno(&fault)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.flush() {
            Ok(()) => reply.ok(),
            Err(fault) => reply.error(errno(&fault)),
        }
    }

    /// A close of the image makes nothing durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}
