"""In-place copies of files, and restores that use them. No server."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgdyno.errors import DiskFullError
from pgdyno.server import snapshots
from pgdyno.server.directories import Account
from pgdyno.server.snapshots import (
    BLOCK_BYTES,
    COMPARED_BYTES,
    WAL,
    Snapshot,
    copy_bytes,
    restore,
    take,
)

RELATION = "base/5/16384"
BLOCKS = 40
OURSELVES = Account("me", os.geteuid(), os.getegid(), switch=False)


def test_a_copy_of_a_file_that_became_shorter_fails(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"short")
    with pytest.raises(OSError, match="was truncated"):
        copy_bytes(tmp_path / "source", tmp_path / "target", 1000)


def copied(directory: Path, old: bytes, new: bytes) -> int:
    """Copy one file over another in two parts, check them, and return the number of bytes written."""
    source, target = directory / "source", directory / "target"
    source.write_bytes(new)
    target.write_bytes(old)
    middle = len(new) // 2 // BLOCK_BYTES * BLOCK_BYTES
    written = copy_bytes(source, target, middle) + copy_bytes(source, target, len(new), middle)
    assert target.read_bytes() == new + old[len(new) :]
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


PART = COMPARED_BYTES // BLOCK_BYTES


@pytest.mark.parametrize(
    "changed",
    [range(0), [0], [PART - 1, PART], [4 * PART], range(4 * PART), range(PART // 2, 3 * PART)],
    ids=str,
)
def test_blocks_are_found_in_a_file_that_is_compared_in_parts(tmp_path: Path, changed: range) -> None:
    new = bytearray(os.urandom(4 * COMPARED_BYTES + 9 * BLOCK_BYTES))
    old = bytearray(new)
    for block in changed:
        old[(block + 1) * BLOCK_BYTES - 1] ^= 1
    assert copied(tmp_path, bytes(old), bytes(new)) == len(changed) * BLOCK_BYTES


def test_a_short_read_or_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda file, parts, at: read(file, [parts[0][:3000]], at))
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: write(file, content[:1000], at))
    assert copied(tmp_path, b"a" * 3 * BLOCK_BYTES, b"b" * 3 * BLOCK_BYTES) == 3 * BLOCK_BYTES


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A stopped data directory with one relation and its free space map."""
    path = tmp_path_factory.mktemp("snapshot")
    (path / "global").mkdir()
    (path / "base" / "5").mkdir(parents=True)
    shut_down = struct.pack("=QIIi", 1, 1300, 202209061, 1)
    (path / "global" / "pg_control").write_bytes(shut_down)
    (path / RELATION).write_bytes(os.urandom(BLOCKS * BLOCK_BYTES))
    (path / f"{RELATION}_fsm").write_bytes(os.urandom(3 * BLOCK_BYTES))
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


def test_a_full_disk_is_that_of_the_file_also_of_wal_on_another_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, live, disk = (tmp_path / name for name in ("source", "live", "disk"))
    for path in (source / "global", source / WAL, live, disk):
        path.mkdir(parents=True)
    (source / "global" / "pg_control").write_bytes(struct.pack("=QIIi", 1, 1300, 202209061, 1))
    (source / WAL / "1").write_bytes(b"wal")
    (live / WAL).symlink_to(disk)

    def full(_: Path, target: Path, *_rest: int) -> int:
        if target.parent.name == WAL:
            raise OSError(errno.ENOSPC, "No space left on device")
        return 0

    monkeypatch.setattr(snapshots, "copy_bytes", full)
    with pytest.raises(DiskFullError, match=f"disk full at {disk}/1 while restoring {source}: free space"):
        restore(take(source), live, OURSELVES, sync=False)


def overwrite(path: Path, n: int) -> None:
    with path.open("r+b") as file:
        file.seek(n)
        file.write(b"a torn write")


def rename_another_to(path: Path, n: int) -> None:
    """Rename a file of the same size and modification time to this name."""
    before, new = path.stat(), path.with_name("new")
    new.write_bytes(bytes([n % 256]) * before.st_size)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.rename(path)


def leave_a_hole(path: Path, n: int) -> None:
    os.truncate(path, 0)
    os.truncate(path, n)


def add_a_file(path: Path, _: int) -> None:
    path.with_name(f"{path.name}_new").write_bytes(b"unknown")


def instead(create: Callable[[Path], object]) -> Callable[[Path, int], None]:
    """Return a change that creates something else in the place of a file or directory."""

    def change(path: Path, _: int) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        create(path)

    return change


second_name_of_the_map = instead(lambda path: os.link(path.with_name("16384_fsm"), path))
CHANGES = st.tuples(
    st.sampled_from(["base", "base/5", RELATION, f"{RELATION}_fsm", "global/pg_control"]),
    st.sampled_from(
        [
            *(overwrite, rename_another_to, leave_a_hole, add_a_file, os.truncate),
            lambda path, n: path.chmod(0o700 + n % 0o100),
            instead(lambda path: path.write_bytes(b"unknown")),
            instead(lambda path: shutil.copytree(path.parent, path)),
            instead(lambda path: os.mknod(path, stat.S_IFSOCK)),
            instead(lambda path: path.symlink_to("16384_fsm")),
            instead(lambda path: path.symlink_to(path.parents[1] / "global")),
            second_name_of_the_map,
            instead(lambda _: None),
        ]
    ),
    st.integers(0, (BLOCKS + 9) * BLOCK_BYTES),
)


@pytest.fixture(scope="module")
def live(snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory restored from the snapshot."""
    path = tmp_path_factory.mktemp("live") / "data"
    restore(snapshot, path, OURSELVES, sync=False)
    return path


@given(st.lists(CHANGES, min_size=1, max_size=4))
@example([(RELATION, second_name_of_the_map, 0)])
def test_a_restore_undoes_any_change(
    snapshot: Snapshot, live: Path, changes: list[tuple[str, Callable[[Path, int], None], int]]
) -> None:
    for path, change, n in changes:
        with contextlib.suppress(OSError):  # an earlier change can make a later one impossible
            change(live / path, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "PIECE_BYTES", 4 * BLOCK_BYTES)
        patch.setattr(snapshots, "COMPARED_BYTES", 2 * BLOCK_BYTES)
        restore(snapshot, live, OURSELVES, sync=False)
    found = take(live)
    assert found.entries == snapshot.entries
    for path, entry in found.entries.items():
        if not entry.is_directory:
            assert (live / path).read_bytes() == (snapshot.data_dir / path).read_bytes()
            assert (live / path).stat().st_nlink == 1
