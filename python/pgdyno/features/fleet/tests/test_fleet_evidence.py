"""Transfer of results files in chunks: whole, or not at all."""

from __future__ import annotations

import sqlite3
import zlib
from hashlib import blake2b
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.errors import EvidenceError
from pgdyno.features.fleet.host import (
    CHUNK_BYTES,
    Chunk,
    SnapshotEnd,
    SnapshotReceiver,
    SnapshotSender,
    chunks_of,
    take_snapshot,
    unpacked,
)
from pgdyno.results.reader import Evidence


def transfer(sender: SnapshotSender, receiver: SnapshotReceiver) -> list[int]:
    """Return the offsets of the chunks."""
    offsets = []
    while (part := sender.next()) is not None:
        if isinstance(part, Chunk):
            offsets.append(part.offset)
        receiver.add(part)
    return offsets


def test_a_snapshot_of_an_open_file_is_a_valid_results_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "e.sqlite", tmp_path / "copy.sqlite"
    write_study(path, Synthetic(blocks=3, slices=2))
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("BEGIN IMMEDIATE")
    take_snapshot(path, copy)
    writer.close()
    with Evidence(copy) as evidence:
        assert len(evidence.blocks(0)) == 3
    assert not (tmp_path / "copy.sqlite-wal").exists()


def test_only_changed_chunks_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    data = bytearray(b"x" * (3 * CHUNK_BYTES + 7))
    path.write_bytes(data)
    sender, receiver = SnapshotSender(), SnapshotReceiver(tmp_path / "e.sqlite")
    sender.begin(path)
    assert transfer(sender, receiver) == [0, CHUNK_BYTES, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES]
    data[CHUNK_BYTES + 1] = 0
    path.write_bytes(data + b"more")
    sender.begin(path)
    assert transfer(sender, receiver) == [CHUNK_BYTES, 3 * CHUNK_BYTES]
    assert receiver.path.read_bytes() == data + b"more"
    path.write_bytes(data[:5])
    sender.begin(path)
    transfer(sender, receiver)
    assert receiver.path.read_bytes() == data[:5]


def test_a_later_snapshot_does_not_mix_with_the_current_one(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(b"a" * 2 * CHUNK_BYTES)
    sender, receiver = SnapshotSender(), SnapshotReceiver(tmp_path / "e.sqlite")
    sender.begin(path)
    first = sender.next()
    assert isinstance(first, Chunk)
    receiver.add(first)
    (tmp_path / "new").write_bytes(b"b" * 2 * CHUNK_BYTES)
    (tmp_path / "new").replace(path)
    transfer(sender, receiver)
    assert receiver.path.read_bytes() == b"a" * 2 * CHUNK_BYTES


def test_damage_on_the_way_keeps_the_last_file(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    path.write_bytes(b"before")
    source = tmp_path / "snapshot"
    source.write_bytes(b"after")
    receiver = SnapshotReceiver(path)
    (chunk,) = chunks_of(source)
    with pytest.raises(EvidenceError, match="digest of a chunk"):
        receiver.add(Chunk(0, chunk.data, b"other"))
    with pytest.raises(EvidenceError, match="damaged"):
        receiver.add(Chunk(0, b"no zlib", chunk.digest))
    receiver.add(chunk)
    with pytest.raises(EvidenceError, match="does not match"):
        receiver.add(SnapshotEnd(5, b"other"))
    assert path.read_bytes() == b"before"


def test_a_chunk_that_expands_without_end_is_refused() -> None:
    def chunk(size: int) -> Chunk:
        data = b"0" * size
        return Chunk(0, zlib.compress(data), blake2b(data).digest())

    assert len(unpacked(chunk(CHUNK_BYTES))) == CHUNK_BYTES
    with pytest.raises(EvidenceError):
        unpacked(chunk(CHUNK_BYTES + 1))
