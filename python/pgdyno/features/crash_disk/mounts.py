"""Mounts and loop devices below a directory, and their removal, also after a kill or with a disk that hangs.

Everything is found through the kernel, by the path of the directory: a killed pgdyno leaves no other notes.
Only mounts below that directory and loop devices on files below it are touched. Each step is a child process
with a timeout, because a system call on a disk that does not answer cannot be interrupted.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pgdyno.errors import ServerError, in_one_line
from pgdyno.server.directories import Mount, read_mounts

STEP_TIMEOUT_S = 20.0
"""Timeout of mount, umount, losetup and mkfs. On a disk that answers they take well under a second."""

CONNECTIONS = Path("/sys/fs/fuse/connections")
LOOPS = Path("/sys/block")


def run_step(command: Sequence[str], timeout_s: float = STEP_TIMEOUT_S) -> str:
    """Run a system tool and return its output. Raises ServerError if it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
            start_new_session=True,  # Ctrl-C must not end it halfway
        )
    except FileNotFoundError:
        raise ServerError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ServerError(f"{' '.join(command)} did not end within {timeout_s:g} s") from None
    if done.returncode != 0:
        raise ServerError(f"{' '.join(command)} failed: {in_one_line(done.stderr or done.stdout)}")
    return done.stdout


def mounts_below(directory: Path) -> list[Mount]:
    """Return the mounts below a directory, the latest first."""
    return [mount for mount in reversed(read_mounts()) if directory in mount.point.parents]


def loops_below(directory: Path) -> list[Path]:
    """Return the loop devices whose file is below a directory."""
    found = []
    for path in sorted(LOOPS.glob("loop*")):
        with contextlib.suppress(OSError):
            file = Path(os.fsdecode((path / "loop" / "backing_file").read_bytes().removesuffix(b"\n")))
            if directory in file.parents:
                found.append(Path("/dev", path.name))
    return found


def fuse_mounts_below(directory: Path) -> list[Mount]:
    """Return the simulated disks below a directory."""
    return [mount for mount in mounts_below(directory) if mount.kind.startswith("fuse")]


def release_disks(directory: Path) -> list[str]:
    """Unmount what is mounted below a directory and detach its loop devices. Return what remains.

    A FUSE connection is aborted first if its process cannot answer: without that, unmounting would hang.
    """
    directory = directory.resolve()
    release_file_systems(directory)
    for mount in fuse_mounts_below(directory):
        abort_connection(mount)
        _unmount(mount.point)
    return [*(str(mount.point) for mount in mounts_below(directory)), *map(str, loops_below(directory))]


def release_file_systems(directory: Path) -> None:
    """Unmount the file systems on the disks below a directory, and detach its loop devices."""
    for mount in mounts_below(directory):
        if not mount.kind.startswith("fuse"):
            _unmount(mount.point)
    for loop in loops_below(directory):
        with contextlib.suppress(ServerError):
            run_step(["losetup", "--detach", str(loop)])


def _unmount(point: Path) -> None:
    """Unmount a directory; if that fails or hangs, take it out of the tree at once (lazy)."""
    try:
        run_step(["umount", str(point)])
    except ServerError:
        with contextlib.suppress(ServerError):
            run_step(["umount", "--lazy", str(point)])


def abort_connection(mount: Mount) -> None:
    """Make all requests to a FUSE mount fail, now and later. Does nothing if its connection has ended, or if
    fusectl is not mounted: the connection then ends with its process.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(CONNECTIONS / str(os.minor(mount.device)) / "abort", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
