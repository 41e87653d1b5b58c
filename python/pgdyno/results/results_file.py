"""The results file as a file: creation, opening with checks, one writer, refusal with a reason.

SQLite's own locks are per transaction and cannot say "a study is running"; and opening the database a second
time just to lock it would drop SQLite's locks when closed (POSIX). Hence a file of its own, ``NAME.lock``.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from pgdyno.errors import DiskFullError, EvidenceError
from pgdyno.results import checksums

REAL_MAX = 1e12
"""Of seconds, which most of them are: 30 000 years. Their squares and products stay far below infinity."""

INTEGER_MAX = 2**53
"""Whole numbers are exact as floating-point ones up to here: as nanoseconds 104 days."""

REAL_MIN = 1e-30
"""What is smaller and not zero is no time that anybody took; ratios to it would have no finite logarithm."""

_ANY_SIGN = frozenset({"seed"})
_NOT_NEGATIVE = (
    "cpu_s",
    "cpu_user_s",
    "cpu_system_s",
    "restore_s",
    "start_s",
    "took_s",
    "recovery_s",
    "p_value",
)


def column_out_of_range(connection: sqlite3.Connection) -> str | None:
    """Return the first ``table.column`` that holds an impossible number, or None."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
    for (table,) in tables.fetchall():
        ranges = dict(_ranges(connection, table))
        if not ranges:
            continue
        is_any = ", ".join(f"max(coalesce({outside}, 0))" for outside in ranges.values())
        found = connection.execute(f"SELECT {is_any} FROM {table} NOT INDEXED").fetchone()
        for column, is_outside in zip(ranges, found, strict=True):
            if is_outside:
                return f"{table}.{column}"
    return None


def _ranges(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, str]]:
    for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
        if kind == "REAL":
            least = 0.0 if column.endswith(_NOT_NEGATIVE) else -REAL_MAX
            tiny = f" OR ({column} <> 0 AND abs({column}) < {REAL_MIN})" if column.endswith("_s") else ""
            yield column, f"{column} NOT BETWEEN {least} AND {REAL_MAX}{tiny}"
        elif kind == "INTEGER" and column not in _ANY_SIGN:
            yield column, f"{column} NOT BETWEEN 0 AND {INTEGER_MAX}"


_OWN_BYTES_MAX = 64
"""More than the digits of any process id."""


class WriterLock:
    """Held from the constructor to ``release``, or to the death of the process, however it dies."""

    def __init__(self, evidence: Path) -> None:
        """Take the lock of this evidence file, or raise EvidenceError with the holder's process id."""
        self._path = evidence.with_name(evidence.name + ".lock")
        self._descriptor = self._take()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> int:
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                raise EvidenceError(
                    f"cannot write beside the evidence: {error.strerror}: {self._path}"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise EvidenceError(
                    f"{self._path.with_suffix('')} is being written by another pgdyno (process {holder}): "
                    "wait for it, or name another file"
                ) from error
            if self._is_current(descriptor):
                self._refuse_a_foreign_file(descriptor)
                return descriptor
            # The former holder removed the file between our open and our lock: ours has no name any more.
            os.close(descriptor)

    def _refuse_a_foreign_file(self, descriptor: int) -> None:
        """Of a process that died its number is left. Anything else is somebody's file, such as Cargo.lock."""
        if re.fullmatch(rb"[0-9]*\n?", os.pread(descriptor, _OWN_BYTES_MAX, 0)):
            return
        os.close(descriptor)
        raise EvidenceError(
            f"{self._path} is not a lock of pgdyno, and would be replaced: name another file for the evidence"
        )

    def _is_current(self, descriptor: int) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    def release(self) -> None:
        """Remove the file, then the lock: in this order nobody can lock a file that is about to vanish."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


APPLICATION_ID = 0x7067646E
SCHEMA_VERSION = 4

RELEASES = {3: "0.1"}
"""Schema version → the release of pgdyno that reads it."""

CHECKED_BYTES_MAX = 64 << 20
"""SQLite's own structures are checked before a file is written to, and before one up to this size is read.
The checksums are compared in any case."""

BUSY_TIMEOUT_S = 10.0
"""How long a statement waits for another process's lock: only a change of journal mode ever takes one."""


def create(path: Path) -> None:
    """Make an empty evidence file at a path where nothing is yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with translated(path):
            connection.executescript(_schema())
            checksums.seal(connection)
    finally:
        connection.close()


def _schema() -> str:
    return files(__package__).joinpath("schema.sql").read_text("utf-8")


def open_for_reading(path: Path, *, verify: bool = True) -> sqlite3.Connection:
    """A checked connection that cannot write, also while a writer is at work.

    ``verify``: whether every table is compared with its checksum, for which the whole file is read.
    """
    return _open(path, "ro", verify=verify)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """A checked connection; the caller holds the WriterLock."""
    connection = _open(path, "rw", verify=True)
    with translated(path):
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit needs no fsync to survive the death of the process; a checkpoint, at the end of each trial,
        # does one, so that a power cut costs a trial at most. No fsync of ours falls into a measured slice.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _open(path: Path, mode: str, *, verify: bool) -> sqlite3.Connection:
    if not path.is_file():
        raise EvidenceError(f"no evidence file at {path}: check the name")
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
        )
    except sqlite3.Error as error:
        raise EvidenceError(f"cannot open {path}: {error}") from error
    try:
        with translated(path):
            _refuse_what_is_not_ours(connection, path)
            if verify:
                _refuse_damage(connection, path, mode)
    except EvidenceError:
        connection.close()
        raise
    return connection


def _refuse_what_is_not_ours(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise EvidenceError(f"{path} is not an evidence file of pgdyno: check the name")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise EvidenceError(
            f"{path} was written by a newer pgdyno "
            f"(evidence version {version}, this one reads {SCHEMA_VERSION}): upgrade pgdyno"
        )
    if version < SCHEMA_VERSION:
        reader = RELEASES.get(version)
        raise EvidenceError(
            f"{path} was written by an older pgdyno (evidence version {version}, this one reads "
            f"{SCHEMA_VERSION}): read it with {f'pgdyno {reader}' if reader else 'the pgdyno that wrote it'}"
        )
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    for table in re.findall(r"CREATE TABLE (\w+)", _schema()):
        if table not in there:
            # Found while a block is written, it would cost that block.
            raise EvidenceError(f"{path} is damaged (it lacks the table {table}): restore it from a copy")


def _refuse_damage(connection: sqlite3.Connection, path: Path, mode: str) -> None:
    """First what says which table it is."""
    table = checksums.damaged_table(connection)
    if table is not None:
        raise EvidenceError(f"{path} is damaged (the table {table}): restore it from a copy")
    if mode != "ro" or path.stat().st_size <= CHECKED_BYTES_MAX:
        (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise EvidenceError(f"{path} is damaged ({_one_line(finding)}): restore it from a copy")
    table = checksums.damaged_index(connection)
    if table is not None:
        raise EvidenceError(f"{path} is damaged (an index of the table {table}): restore it from a copy")
    column = column_out_of_range(connection)
    if column is not None:
        raise EvidenceError(f"{path} holds an impossible number ({column}): restore it from a copy")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except UnicodeDecodeError as error:  # in what SQLite complains of: Python cannot even read the message
        raise EvidenceError(f"{path} is damaged (a text is not UTF-8): restore it from a copy") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL:
            raise DiskFullError(
                f"the disk is full: {path} cannot grow; free some space, then --resume"
            ) from error
        if code is not None and code & 0xFF in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            raise EvidenceError(
                f"{path} is damaged ({_one_line(str(error))}): restore it from a copy"
            ) from error
        raise EvidenceError(f"{path}: {_one_line(str(error))}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
