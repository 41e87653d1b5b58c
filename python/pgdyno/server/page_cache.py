"""Page cache and shared buffers before a trial: eviction and prewarming of a data directory.

Eviction affects the files of one directory only, needs no root, and does not harm other programs: it does not
use the switch for the whole machine (drop_caches). The server must be stopped, because it has its own cache.

Prewarming uses the best method available. pg_prewarm reads every block into shared buffers. If the extension
is missing or cannot be created, pgdyno reads the files into the page cache. If the files are not accessible,
sequential scans read the tables, without their indexes.
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


def evict(data_dir: Path) -> float:
    """Write back dirty pages and evict all files under a directory from the page cache. Follows links (a WAL
    directory or tablespaces elsewhere).

    Returns the share of pages that remain in memory: 0 on a disk, 1 on a file system in memory.
    """
    for path in regular_files(data_dir):
        with _opened(path) as descriptor:
            os.fdatasync(descriptor)  # dirty pages are not evicted
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(data_dir)


def resident_share(data_dir: Path) -> float:
    """Return the share of pages under a directory that are in memory, 0 to 1; 1 without any pages."""
    resident = total = 0
    for path in regular_files(data_dir):
        with _opened(path) as descriptor:
            if size := os.fstat(descriptor).st_size:
                pages = _resident_pages(descriptor, size)
                resident += int(np.count_nonzero(pages))
                total += len(pages)
    return resident / total if total else 1.0


def regular_files(data_dir: Path) -> Iterator[Path]:
    """Yield all regular files under a directory; follows links to directories."""
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
    """Return for each page whether it is in memory: mincore(2), which reads no page."""
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
        found = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        content = np.frombuffer(mapped, dtype=np.uint8)
        status = _libc.mincore(
            ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)
        )
        del content  # otherwise the mapping cannot be closed
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return (found & 1).astype(np.bool_)


Way = Literal["pg_prewarm", "files", "scans"]

_RELATIONS = Path(__file__).with_name("sql").joinpath("relations_to_prewarm.sql").read_bytes()
READ_BYTES = 2**20


@dataclass(frozen=True)
class Prewarmed:
    """Result of prewarming: method, number of relations and bytes. ``reason``: why no better method was used.

    ``kept_bytes_max`` is the size of the cache if known: shared_buffers. Bytes beyond it have no effect.
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
    """Prewarm the database of the connection. ``data_dir``: that of the server, if its files are readable.

    Creates the extension pg_prewarm if it is missing. The connection is in autocommit mode.
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
        # Some catalogs require privileges.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            found = connection.execute("select pg_prewarm(%s::oid::regclass)", [relation.oid]).fetchone()
            assert found is not None
            blocks.append(found[0])
    return Prewarmed("pg_prewarm", len(blocks), sum(blocks) * block_bytes, buffers * block_bytes)


def _read_files(first: Path) -> int:
    """Read all segments of a relation (``16384``, ``16384.1``, …). Return the number of bytes."""
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
