"""The results file: creation, opening with checks, the lock of the writer, checksums.

- Checksums of the tables of a results file: updated on writes, compared when it is opened.
- The results file: creation, opening with checks, the lock of the writer, and error messages.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, NamedTuple

from pgdyno.errors import DiskFullError, EvidenceError, in_one_line

# ----------------------------------------------------------------------
# Checksums of the tables of a results file: updated on writes, compared when it is opened.
#
# The checksum of a table is the sum of the digests of its rows, modulo 2**64. It does not depend on the order
# of the rows. Adding or changing a row costs one digest, for any length of the table.
#
# A file that is closed also has a digest of its bytes behind the last page, where SQLite ignores it. If the
# bytes match, the rows need not be compared: that takes 50 s for 200 trials of an hour, and this 0.4 s.
# ----------------------------------------------------------------------

SCHEMA = "sqlite_schema"
"""SQLite's table with the definitions of all tables. It has a checksum, too."""

OWN = "checksum"
"""Table of the checksums. Damage to this table appears as a checksum that does not match."""

_DIGEST_BYTES = 8
_REAL = struct.Struct("<d")
_MODULUS = 1 << (8 * _DIGEST_BYTES)
_FUNCTION = "pgdyno_count_row"


class Sum(NamedTuple):
    """The checksum of a table."""

    rows: int
    digest: int

    @property
    def text(self) -> str:
        """Return the value of the column ``digest``."""
        return f"{self.digest:0{2 * _DIGEST_BYTES}x}"


def row_digest(row: tuple[object, ...]) -> int:
    """Return the digest of one row: BLAKE2b of 8 bytes over its values in the order of the columns.

    The digest covers for each value: its type as SQLite's typeof names it, its length in bytes, and its
    bytes, with a space between. Integers are decimal text, reals 8 bytes (IEEE 754, little-endian), texts
    UTF-8.
    """
    values = b"".join([_BYTES_OF[type(value)](value) for value in row])
    return int.from_bytes(blake2b(values, digest_size=_DIGEST_BYTES).digest(), "little")


_BYTES_OF: dict[type, Callable[[Any], bytes]] = {
    NoneType: lambda _: b"null 0 ",
    int: lambda value: b"integer %d %s" % (len(data := b"%d" % value), data),
    float: lambda value: b"real 8 " + _REAL.pack(value),
    str: lambda value: b"text %d %s" % (len(data := value.encode()), data),
    bytes: lambda value: b"blob %d %s" % (len(value), value),
}
"""Type of a value of SQLite → the bytes of the value in a digest."""


def sum_of(rows: Iterable[tuple[Any, ...]]) -> Sum:
    """Return the checksum of these rows. Their order does not matter."""
    n = digest = 0
    for row in rows:
        n += 1
        digest += row_digest(row)
    return Sum(n, digest % _MODULUS)


def store_all(connection: sqlite3.Connection) -> None:
    """Compute and store the checksums of all tables in a new file."""
    tables = (SCHEMA, *_tables(connection))
    found = [(table, *_stored(_computed(connection, table))) for table in tables]
    connection.execute(f"DELETE FROM {OWN}")
    connection.executemany(f"INSERT INTO {OWN} VALUES (?, ?, ?)", found)


def damaged_table(connection: sqlite3.Connection) -> str | None:
    """Return the first table whose rows do not match its checksum, or None. Reads the whole file.

    Reads in one transaction, so that another process may write at the same time.
    """
    connection.execute("BEGIN")
    try:
        table = OWN
        stored = _known(connection)
        for table in (SCHEMA, *_tables(connection)):
            if stored.pop(table, None) != _computed(connection, table):
                return table
        return OWN if stored else None
    except UnicodeDecodeError:
        return table
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            return table
        raise
    finally:
        connection.execute("COMMIT")


def damaged_index(connection: sqlite3.Connection) -> str | None:
    """Return the first table that does not agree with its indexes, or None.

    ``quick_check`` does not compare them, and a query that uses a damaged index misses rows.
    """
    indexed = connection.execute("SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'index'")
    for (table,) in indexed.fetchall():
        if connection.execute(f"PRAGMA integrity_check({_quoted(table)})").fetchone() != ("ok",):
            return str(table)
    return None


_BYTES_DIGEST_LENGTH = 32
_PAGE_BYTES_MIN = 512
"""The size of a page is a multiple of this, and larger than the digest."""


def store_bytes_digest(path: Path) -> None:
    """Store the digest of the bytes in a closed file without a WAL, if the disk has space for it."""
    with suppress(OSError), path.open("r+b") as file:
        pages_bytes, digest = _bytes_digest(file)
        file.truncate(pages_bytes)
        file.seek(pages_bytes)
        file.write(digest)


def has_bytes_digest(path: Path) -> bool:
    """Return whether the bytes match their digest, and the file has no WAL or journal."""
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return False
    try:
        with path.open("rb") as file:
            _, digest = _bytes_digest(file)
            return file.read() == digest
    except OSError:
        return False


def _bytes_digest(file: BinaryIO) -> tuple[int, bytes]:
    """Return the length of the pages and their digest. Leaves the position at their end."""
    pages_bytes = os.fstat(file.fileno()).st_size // _PAGE_BYTES_MIN * _PAGE_BYTES_MIN
    digest = blake2b(digest_size=_BYTES_DIGEST_LENGTH)
    while missing := pages_bytes - file.tell():
        digest.update(file.read(min(missing, 1 << 20)) or bytes(missing))
    return pages_bytes, digest.digest()


class ChecksumUpdater:
    """The checksums of a file that is being written.

    Temporary triggers count every row that is inserted, updated or deleted on this connection.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Start from the checksums in the file."""
        self._connection = connection
        self._sums = _known(connection)
        self._changed: dict[str, None] = {}  # names of tables, in the order of their first change
        connection.create_function(_FUNCTION, -1, self._count)
        for table in _tables(connection):
            _add_triggers(connection, table)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Enclose a transaction: keep its changes of the checksums, or read them again if it fails."""
        self._changed.clear()
        if not self._sums:
            self._sums = _known(self._connection)
        try:
            yield
        except BaseException:
            self._sums = {}  # to read again: a signal may arrive just after the commit
            raise

    def store(self) -> None:
        """Store the checksums of the changed tables: the last statement before the commit."""
        self._connection.executemany(
            f"UPDATE {OWN} SET rows = ?, digest = ? WHERE name = ?",
            [(*_stored(self._sums[name]), name) for name in self._changed],
        )

    def _count(self, table: str, sign: int, *row: Any) -> None:
        known = self._sums[table]
        self._changed[table] = None
        digest = (known.digest + sign * row_digest(row)) % _MODULUS
        self._sums[table] = Sum(known.rows + sign, digest)


def _add_triggers(connection: sqlite3.Connection, table: str) -> None:
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
    counted = {
        side: f"SELECT {_FUNCTION}('{table}', {sign}, {', '.join(f'{side}.{_quoted(c)}' for c in columns)});"
        for side, sign in (("OLD", -1), ("NEW", 1))
    }
    for event, sides in (("INSERT", ["NEW"]), ("UPDATE", ["OLD", "NEW"]), ("DELETE", ["OLD"])):
        connection.execute(
            f"CREATE TEMP TRIGGER count_{table}_{event.lower()} AFTER {event} ON main.{_quoted(table)} "
            f"BEGIN {' '.join(counted[side] for side in sides)} END"
        )


def _known(connection: sqlite3.Connection) -> dict[str, Sum]:
    return {name: Sum(rows, _number(digest)) for name, rows, digest in _rows_of(connection, OWN)}


def _computed(connection: sqlite3.Connection, table: str) -> Sum:
    # The page on which a table begins in the file is not part of its content.
    definitions = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
    return sum_of(connection.execute(definitions) if table == SCHEMA else _rows_of(connection, table))


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the error means damaged content, as opposed to a lock or an I/O error.

    Python's own errors for texts that are not UTF-8 have no code.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF == sqlite3.SQLITE_CORRUPT


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
    return [name for (name,) in found if name != OWN and not name.startswith("sqlite_")]


def _rows_of(connection: sqlite3.Connection, table: str) -> sqlite3.Cursor:
    # NOT INDEXED: an index may be damaged although its table is not.
    return connection.execute(f"SELECT * FROM {_quoted(table)} NOT INDEXED")


def _stored(one: Sum) -> tuple[int, str]:
    return one.rows, one.text


def _number(digest: str) -> int:
    """Return the digest as a number, or −1 (no rows have it) if the stored checksum is damaged."""
    try:
        return int(digest, 16)
    except (TypeError, ValueError):
        return -1


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ----------------------------------------------------------------------
# The results file: creation, opening with checks, the lock of the writer, and error messages.
#
# SQLite's locks last for a transaction and cannot represent a running study. Opening the database a second
# time only for a lock would drop SQLite's locks on close (POSIX). Hence a separate file, ``NAME.lock``.
# ----------------------------------------------------------------------

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
            store_all(connection)
            connection.execute("COMMIT")
    finally:
        connection.close()


def _schema() -> str:
    return files(__package__).joinpath("generated_schema.sql").read_text("utf-8")


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


def state_of(path: Path) -> tuple[tuple[int, int], ...]:
    """Return times of change and sizes of the file and of its WAL, of those that exist."""
    found = []
    for one in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            stat = one.stat()
            found.append((stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def require_file(path: Path) -> None:
    """Raise EvidenceError if there is no file."""
    if not path.is_file():
        files = filter(Path.is_file, path.parent.glob("*.sqlite"))
        there = sorted(files, key=lambda one: (one.stat().st_mtime_ns, one.name))
        names = f"; the newest there is {there[-1].name}" if there else ""
        raise EvidenceError(f"no results file at {path}: check the name{names}")


def _open(path: Path, mode: str, *, verify: bool) -> sqlite3.Connection:
    require_file(path)
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
    if missing := sorted(_table_names() - there):
        # Check it here: an error while a block is written would lose that block.
        raise EvidenceError(f"{path} is damaged (the table {missing[0]} is missing): restore it from a copy")


@cache
def _table_names() -> frozenset[str]:
    return frozenset(re.findall(r"CREATE TABLE (\w+)", _schema()))


def _check_integrity(connection: sqlite3.Connection, path: Path, mode: str) -> None:
    """Raise EvidenceError if the file is damaged. The checks that name a table come first."""
    if has_bytes_digest(path):
        return
    table = damaged_table(connection)
    if table is not None:
        raise EvidenceError(f"{path} is damaged (the table {table}): restore it from a copy")
    if mode != "ro" or path.stat().st_size <= CHECKED_BYTES_MAX:
        (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise EvidenceError(f"{path} is damaged ({_one_line(finding)}): restore it from a copy")
    table = damaged_index(connection)
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
        if code == sqlite3.SQLITE_NOTADB:
            raise EvidenceError(
                f"{path} is not a results file of pgdyno, or its start is damaged: check the name"
            ) from error
        if code is not None and code & 0xFF == sqlite3.SQLITE_CORRUPT:
            raise EvidenceError(
                f"{path} is damaged ({_one_line(str(error))}): restore it from a copy"
            ) from error
        raise EvidenceError(f"{path}: {_one_line(str(error))}") from error


@contextmanager
def validated(path: Path) -> Iterator[None]:
    """Convert the errors of ``translated`` and those of an invalid value to EvidenceError."""
    try:
        with translated(path):
            yield
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise EvidenceError(
            f"{path} has an invalid value ({in_one_line(error)}): restore it from a copy"
        ) from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
