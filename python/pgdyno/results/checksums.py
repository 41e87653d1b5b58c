"""Checksums of the tables of a results file: updated on writes, compared when it is opened.

The checksum of a table is the sum of the digests of its rows, modulo 2**64. It does not depend on the order
of the rows. Adding or changing a row costs one digest, for any length of the table.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

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
    digest = blake2b(b"".join(map(_bytes_of, row)), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "little")


def _bytes_of(value: object) -> bytes:
    match value:
        case None:
            return b"null 0 "
        case int():
            data = b"%d" % value
            return b"integer %d %s" % (len(data), data)
        case float():
            return b"real 8 " + _REAL.pack(value)
        case str():
            data = value.encode()
            return b"text %d %s" % (len(data), data)
        case bytes():
            return b"blob %d %s" % (len(value), value)
    raise TypeError(f"SQLite has no values of the type {type(value).__name__}")


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


class ChecksumUpdater:
    """The checksums of a file that is being written.

    Temporary triggers count every row that is inserted, updated or deleted on this connection.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Start from the checksums in the file."""
        self._connection = connection
        self._sums = _known(connection)
        self._before: dict[str, Sum] = {}  # of the tables changed so far in the transaction
        connection.create_function(_FUNCTION, -1, self._count)
        for table in _tables(connection):
            _add_triggers(connection, table)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Enclose a transaction: keep its changes of the checksums, or undo them if it fails."""
        self._before.clear()
        try:
            yield
        except BaseException:
            self._sums.update(self._before)
            raise

    def store(self) -> None:
        """Store the checksums of the changed tables: the last statement before the commit."""
        self._connection.executemany(
            f"UPDATE {OWN} SET rows = ?, digest = ? WHERE name = ?",
            [(*_stored(self._sums[name]), name) for name in self._before],
        )

    def _count(self, table: str, sign: int, *row: Any) -> None:
        known = self._sums[table]
        self._before.setdefault(table, known)
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
