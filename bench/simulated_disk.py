"""Throughput of the file system on the simulated disk of crash tests, beside the same file system on a plain
loop device.

Both have ext4 on an image of the same size in the same directory. The simulated disk keeps unflushed writes
in memory, reads through the page cache of its image and does not sync it. So the real disk slows down neither
its syncs nor its reads; only the first figure compares equal work.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.environment import Environment, Sizes
from bench.figure import Figure, compared
from pgdyno.features.crash_disk.disk import FORMAT, FaultyDisk, create_image, missing_for_power_cuts, run_step
from pgdyno.features.crash_disk.plan import FileSystem

IMAGE_BYTES = 2 << 30
CHUNK_BYTES = 1 << 20
BLOCK_BYTES = 8192
SYNCS = 200
"""Number of blocks that are written and synced one by one, as WAL is."""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Alternate both disks, each with a new file per run."""
    if missing := missing_for_power_cuts():
        print(f"simulated disk: not measured, this machine lacks {', '.join(missing)}", file=sys.stderr)
        return
    place = environment.directory / "disks"
    for name in ("simulated", "plain"):
        (place / name).mkdir(parents=True)
        create_image(place / f"{name}.img", IMAGE_BYTES)
    with _simulated(place) as ours, _plain(place) as theirs:
        for name, work in WORKS.items():
            pairs = []
            for turn in range(sizes.pairs):
                order = (ours, theirs) if turn % 2 else (theirs, ours)
                took = {root: _rate(work, root, sizes.disk_bytes) for root in order}
                pairs.append((took[ours], took[theirs]))
            bound = 0.5 if work is _write else None
            figure = f"simulated disk: {name}"
            yield compared(figure, "MB/s", pairs, "plain loop device", bound=bound, sense="at least")


@contextlib.contextmanager
def _simulated(place: Path) -> Iterator[Path]:
    with FaultyDisk.attach(place / "simulated", place / "simulated.img") as disk:
        disk.format()
        disk.mount()
        yield disk.root


@contextlib.contextmanager
def _plain(place: Path) -> Iterator[Path]:
    image, root = place / "plain.img", place / "plain"
    loop = run_step(["losetup", "--find", "--show", "--nooverlap", "--direct-io=on", str(image)]).strip()
    try:
        run_step([*FORMAT[FileSystem.EXT4], loop])
        run_step(["mount", "-t", "ext4", loop, str(root)])
        try:
            yield root
        finally:
            run_step(["umount", str(root)])
    finally:
        run_step(["losetup", "--detach", loop])


def _rate(work: Callable[[Path, int], int], root: Path, n_bytes: int) -> float:
    """Return the throughput in MB/s."""
    path = root / "file"
    begun_s = time.monotonic()
    done_bytes = work(path, n_bytes)
    return done_bytes / 1e6 / (time.monotonic() - begun_s)


def _write(path: Path, n_bytes: int) -> int:
    """Write a new file, as a checkpoint does, and sync it."""
    path.unlink(missing_ok=True)
    chunk = random.Random(1).randbytes(CHUNK_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(n_bytes // CHUNK_BYTES):
            file.write(chunk)
        os.fsync(file.fileno())
    return n_bytes


def _commit(path: Path, n_bytes: int) -> int:  # noqa: ARG001
    """Overwrite blocks of an existing file and sync each, as commits do."""
    block = random.Random(2).randbytes(BLOCK_BYTES)
    with path.open("r+b", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(block)
            os.fdatasync(file.fileno())
    return SYNCS * BLOCK_BYTES


def _read(path: Path, n_bytes: int) -> int:
    """Read the file without the page cache of its own file system."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, CHUNK_BYTES) as chunk:  # aligned, as O_DIRECT requires
        try:
            while os.readv(descriptor, [chunk]):
                pass
        finally:
            os.close(descriptor)
    return n_bytes


WORKS = {"write and sync a file": _write, "sync single blocks": _commit, "read the file": _read}
"""In this order: the second and third use the file of the first."""
