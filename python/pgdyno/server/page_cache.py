"""Page cache and shared buffers before a trial: eviction and prewarming of a data directory.

For the files of one directory only, without root, and without harm to other programs: the kernel's switch for
the whole machine (drop_caches) is never touched. The server must be stopped: its own cache is another matter.

By the best way that this server permits: pg_prewarm reads every block into its shared buffers; where the
server has it not, or we may not create it, reading the files fills the operating system's cache; and where
the files are out of our reach, scans of the tables do, without their indexes.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import psycopg

from pgdyno.server.running import Connection

_libc = ctypes.CDLL(None, use_errno=True)


def drop(data_dir: Path) -> float:
    """Writes back what is dirty and has the kernel forget the content of all files under a directory, links
    followed (a WAL or tablespaces elsewhere).

    Returns the share that it has kept in memory all the same: 0 on a disk, 1 on a file system in memory.
    """
    for path in files(data_dir):
        with _opened(path) as descriptor:
            os.fdatasync(descriptor)  # a dirty page stays
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(data_dir)


def resident_share(data_dir: Path) -> float:
    """Of the pages of all files under a directory: how many are in memory, 0 to 1; 1 where there are none."""
    resident = total = 0
    for path in files(data_dir):
        with _opened(path) as descriptor:
            if size := os.fstat(descriptor).st_size:
                pages = _resident_pages(descriptor, size)
                resident += int(np.count_nonzero(pages))
                total += len(pages)
    return resident / total if total else 1.0


def files(data_dir: Path) -> Iterator[Path]:
    """All regular files under a directory, links to directories followed."""
    for directory, _, names in os.walk(data_dir, followlinks=True):
        for name in names:
            path = Path(directory, name)
            if path.is_file():
                yield path


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _resident_pages(descriptor: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each page is in memory: mincore(2), which reads none."""
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
        found = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        content = np.frombuffer(mapped, dtype=np.uint8)
        status = _libc.mincore(
            ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)
        )
        del content  # or the mapping could not be ended
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return (found & 1).astype(np.bool_)


Way = Literal["pg_prewarm", "files", "scans"]

_RELATIONS = Path(__file__).with_name("sql").joinpath("relations_to_prewarm.sql").read_bytes()
READ_BYTES = 2**20


@dataclass(frozen=True)
class Prewarmed:
    """What was read: how many relations, bytes of them, and by which way. ``reason``: why by no better one.

    ``kept_bytes_max`` is what the cache that was filled can hold, where we know: shared_buffers. More than
    that was read in vain.
    """

    way: Way
    relations: int
    size_bytes: int
    kept_bytes_max: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class _Relation:
    oid: int
    name: str
    kind: str
    path: str
    size_bytes: int


def prewarm(connection: Connection, data_dir: Path | None = None) -> Prewarmed:
    """Reads the connection's database. ``data_dir``: of the server, where its files are ours to read.

    Creates the extension pg_prewarm if it is not there. The connection is in autocommit mode.
    Raises psycopg.Error.
    """
    reason = _extension_missing(connection)
    relations = [_Relation(*row) for row in connection.execute(_RELATIONS)]
    if not reason:
        return _into_shared_buffers(connection, relations)
    if data_dir is not None:
        try:
            read = sum(_read_files(data_dir / relation.path) for relation in relations)
            return Prewarmed("files", len(relations), read, reason=reason)
        except OSError as error:
            reason = f"{reason}; its files cannot be read: {error}"
    return _by_scans(connection, relations, reason)


def _extension_missing(connection: Connection) -> str:
    try:
        connection.execute("create extension if not exists pg_prewarm")
    except psycopg.Error as error:
        if connection.closed:
            raise
        return " ".join(str(error).split())
    return ""


def _into_shared_buffers(connection: Connection, relations: list[_Relation]) -> Prewarmed:
    row = connection.execute(
        "select setting::int8, current_setting('block_size')::int8 from pg_settings"
        " where name = 'shared_buffers'"
    ).fetchone()
    assert row is not None
    buffers, block_bytes = row
    blocks = []
    for relation in relations:
        # Some catalogues are not for everyone.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            found = connection.execute("select pg_prewarm(%s::oid::regclass)", [relation.oid]).fetchone()
            assert found is not None
            blocks.append(found[0])
    return Prewarmed("pg_prewarm", len(blocks), sum(blocks) * block_bytes, buffers * block_bytes)


def _read_files(first: Path) -> int:
    """All segments of a relation: ``16384``, ``16384.1``, … Returns how many bytes."""
    read = 0
    for number in range(len(list(first.parent.glob(f"{first.name}.*"))) + 1):
        path = first if number == 0 else first.with_name(f"{first.name}.{number}")
        with path.open("rb", buffering=0) as segment:
            while piece := segment.read(READ_BYTES):
                read += len(piece)
    return read


def _by_scans(connection: Connection, relations: list[_Relation], reason: str) -> Prewarmed:
    tables = [relation for relation in relations if relation.kind in ("r", "m")]
    done: list[_Relation] = []
    with connection.transaction():
        for setting in ("enable_indexonlyscan", "enable_indexscan", "enable_bitmapscan"):
            connection.execute(f"set local {setting} = off")
        for table in tables:
            allowed = connection.execute(
                "select has_table_privilege(%s::oid, 'select')", [table.oid]
            ).fetchone()
            if allowed and allowed[0]:
                connection.execute(f"select count(*) from {table.name}".encode())
                done.append(table)
    return Prewarmed("scans", len(done), sum(table.size_bytes for table in done), reason=reason)
