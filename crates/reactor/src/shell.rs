//! Shell commands. The client that runs one waits; the others of its loop do not.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::socket::Socket;
use super::{Error, Reactor};

/// Result of a command.
#[derive(Debug)]
pub struct ShellOutput {
    /// Exit status.
    pub status: ExitStatus,
    /// First line of its standard output, if requested.
    pub line: Vec<u8>,
}

/// Standard streams that a command inherits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Inherit standard input, else it is empty.
    pub input: bool,
    /// Inherit standard output, else the command writes to standard error, because a program may parse standard
    /// output.
    pub output: bool,
}

/// Runs a command with `/bin/sh -c`.
///
/// Captures at most `line_bytes_max` bytes of the first line of its output. If that is 0, the output goes to
/// the stream chosen by `shared`.
///
/// Dropping the future kills the command with its children. A command that shares standard input stays in the
/// process group of the terminal, and is killed alone.
pub async fn shell(
    reactor: &Reactor,
    command: &[u8],
    line_bytes_max: usize,
    shared: Shared,
) -> Result<ShellOutput, Error> {
    let input = if shared.input { Stdio::inherit() } else { Stdio::null() };
    let output = match (line_bytes_max > 0, shared.output) {
        (true, _) => Stdio::piped(),
        (false, true) => Stdio::inherit(),
        (false, false) => Stdio::from(io::stderr()),
    };
    // Flush earlier output first. An error means that nobody reads it.
    let _ = io::stdout().flush();
    let mut sh = Command::new("/bin/sh");
    sh.arg0("sh").arg("-c").arg(OsStr::from_bytes(command)).stdin(input).stdout(output);
    if !shared.input {
        sh.process_group(0);
    }
    let child = sh.spawn().map_err(|source| Error::system("start a shell", source))?;
    let mut running = Running { child, is_group: !shared.input };
    let line = match running.child.stdout.take() {
        Some(output) => first_line(reactor, output, line_bytes_max).await?,
        None => Vec::new(),
    };
    Ok(ShellOutput { status: running.end(reactor).await?, line })
}

/// A child process, or the group that it leads, which is killed when its future is dropped.
struct Running {
    child: Child,
    is_group: bool,
}

impl Running {
    async fn end(&mut self, reactor: &Reactor) -> Result<ExitStatus, Error> {
        let watched = |errno: Errno| Error::system("watch a shell", errno);
        let pid = Pid::from_child(&self.child);
        let end = Socket::new(reactor, pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(watched)?)?;
        end.readable().await;
        self.child.wait().map_err(|source| Error::system("wait for a shell", source))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            if self.is_group {
                let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

async fn first_line(reactor: &Reactor, output: ChildStdout, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let fd = OwnedFd::from(output);
    rustix::io::ioctl_fionbio(&fd, true).map_err(|errno| Error::system("read from a shell", errno))?;
    let readiness = fd.try_clone().map_err(|source| Error::system("read from a shell", source))?;
    let readiness = Socket::new(reactor, readiness)?;
    let (mut output, mut line) = (ChildStdout::from(fd), Vec::new());
    let mut byte = [0];
    while line.len() < bytes_max && line.last() != Some(&b'\n') {
        match output.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                readiness.acknowledge();
                readiness.readable().await;
            }
            Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            Err(source) => return Err(Error::system("read from a shell", source)),
        }
    }
    Ok(line)
}
