"""In-place copies of files, and restores that use them. No server."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.server.directories import Account
from pgdyno.server.snapshots import BLOCK_BYTES, COMPARED_BYTES, Snapshot, copy_bytes, restore, take

RELATION = "base/5/16384"
BLOCKS = 40
OURSELVES = Account("me", os.geteuid(), os.getegid(), switch=False)


def test_a_copy_of_a_file_that_became_shorter_fails(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"short")
    with pytest.raises(OSError, match="was truncated"):
        copy_bytes(tmp_path / "source", tmp_path / "target", 1000)


def copied(directory: Path, old: bytes, new: bytes) -> int:
    """Copy one file over another, check the result, and return the number of bytes written."""
    source, target = directory / "source", directory / "target"
    source.write_bytes(new)
    target.write_bytes(old)
    written = copy_bytes(source, target, len(new))
    assert target.read_bytes() == new
    return written


def unequal_bytes(old: bytes, new: bytes) -> int:
    """Return the total size of blocks that differ. A block that is partial on either side differs."""
    starts = range(0, len(new), BLOCK_BYTES)
    pairs = [(old[at : at + BLOCK_BYTES], new[at : at + BLOCK_BYTES]) for at in starts]
    return sum(len(after) for before, after in pairs if before != after or len(after) < BLOCK_BYTES)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return two files of blocks, mostly equal or different in one byte, with any length."""
    old, new = bytearray(), bytearray()
    for _ in range(draw(st.integers(0, 8))):
        block = bytes([draw(st.integers(0, 255))]) * BLOCK_BYTES
        at = draw(st.none() | st.integers(0, BLOCK_BYTES - 1))
        new += block
        old += block
        if at is not None:
            old[len(old) - BLOCK_BYTES + at] ^= draw(st.integers(1, 255))
    for content in (old, new):
        cut = draw(st.sampled_from([0, 0, 1, 5000, BLOCK_BYTES, 20000]))
        del content[max(0, len(content) - cut) :]
        content.extend(b"x" * draw(st.sampled_from([0, 0, 7, BLOCK_BYTES])))
    return bytes(old), bytes(new)


@given(files())
def test_a_copy_equals_its_source_and_writes_only_blocks_that_differ(
    tmp_path_factory: pytest.TempPathFactory, pair: tuple[bytes, bytes]
) -> None:
    old, new = pair
    assert copied(tmp_path_factory.mktemp("copy"), old, new) == unequal_bytes(old, new)


@pytest.mark.parametrize("changed", [range(0), [0], [127, 128], [300], range(300), range(100, 200)], ids=str)
def test_blocks_are_found_in_a_file_that_is_compared_in_parts(tmp_path: Path, changed: range) -> None:
    new = bytearray(os.urandom(2 * COMPARED_BYTES + 45 * BLOCK_BYTES))
    old = bytearray(new)
    for block in changed:
        old[(block + 1) * BLOCK_BYTES - 1] ^= 1
    assert copied(tmp_path, bytes(old), bytes(new)) == len(changed) * BLOCK_BYTES


def test_a_short_read_or_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda file, parts, at: read(file, [parts[0][:3000]], at))
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: write(file, content[:1000], at))
    assert copied(tmp_path, b"a" * 3 * BLOCK_BYTES, b"b" * 3 * BLOCK_BYTES) == 3 * BLOCK_BYTES


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    """A stopped data directory with one relation."""
    path = tmp_path / "snapshot"
    (path / "global").mkdir(parents=True)
    (path / "base" / "5").mkdir(parents=True)
    shut_down = struct.pack("=QIIi", 1, 1300, 202209061, 1)
    (path / "global" / "pg_control").write_bytes(shut_down)
    (path / RELATION).write_bytes(os.urandom(BLOCKS * BLOCK_BYTES))
    return take(path)


def use(live: Path) -> None:
    """Change the end of every fourth block, like hint bits without data checksums."""
    with (live / RELATION).open("r+b") as relation:
        for block in range(0, BLOCKS, 4):
            relation.seek((block + 1) * BLOCK_BYTES - 9)
            relation.write(os.urandom(9))


def test_a_restore_writes_only_the_changed_blocks(snapshot: Snapshot, tmp_path: Path) -> None:
    live = tmp_path / "live"
    restore(snapshot, live, OURSELVES, sync=False)
    use(live)
    done = restore(snapshot, live, OURSELVES, sync=False)
    assert (done.files_copied, done.bytes_copied) == (1, BLOCKS // 4 * BLOCK_BYTES)
    assert (live / RELATION).read_bytes() == (snapshot.data_dir / RELATION).read_bytes()
    assert restore(snapshot, live, OURSELVES, sync=False).files_copied == 0


def test_an_interrupted_restore_is_completed_by_the_next_one(
    snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = tmp_path / "live"
    restore(snapshot, live, OURSELVES, sync=False)
    use(live)
    write = os.pwrite

    def die_in_the_middle_of_a_block(descriptor: int, content: memoryview, offset: int) -> int:
        write(descriptor, content[: BLOCK_BYTES // 2], offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "pwrite", die_in_the_middle_of_a_block)
        restore(snapshot, live, OURSELVES, sync=False)
    done = restore(snapshot, live, OURSELVES, sync=False)
    assert done.files_kept == 0, "the record of the restore before was trusted"
    assert (live / RELATION).read_bytes() == (snapshot.data_dir / RELATION).read_bytes()
