"""The results file: creation, opening with checks, the lock of the writer, and error messages.

SQLite's locks last for a transaction and cannot represent a running study. Opening the database a second
time only for a lock would drop SQLite's locks on close (POSIX). Hence a separate file, ``NAME.lock``.
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
"""Limit of reals, which are mostly seconds: 30,000 years. Squares and products stay far below infinity."""

INTEGER_MAX = 2**53
"""Limit of integers: larger ones are not exact as floating-point numbers. As nanoseconds, 104 days."""

REAL_MIN = 1e-30
"""Minimum of times greater than 0: ratios to smaller ones would have no finite logarithm."""

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
    """Return the first ``table.column`` with a number out of range, or None."""
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


def _refuse_out_of_range(connection: sqlite3.Connection) -> None:
    """Let writes on this connection fail that the reader would reject, by temporary triggers."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    for (table,) in tables.fetchall():
        refusals = " ".join(
            f"WHEN {outside} THEN RAISE(ABORT, '{table}.{column} is out of range')"
            for column, outside in _ranges(connection, table, "NEW.")
        )
        for event in ("INSERT", "UPDATE") if refusals else ():
            connection.execute(
                f"CREATE TEMP TRIGGER range_{table}_{event.lower()} AFTER {event} ON main.{table} "
                f"BEGIN SELECT CASE {refusals} END; END"
            )


def _ranges(connection: sqlite3.Connection, table: str, row: str = "") -> Iterator[tuple[str, str]]:
    """Yield each column with numbers, and the condition that its value in ``row`` is out of range."""
    for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
        value = f"{row}{column}"
        if kind == "REAL":
            least = 0.0 if column.endswith(_NOT_NEGATIVE) else -REAL_MAX
            tiny = f" OR ({value} <> 0 AND abs({value}) < {REAL_MIN})" if column.endswith("_s") else ""
            yield column, f"{value} NOT BETWEEN {least} AND {REAL_MAX}{tiny}"
        elif kind == "INTEGER" and column not in _ANY_SIGN:
            yield column, f"{value} NOT BETWEEN 0 AND {INTEGER_MAX}"


_OWN_BYTES_MAX = 64
"""Limit of a lock file's content: more than the digits of any process id."""


class WriterLock:
    """Lock of the writer, held until ``release`` or until the process ends in any way."""

    def __init__(self, evidence: Path) -> None:
        """Take the lock of a results file. Raises EvidenceError with the process id of the holder."""
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
                    f"cannot write the lock file of the results file: {error.strerror}: {self._path}"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise EvidenceError(
                    f"{self._path.with_suffix('')} is being written by another pgdyno (process {holder}): "
                    "wait for it, or choose another file name"
                ) from error
            if self._is_current(descriptor):
                self._check_is_lock_file(descriptor)
                return descriptor
            # The former holder removed the file between open and flock, so this lock has no name.
            os.close(descriptor)

    def _check_is_lock_file(self, descriptor: int) -> None:
        """Refuse a file that is not a lock file: a dead process leaves only its number."""
        if re.fullmatch(rb"[0-9]*\n?", os.pread(descriptor, _OWN_BYTES_MAX, 0)):
            return
        os.close(descriptor)
        raise EvidenceError(
            f"{self._path} is not a lock file of pgdyno: choose another name for the results file"
        )

    def _is_current(self, descriptor: int) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    def release(self) -> None:
        """Remove the file, then unlock: in this order nobody can lock a file that is about to be removed."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


APPLICATION_ID = 0x7067646E
SCHEMA_VERSION = 4

RELEASES = {3: "0.1"}
"""Schema version → the release of pgdyno that reads it."""

CHECKED_BYTES_MAX = 64 << 20
"""Size up to which a file's SQLite structures are checked before reading; before writing, always.
The checksums are compared in any case."""

BUSY_TIMEOUT_S = 10.0
"""Maximum wait for the lock of another process. Only a change of the journal mode takes one."""


def create(path: Path) -> None:
    """Create an empty results file at a path that does not exist yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with translated(path):
            # One transaction: each of its own would wait for the disk four times.
            connection.executescript(f"BEGIN;\n{_schema()}")
            checksums.store_all(connection)
            connection.execute("COMMIT")
    finally:
        connection.close()


def _schema() -> str:
    return files(__package__).joinpath("schema.sql").read_text("utf-8")


def open_for_reading(path: Path, *, verify: bool = True) -> sqlite3.Connection:
    """Return a checked read-only connection, also while the file is being written.

    ``verify``: compare every table with its checksum, which reads the whole file.
    """
    return _open(path, "ro", verify=verify)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Return a checked connection, which refuses values out of range. The caller holds the WriterLock."""
    connection = _open(path, "rw", verify=True)
    with translated(path):
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit needs no fsync to survive the end of the process. The checkpoint at the end of each trial
        # does one, so a power failure loses at most one trial. No measured slice contains an fsync of pgdyno.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA foreign_keys = ON")
        _refuse_out_of_range(connection)
    return connection


def _open(path: Path, mode: str, *, verify: bool) -> sqlite3.Connection:
    if not path.is_file():
        raise EvidenceError(f"no results file at {path}: check the name")
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
        )
    except sqlite3.Error as error:
        raise EvidenceError(f"cannot open {path}: {error}") from error
    try:
        with translated(path):
            _check_identity(connection, path)
            if verify:
                _check_integrity(connection, path, mode)
    except EvidenceError:
        connection.close()
        raise
    return connection


def _check_identity(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise EvidenceError(f"{path} is not a results file of pgdyno: check the name")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise EvidenceError(
            f"{path} was written by a newer pgdyno "
            f"(schema version {version}, this one reads {SCHEMA_VERSION}): upgrade pgdyno"
        )
    if version < SCHEMA_VERSION:
        reader = RELEASES.get(version)
        raise EvidenceError(
            f"{path} was written by an older pgdyno (schema version {version}, this one reads "
            f"{SCHEMA_VERSION}): read it with {f'pgdyno {reader}' if reader else 'the pgdyno that wrote it'}"
        )
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    for table in re.findall(r"CREATE TABLE (\w+)", _schema()):
        if table not in there:
            # Check it here: an error while a block is written would lose that block.
            raise EvidenceError(f"{path} is damaged (the table {table} is missing): restore it from a copy")


def _check_integrity(connection: sqlite3.Connection, path: Path, mode: str) -> None:
    """Raise EvidenceError if the file is damaged. The checks that name a table come first."""
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
        raise EvidenceError(f"{path} has a value out of range ({column}): restore it from a copy")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert SQLite's errors, also of numbers beyond its integers, to EvidenceError and DiskFullError."""
    try:
        yield
    except UnicodeDecodeError as error:  # in SQLite's message: Python cannot decode it
        raise EvidenceError(f"{path} is damaged (a text is not UTF-8): restore it from a copy") from error
    except OverflowError as error:
        raise EvidenceError(f"{path}: a number is out of range") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL:
            raise DiskFullError(
                f"the disk is full: cannot write {path}; free disk space, then continue with --resume"
            ) from error
        if code is not None and code & 0xFF in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            raise EvidenceError(
                f"{path} is damaged ({_one_line(str(error))}): restore it from a copy"
            ) from error
        raise EvidenceError(f"{path}: {_one_line(str(error))}") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
