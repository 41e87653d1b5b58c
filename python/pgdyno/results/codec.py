"""The one conversion between records and rows of a results file: masked, packed, and read back.

- Packing of large values in a results file: zlib streams of plain layouts, readable from any language.
- Tables of records: their columns, ``insert``, ``update`` and ``select``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import EnumType
from functools import cache
from operator import itemgetter
from sqlite3 import Connection
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from pgdyno.results.password_masking import mask_passwords, masked, masked_json

# ----------------------------------------------------------------------
# Packing of large values in a results file: zlib streams of plain layouts, readable from any language.
# ----------------------------------------------------------------------

LOG_BYTES_MAX = 1 << 20
"""Maximum size of a trial's server log, half from each end, so that a huge log does not fill the disk."""

UNPACKED_BYTES_MAX = 64 << 20
"""Limit for every unpacked value. pgdyno writes no larger one, so a file with a larger one is not valid."""


def pairs_from(values: Iterable[tuple[int, int]]) -> npt.NDArray[np.uint64]:
    """Return the engine's ``[[value_ns, n], …]`` as an array. Raises ValueError unless values ascend."""
    pairs = np.array(list(values), dtype=np.uint64).reshape(-1, 2)
    if np.any(pairs[1:, 0] <= pairs[:-1, 0]):
        raise ValueError("a histogram's values must ascend")
    return pairs


def pack_array(array: npt.NDArray[Any], kind: str) -> bytes:
    """Return the blob of ``histogram.pairs`` (``<u8``) or ``series.points`` (``<f8``), row by row."""
    # Level 3 packs ascending values as small as level 6, in half of the time.
    return zlib.compress(np.ascontiguousarray(array, dtype=kind).tobytes(), 3)


def unpack_array(blob: bytes, kind: str, columns: int) -> npt.NDArray[Any]:
    """Reverse ``pack_array``: a read-only array.

    Raises ValueError if the blob is damaged or does not have this number of columns.
    """
    data = _unpack(blob)
    if columns < 1 or len(data) % (8 * columns):
        raise ValueError("a packed array is damaged")
    native = np.dtype(kind).newbyteorder("=")
    return np.frombuffer(data, dtype=kind).astype(native, copy=False).reshape(-1, columns)


_NEXT_ENTRY = re.compile(r"\n(?!\t)")  # PostgreSQL begins the further lines of an entry with a tab


def pack_text(text: str) -> bytes:
    """Return the blob of a log: masked, without its middle if it is longer than LOG_BYTES_MAX."""
    half = LOG_BYTES_MAX // 2
    head_end = _NEXT_ENTRY.search(text, half)
    tail_start = _NEXT_ENTRY.search(text, max(half, len(text) - LOG_BYTES_MAX))
    parts = [text]
    if head_end and tail_start and head_end.end() < tail_start.end():
        # Masking is slow (60 MB: 10 s), and a cut between entries divides no password.
        parts = [text[: head_end.end()], text[tail_start.end() :]]
    encoded = [mask_passwords(part).encode("utf-8", "replace") for part in parts]
    data = encoded[0]
    if len(parts) > 1 or len(data) > LOG_BYTES_MAX:
        head, tail = encoded[0][:half], encoded[-1][-half:]
        omitted = len(text.encode("utf-8", "replace")) - len(head) - len(tail)
        data = head + f"\n[pgdyno: {omitted} bytes omitted here]\n".encode() + tail
    return zlib.compress(data, 6)


def unpack_text(blob: bytes) -> str:
    """Reverse ``pack_text``. Bytes that are not UTF-8 (a character cut in half) are replaced."""
    return _unpack(blob).decode("utf-8", "replace")


def pack_json(value: Any) -> bytes:
    """Return the blob of ``trial.tally`` and ``reading.found``."""
    return zlib.compress(json.dumps(value, allow_nan=False).encode(), 6)


def _unpack(blob: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(blob, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise ValueError("a packed value is damaged") from error
    if not stream.eof:
        raise ValueError("a packed value is damaged or too large")
    return data


# ----------------------------------------------------------------------
# Tables of records: ``insert``, ``update`` and ``select``.
#
# A record is a frozen dataclass with its table in ``TABLE``. The type of a field gives its column:
#
# - int, float, bool: the number.
# - str: TEXT, masked. An enumeration: TEXT, restricted to its members.
# - A sequence of records, or a mapping from names to records: rows of another table, not a column.
# - Everything else: JSON as TEXT, masked unless ``Column.as_is`` says otherwise, or packed as BLOB.
# - ``| None``: the column may be null, except that JSON is never null: its text is.
#
# A field without ``init`` is computed from the others and stored for other readers. It must agree when read.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Packing:
    """Conversion of a value to a BLOB and back. ``unpack`` also gets the row."""

    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes, Mapping[str, Any]], Any]


PAIRS = Packing(lambda pairs: pack_array(pairs, "<u8"), lambda blob, _: unpack_array(blob, "<u8", 2))
POINTS = Packing(
    lambda points: pack_array(points, "<f8"),
    lambda blob, row: unpack_array(blob, "<f8", len(json.loads(row["columns"]))),
)
LOG = Packing(pack_text, lambda blob, _: unpack_text(blob))
COUNTERS = Packing(pack_json, lambda blob, _: json.loads(_unpack(blob)))
READINGS = Packing(lambda rows: pack_json(masked(rows)), COUNTERS.unpack)


@dataclass(frozen=True)
class Column:
    """Properties of a column that the type of its field does not give.

    ``name``: if it is not that of the field. ``before``: the column that it precedes in the file, if that is
    not the next one. ``values``: those of an enumeration that are stored; empty for any value. ``sql``: its
    constraints. ``as_is``: keys of an object whose values are stored without masking.
    """

    name: str = ""
    before: str = ""
    values: Sequence[str] | None = None
    sql: str = ""
    packing: Packing | None = None
    as_is: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """The table of a record. Columns and constraints are in SQL.

    ``owner``: the first columns, which say to what a row belongs; a record need not have them. ``key``: the
    primary key, if it is not one of these columns. ``order``: the order of the rows, if it is not the key.
    """

    name: str
    owner: tuple[str, ...] = ()
    key: str = ""
    order: str = ""
    constraints: tuple[str, ...] = ()
    has_rowid: bool = True

    @property
    def owner_names(self) -> list[str]:
        """Names of the columns of the owner."""
        return [column.split()[0] for column in self.owner]


class Record(Protocol):
    """A dataclass with a table."""

    TABLE: ClassVar[Table]


R = TypeVar("R", bound=Record)
Row = dict[str, Any]
"""Column → value as SQLite stores it."""


def insert(connection: Connection, record: object, *owner: object, kind: type[Record] | None = None) -> None:
    """Insert a record and its mappings of names to records.

    ``owner``: the values of the columns that the record does not have. ``kind``: the class of which the
    fields are inserted, if not that of the record.
    """
    kind = kind or cast(type[Record], type(record))
    _insert(connection, kind, kind.TABLE, [(owner, record)])


def _insert(
    connection: Connection, kind: type, table: Table, records: Sequence[tuple[Sequence[object], object]]
) -> None:
    """Insert records with the values of the columns of their owners."""
    shape = shape_of(kind, table)
    columns = [*shape.owner, *(field.column for field in shape.fields)]
    rows = [
        [*map(masked, owner), *(field.encoded(getattr(record, field.name)) for field in shape.fields)]
        for owner, record in records
    ]
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})", rows)
    for child in shape.children:
        of = [
            ([*(row[columns.index(column)] for column in child.key), name], one)
            for row, (_, record) in zip(rows, records, strict=True)
            for name, one in getattr(record, child.name).items()
        ]
        _insert(connection, child.kind, child.table, of)


def update(
    connection: Connection, kind: type[Record], values: Mapping[str, object], where: str, *of: object
) -> int:
    """Store values of fields by name in the rows that meet the condition. Return the number of these rows.

    Values that are not columns of the record are ignored.
    """
    known = [field for field in shape_of(kind, kind.TABLE).fields if field.name in values]
    assignments = ", ".join(f"{field.column} = ?" for field in known)
    encoded = [field.encoded(values[field.name]) for field in known]
    statement = f"UPDATE {kind.TABLE.name} SET {assignments} WHERE {where}"
    return connection.execute(statement, [*encoded, *of]).rowcount


def select(
    connection: Connection, kind: type[R], where: str = "TRUE", *of: object, order: str = ""
) -> list[R]:
    """Return the records of the rows that meet the condition, with their rows of other tables.

    Raises ValueError, TypeError or KeyError for an invalid value or a missing column.
    """
    return [record for _, record in _select(connection, kind, kind.TABLE, where, of, order)]


def _select(
    connection: Connection,
    kind: type,
    table: Table,
    where: str,
    of: Sequence[object],
    order: str = "",
    wanted: Sequence[str] = (),
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the wanted columns of each row with its record. A study has hundreds of thousands of rows."""
    shape = shape_of(kind, table)
    children = [(child, _by_parent(connection, child, table, where, of)) for child in shape.children]
    order = order or table.order or table.key or "rowid"
    rows = connection.execute(f"SELECT * FROM {table.name} WHERE {where} ORDER BY {order}", of)
    place = {name: at for at, (name, *_) in enumerate(rows.description)}
    given = [(field.name, place[field.column], field.decode) for field in shape.fields if field.is_given]
    computed = [(field.name, place[field.column]) for field in shape.fields if not field.is_given]
    keys = [(child, by_parent, [place[column] for column in child.key]) for child, by_parent in children]
    ats = [place[column] for column in wanted]
    is_packed = any(field.is_packed for field in shape.fields)
    if shape.is_plain:
        own_at = {name: at for name, at, _ in given}
        own_values = itemgetter(*[own_at[field.name] for field in fields(kind)])
        for values in rows:
            yield tuple([values[at] for at in ats]), kind(*own_values(values))
        return
    for values in rows:
        row = dict(zip(place, values, strict=True)) if is_packed else {}
        found = {
            name: value if decode is None or value is None else decode(value, row)
            for name, at, decode in given
            for value in (values[at],)
        }
        for child, by_parent, key in keys:
            found[child.name] = by_parent.get(tuple([values[at] for at in key])) or (
                {} if child.is_named else []
            )
        record = kind(**found)
        for name, at in computed:
            if getattr(record, name) != values[at]:
                raise ValueError(f"{table.name}.{name} does not agree with its row")
        yield tuple([values[at] for at in ats]), record


def _by_parent(
    connection: Connection, child: _Child, parents: Table, where: str, of: Sequence[object]
) -> dict[tuple[Any, ...], Any]:
    """Return the records of a field of all rows of a table that meet the condition, by their common key."""
    found: dict[tuple[Any, ...], Any] = {}
    first, wanted = child.key[0], [*child.key, child.table.owner_names[-1]]
    belongs = f"{first} IN (SELECT {first} FROM {parents.name} WHERE {where})"
    for (*key_of, last), record in _select(connection, child.kind, child.table, belongs, of, wanted=wanted):
        key = tuple(key_of)
        if child.is_named:
            found.setdefault(key, {})[last] = record
        else:
            found.setdefault(key, []).append(record)
    return found


class _Field(NamedTuple):
    """A field that is a column. ``encode`` and ``decode`` get a value that is not null; None: as it is.

    ``decode`` gets the row, too, which is empty unless a field of the table ``is_packed``.
    """

    name: str
    column: str
    sql: str
    is_given: bool
    is_nullable: bool
    encode: Callable[[Any], Any]
    decode: Callable[[Any, Row], Any] | None
    is_packed: bool

    def encoded(self, value: object) -> Any:
        return None if value is None and self.is_nullable else self.encode(value)


class _Child(NamedTuple):
    """A field of which the records are rows of another table. ``key``: the columns of their parent there."""

    name: str
    kind: type
    table: Table
    is_named: bool
    key: list[str]


class Shape(NamedTuple):
    """How a record is stored. ``owner``: the columns that it does not have itself."""

    owner: list[str]
    fields: list[_Field]
    children: list[_Child]

    @property
    def is_plain(self) -> bool:
        """True if every field is a column, and its value needs no conversion."""
        own = self.fields
        return len(own) > 1 and not self.children and all(of.is_given and of.decode is None for of in own)


@cache
def shape_of(kind: type, table: Table) -> Shape:
    """Return the columns of a record's table, and its fields with rows of other tables."""
    hints = get_type_hints(kind, include_extras=True)
    found: list[_Field] = []
    children = []
    for field in fields(kind):
        hint, *more = _parts(hints[field.name])
        child = _child(field.name, hint, more)
        if child is not None:
            children.append(child)
            continue
        column = next((one for one in more if isinstance(one, Column)), Column())
        before = [one.column for one in found].index(column.before) if column.before else len(found)
        found.insert(before, _field(column, field, hint))
    mine = {field.column for field in found}
    return Shape([name for name in table.owner_names if name not in mine], found, children)


def _parts(hint: Any) -> tuple[Any, ...]:
    """Return a type, followed by its annotations."""
    return get_args(hint) if get_origin(hint) is Annotated else (hint,)


def _child(name: str, hint: Any, more: Sequence[object]) -> _Child | None:
    kind: Any = get_args(hint)[-1] if get_args(hint) else None
    table = next((one for one in more if isinstance(one, Table)), getattr(kind, "TABLE", None))
    if table is None:
        return None
    is_named, names = get_origin(hint) is Mapping, table.owner_names
    return _Child(name, kind, table, is_named, names[:-1] if is_named else names)


def _field(column: Column, field: Field[Any], hint: Any) -> _Field:
    is_optional = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    base = get_args(hint)[0] if is_optional else hint
    is_scalar = isinstance(base, type) and issubclass(base, str | int | float)
    is_nullable = is_optional and (is_scalar or column.packing is not None)
    name = column.name or field.name
    values: Sequence[object] = column.values or ()
    encode: Callable[[Any], Any] = masked
    decode: Callable[[Any, Row], Any] | None = None
    if column.packing is not None:
        of, encode, decode = "BLOB", column.packing.pack, column.packing.unpack
    elif not is_scalar:
        of, (encode, decode) = "TEXT", _json_conversions(base, column.as_is)
    elif isinstance(base, EnumType):
        of, encode, decode = "TEXT", str, lambda value, _: base(value)
        values = [str(value) for value in (base if column.values is None else values)]
    elif base is bool:
        of, decode, values = "INTEGER", lambda value, _: bool(value), (0, 1)
    else:
        of = {str: "TEXT", int: "INTEGER", float: "REAL"}[base]
    null = "" if is_nullable else "NOT NULL"
    check = f"CHECK ({name} IN ({', '.join(map(repr, values))}))" if values else ""
    sql = " ".join(filter(None, (name, of, null, column.sql, check)))
    return _Field(field.name, name, sql, field.init, is_nullable, encode, decode, column.packing is not None)


def _json_conversions(
    base: Any, as_is: Sequence[str]
) -> tuple[Callable[[Any], str], Callable[[str, Row], Any]]:
    if _is_json(base):
        return masked_json, lambda text, _: json.loads(text)
    adapter = TypeAdapter(base)
    strict = is_dataclass(base) or None
    return (
        lambda value: masked_json(adapter.dump_python(value, mode="json"), as_is),
        lambda text, _: adapter.validate_json(text, strict=strict),
    )


def _is_json(hint: Any) -> bool:
    """Return whether the values of a type are those of JSON, so that they need no conversion."""
    parts = get_args(hint)
    return hint in (Any, str, int, float, NoneType) or (bool(parts) and all(map(_is_json, parts)))
