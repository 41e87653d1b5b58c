"""Transfer of a results file from a host in chunks: only changed chunks, each with a digest.

A snapshot is a consistent copy of a results file that is being written. The receiver keeps its last chunks in
``.NAME.part`` and replaces NAME only after the digest of the whole file has been verified.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from pgdyno.errors import EvidenceError
from pgdyno.fleet.host_messages import Chunk, SnapshotEnd

CHUNK_BYTES = 1 << 20
COMPRESSION = 1
"""Level of zlib: the host measures while it compresses."""


def take_snapshot(source: Path, target: Path) -> None:
    """Copy a results file consistently, also while it is being written. Raises sqlite3.Error, OSError."""
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    with (
        contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as here,
        contextlib.closing(sqlite3.connect(part)) as there,
    ):
        here.backup(there)
        there.execute("PRAGMA journal_mode = DELETE")
    part.replace(target)


class SnapshotSender:
    """Sends snapshots of one file. It remembers the digests of the chunks that the receiver has.

    The snapshot stays open, so that a later one with the same name does not mix with it.
    """

    def __init__(self) -> None:
        self._received: dict[int, bytes] = {}
        self._file: BinaryIO | None = None
        self._whole = blake2b()

    def begin(self, path: Path) -> None:
        """Start to send this snapshot from its beginning, instead of the current one. Raises OSError."""
        self.close()
        self._file, self._whole = path.open("rb"), blake2b()

    def close(self) -> None:
        """Send nothing until the next snapshot."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def forget(self) -> None:
        """Send all chunks of later snapshots: the receiver has lost its chunks."""
        self._received.clear()

    def next(self) -> Chunk | SnapshotEnd | None:
        """Return the next changed chunk, or the end of the snapshot; None without one. Raises OSError."""
        if self._file is None:
            return None
        offset = self._file.tell()
        while data := self._file.read(CHUNK_BYTES):
            digest = blake2b(data).digest()
            self._whole.update(data)
            if self._received.get(offset) != digest:
                self._received[offset] = digest
                return Chunk(offset, zlib.compress(data, COMPRESSION), digest)
            offset += len(data)
        self.close()
        return SnapshotEnd(offset, self._whole.digest())


class SnapshotReceiver:
    """Receives the snapshots of one host into ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.part")
        self._part.unlink(missing_ok=True)

    def write(self, chunk: Chunk) -> None:
        """Store a chunk. Raises EvidenceError if it was damaged on the way, OSError."""
        write_chunks([chunk], self._part)

    def finish(self, end: SnapshotEnd) -> None:
        """Verify the whole snapshot, and replace the file. Raises EvidenceError, OSError."""
        whole = blake2b()
        with self._part.open("r+b") as file:
            file.truncate(end.size_bytes)
            while data := file.read(CHUNK_BYTES):
                whole.update(data)
        if whole.digest() != end.digest:
            self._part.unlink()
            raise EvidenceError("the digest of the collected results file does not match")
        ready = self.path.with_name(f".{self.path.name}.ready")
        shutil.copyfile(self._part, ready)
        with ready.open("rb") as file:
            os.fsync(file.fileno())
        ready.replace(self.path)

    def close(self) -> None:
        """Remove the chunks."""
        self._part.unlink(missing_ok=True)


def unpacked(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk. Raises EvidenceError if they do not match the digest."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(chunk.data, CHUNK_BYTES + 1)
    except zlib.error as error:
        raise EvidenceError(f"a chunk of a results file is damaged: {error}") from error
    if len(data) > CHUNK_BYTES or blake2b(data).digest() != chunk.digest:
        raise EvidenceError("the digest of a chunk of a results file does not match")
    return data


def chunks_of(path: Path) -> Iterator[Chunk]:
    """Yield all chunks of a file. Raises OSError."""
    sender = SnapshotSender()
    sender.begin(path)
    while isinstance(part := sender.next(), Chunk):
        yield part


def write_chunks(chunks: Sequence[Chunk], path: Path) -> None:
    """Write chunks to their places in a file. Raises EvidenceError if one was damaged on the way, OSError."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        for chunk in chunks:
            file.seek(chunk.offset)
            file.write(unpacked(chunk))
