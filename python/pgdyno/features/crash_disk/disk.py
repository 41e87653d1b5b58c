"""A disk whose power can be cut, with a file system on it.

    image file ─ engine (FUSE, volatile write cache) ─ loop device ─ file system ─ data directory

    create_image(path, size_bytes)
    with FaultyDisk.attach(directory, image) as disk:     # one life of the disk
        disk.format()
        disk.mount()
        ...                                               # a server on disk.root
        cut = disk.cut("torn", seed)
    with FaultyDisk.attach(directory, image) as disk:     # the next life: what survived
        disk.mount()

Each life has a new process, a new FUSE mount and a new loop device, so no cache of the kernel outlives a cut.
The kernel turns each flush of the file system into an fsync of the image, as the loop device has a
write-back cache; ``attach`` checks that.

- Mounts and loop devices below a directory, and their removal, also after a kill or with a disk that hangs.
- One life of a disk: its process, its file system, the cut of its power, faults.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pgdyno.errors import DiskFullError, PgdynoError, ServerError, in_one_line
from pgdyno.features.crash_disk.plan import DISK_BLOCK_BYTES, FileSystem, Survivors
from pgdyno.server.directories import Mount, read_mounts
from pgdyno.server.engine import find_engine

# ----------------------------------------------------------------------
# Mounts and loop devices below a directory, and their removal, also after a kill or with a disk that hangs.
#
# Everything is found through the kernel, by the path of the directory: a killed pgdyno leaves no other notes.
# Only mounts below that directory and loop devices on files below it are touched. Each step is a child
# process with a timeout, because a system call on a disk that does not answer cannot be interrupted.
# ----------------------------------------------------------------------

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


# ----------------------------------------------------------------------
# One life of a disk: its process, its file system, the cut of its power, faults.
# ----------------------------------------------------------------------

ANSWER_TIMEOUT_S = 20.0
"""Timeout of an answer of the disk's process. A cut writes at most the cache to the page cache."""

CACHE_BYTES_MAX = 1 << 30
"""Size of the volatile cache. Beyond it the oldest writes become durable, as on a disk with less cache."""

CUT_WITHIN_S = 2.0
"""Maximum wait for the moment of a cut: a forced checkpoint of a few MB ends within it."""

INODES = 16384
"""A data directory has about 1,000 files."""

FORMAT: Mapping[FileSystem, tuple[str, ...]] = {
    FileSystem.EXT4: (
        *("mkfs.ext4", "-q", "-F", "-b", "4096", "-N", str(INODES)),
        *("-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    ),
    FileSystem.XFS: ("mkfs.xfs", "-q", "-f", "-K"),
    FileSystem.BTRFS: ("mkfs.btrfs", "-q", "-f", "-K"),
}
"""Commands that create a file system, without the device."""

MOUNT_OPTIONS: Mapping[FileSystem, str] = {
    FileSystem.EXT4: "nodev,nosuid",
    FileSystem.XFS: "nodev,nosuid,nouuid",  # the images of primary and standby are copies of one template
    FileSystem.BTRFS: "nodev,nosuid",
}

BALLAST = "ballast"
"""File that takes the free space of a full disk."""

TOOLS = ("losetup", "mount", "umount")


@dataclass(frozen=True)
class DiskCut:
    """A cut of the power. ``at_ns``: instant on the monotonic clock. ``counts``: requests and bytes since
    ``restart_counts``, and how many pieces of 4 KiB were ``volatile``, and ``survived`` or were ``torn``.
    ``is_planned``: True if it happened at the moment that was asked for.
    """

    at_ns: int
    counts: Mapping[str, int]
    is_planned: bool


def missing_for_power_cuts(file_system: FileSystem = FileSystem.EXT4) -> list[str]:
    """Return what this machine lacks for a disk whose power can be cut; empty if nothing."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root privileges")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            missing.append(device)
        elif not os.access(device, os.R_OK | os.W_OK):
            missing.append(f"access to {device}")
    tools = (*TOOLS, FORMAT[file_system][0], *(("btrfs",) if file_system is FileSystem.BTRFS else ()))
    missing += [tool for tool in tools if shutil.which(tool) is None]
    if not (missing or _kernel_knows(file_system)):
        missing.append(f"{file_system} in the kernel")
    return missing


def _kernel_knows(file_system: FileSystem) -> bool:
    """Return whether the kernel has the file system, or a module that a mount loads."""
    names = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if file_system in names:
        return True
    if shutil.which("modprobe") is None:
        return False
    found = subprocess.run(["modprobe", "--dry-run", file_system], capture_output=True, check=False)
    return found.returncode == 0


def create_image(path: Path, size_bytes: int) -> None:
    """Create a sparse image file that only its owner can read."""
    path.touch(0o600, exist_ok=False)
    os.truncate(path, size_bytes)


class FaultyDisk:
    """One life of a disk: its process, FUSE mount and loop device, and the mounted file system."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes], file_system: FileSystem) -> None:
        """Use ``attach``."""
        self._directory = directory
        self._file_system = file_system
        self._process = process
        self._buffer = b""
        self._loop = ""
        self._counts_before: Mapping[str, int] = {}

    @property
    def root(self) -> Path:
        """Directory on which the file system is mounted."""
        return self._directory / "disk"

    @classmethod
    @contextlib.contextmanager
    def attach(
        cls, directory: Path, image: Path, file_system: FileSystem = FileSystem.EXT4, *, lies: bool = False
    ) -> Iterator[Self]:
        """Serve an image as a loop device. At the end, everything is unmounted and detached, in any state.

        ``directory`` belongs to this disk alone. Raises ServerError, DiskFullError.
        """
        fuse = directory / "fuse"
        for path in (fuse, directory / "disk"):
            path.mkdir(mode=0o755, exist_ok=True)
        served = {"image": str(image), "mount": str(fuse), "cache_bytes_max": CACHE_BYTES_MAX, "lies": lies}
        disk = cls(directory, _start(), file_system)
        try:
            disk._ask(served, "serving")
            disk._attach_loop(fuse / "image")
            yield disk
        except BaseException:
            disk._remove(orderly=False)
            raise
        disk._remove(orderly=True)

    def _attach_loop(self, file: Path) -> None:
        command = ["losetup", "--find", "--show", "--nooverlap", "--direct-io=on", str(file)]
        self._loop = run_step(command).strip()
        cache = (LOOPS / Path(self._loop).name / "queue" / "write_cache").read_text().strip()
        if cache != "write back":
            raise ServerError(
                f"{self._loop} has the write cache {cache!r} and would not pass on flushes: "
                "this kernel cannot test power cuts"
            )

    def format(self) -> None:
        """Create a file system. Raises ServerError."""
        run_step([*FORMAT[self._file_system], self._loop])

    def mount(self) -> None:
        """Mount the file system, which replays its journal. Raises ServerError."""
        options = MOUNT_OPTIONS[self._file_system]
        run_step(["mount", "-t", self._file_system, "-o", options, self._loop, str(self.root)])
        try:
            (self.root / BALLAST).unlink(missing_ok=True)
        except OSError as error:
            raise ServerError(f"the file system on {self._loop} is damaged: {error}") from error

    def cut(self, survivors: Survivors, seed: int, at: int | Literal["flush"] | None = None) -> DiskCut:
        """Cut the power. From then on, every request fails. Raises ServerError, DiskFullError.

        ``at``: cut in the write that makes this many pieces volatile, or at the next flush before it does
        anything, at the latest after CUT_WITHIN_S.
        """
        moment = {"volatile": at} if isinstance(at, int) else at
        when = None if at is None else {"at": moment, "within_ms": round(1000 * CUT_WITHIN_S)}
        event = self._ask({"do": "cut", "survivors": survivors, "seed": seed, "when": when}, "cut")
        after = self._ask({"do": "counts"}, "counts")
        self._require_image(after)
        counts = {name: count - self._counts_before.get(name, 0) for name, count in after["counts"].items()}
        pieces = {name: event[name] for name in ("volatile", "survived", "torn")}
        return DiskCut(event["at_ns"], counts | pieces, event["planned"])

    def fail(self, operation: str, nth: int) -> None:
        """Let the n-th write or flush from now on fail with EIO. Later ones succeed."""
        self._ask({"do": "fail", "operation": operation, "nth": nth}, "failing")

    def fill(self) -> None:
        """Take all space that an unprivileged user has left. The next ``mount`` frees it."""
        space = os.statvfs(self.root)
        free, taken = space.f_bavail * space.f_frsize, 0
        piece = free
        with (self.root / BALLAST).open("wb") as file:
            # xfs and btrfs need a part of the free space for their own structures.
            while (piece := min(piece, free - taken)) >= DISK_BLOCK_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), taken, piece)
                    taken += piece
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2

    def restart_counts(self) -> None:
        """Count requests and bytes from now on. Raises ServerError."""
        self._counts_before = self._ask({"do": "counts"}, "counts")["counts"]

    def _remove(self, *, orderly: bool) -> None:
        """Unmount and detach. ``orderly``: keep everything that was written. Raises ServerError or
        DiskFullError if that fails, or a mount or loop device remains.
        """
        release_file_systems(self._directory.resolve())
        failure = self._stop(orderly)
        left = release_disks(self._directory)
        if self._file_system is FileSystem.BTRFS and self._loop:
            # The next life of this disk has another loop device, and perhaps an older state.
            with contextlib.suppress(ServerError):  # the kernel has forgotten it already
                run_step(["btrfs", "device", "scan", "--forget", self._loop])
        if failure is not None:
            raise failure
        if left:
            raise ServerError(
                f"cannot remove {', '.join(left)}: unmount or detach it with umount -l and losetup -d"
            )

    def _require_image(self, event: Mapping[str, Any]) -> None:
        """Raise DiskFullError if a write to the image has failed."""
        if event["image_error"] is not None:
            raise DiskFullError(
                f"cannot write the image of the disk below {self._directory}: {event['image_error']}"
            )

    def _stop(self, orderly: bool) -> PgdynoError | None:
        """End the process. Return the error if it did not settle its contents."""
        failure: PgdynoError | None = None
        if orderly:
            try:
                self._require_image(self._ask({"do": "stop"}, "result"))
            except DiskFullError as error:
                failure = error
            except ServerError as error:
                failure = ServerError(f"the disk below {self._directory} did not end: {error}")
        for mount in fuse_mounts_below(self._directory.resolve()):
            abort_connection(mount)
        for patience_s in (1.0 if orderly else 0.0, STEP_TIMEOUT_S):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=patience_s)
                break
            self._process.kill()
        return failure

    def _ask(self, message: Mapping[str, Any], expected: str) -> dict[str, Any]:
        """Send a command and return its event. Raises ServerError for another event, or none in time."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the end of its output says the same
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
        event: dict[str, Any] = json.loads(self._line())
        if event["event"] != expected:
            raise ServerError(f"the simulated disk failed: {event.get('message', event['event'])}")
        return event

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._buffer:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise ServerError(f"the simulated disk did not answer within {ANSWER_TIMEOUT_S:g} s")
            part = os.read(self._process.stdout.fileno(), 65536)
            if not part:
                raise ServerError("the process of the simulated disk has ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _start() -> subprocess.Popen[bytes]:
    """Start the process. It ends with pgdyno: at the end of its input it stops serving."""
    return subprocess.Popen(
        [find_engine(), "disk"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
