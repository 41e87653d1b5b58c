"""Masking of columns in the output of pg_dump, as it is read: what is written is masked already.

A hash is keyed by a random secret that exists in this process only. Equal values of a database have equal
hashes, so that joins and foreign keys still work, and no one can test a guess.
"""

from __future__ import annotations

import hashlib
import random
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pgdyno.errors import DatasetError
from pgdyno.server.dump_scan import NAME, unquoted
from pgdyno.server.mask_columns import HASH_CHARACTERS_MIN, INTEGERS, Mask, Table

HELD_ROWS_MAX = 100_000
HELD_BYTES_MAX = 256 << 20
"""Rows and bytes of a table in memory, among which shuffle exchanges values."""

NULL = rb"\N"
END = b"\\."
_COPY = re.compile(rf"COPY ({NAME})\.({NAME}) \((.*)\) FROM stdin;\s*$".encode())
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE_OF = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _ESCAPES.items()}}
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_INTEGER_BITS = (16, 32, 64)
_ROUNDS = 6


@dataclass
class DumpMasking:
    """Masks the rows of tables. ``seen``: tables whose rows were masked."""

    masks: Mapping[Table, Mapping[str, Mask]]
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    seen: set[Table] = field(default_factory=set)
    shuffling: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(128)))

    def masked(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines with masked values.

        Raises DatasetError, without any value, if the rows of a masked table cannot be told apart from other
        text.
        """
        rows: _Rows | None = None
        in_other_rows = False
        for line in lines:
            is_end = line.rstrip(b"\n") == END
            if rows is not None:
                if not is_end:
                    yield from rows.add(line)
                    continue
                yield from rows.rest()
                rows = None
            elif in_other_rows:
                if self._table(line) in self.masks:
                    raise DatasetError("cannot find the end of the rows of a table: masking is not possible")
                in_other_rows = not is_end
            elif found := _COPY.match(line):
                table = self._table(line)
                assert table is not None
                if table in self.masks:
                    self.seen.add(table)
                    rows = self._rows(table, found[3].decode())
                in_other_rows = rows is None
            yield line
        if rows is not None or in_other_rows:
            raise DatasetError("the dump ended within the rows of a table: read it again")

    def _table(self, line: bytes) -> Table | None:
        found = _COPY.match(line) if line.startswith(b"COPY ") else None
        return (unquoted(found[1].decode()), unquoted(found[2].decode())) if found else None

    def _rows(self, table: Table, names: str) -> _Rows:
        columns = [unquoted(name) for name in re.findall(NAME, names)]
        missing = self.masks[table].keys() - set(columns)
        if missing:
            raise DatasetError(f"{'.'.join(table)} has changed while it was read: read it again")
        chosen = {columns.index(name): mask for name, mask in self.masks[table].items()}
        shuffled = [place for place, mask in chosen.items() if mask.action == "shuffle"]
        changed = {
            place: self.function_of(mask) for place, mask in chosen.items() if mask.action != "shuffle"
        }
        return _Rows(".".join(table), len(columns), changed, shuffled, self.shuffling)

    def function_of(self, mask: Mask) -> Callable[[bytes], bytes]:
        """Return the function from a value to the masked one, both as COPY writes them."""
        if mask.action == "null":
            return lambda _: NULL
        if mask.action == "replace":
            find, to = re.compile(mask.rule.find), mask.rule.to
            return lambda value: _escaped(find.sub(to, _text(value)))
        if mask.type in INTEGERS:
            return lambda value: b"%d" % self._integer(int(value))
        if mask.type == "uuid":
            return self._uuid
        return lambda value: self._hash(_text(value), mask.type)

    def _hash(self, text: str, kind: str) -> bytes:
        """Return letters and digits, as long as the text, but at least HASH_CHARACTERS_MIN."""
        same = text.casefold() if kind == "citext" else text.rstrip(" ") if kind == "bpchar" else text
        key = self.secret + same.encode(errors="surrogateescape")
        digest = hashlib.shake_256(key).digest(max(HASH_CHARACTERS_MIN, len(same)))
        return "".join(_ALPHABET[byte & 31] for byte in digest).encode()

    def _uuid(self, value: bytes) -> bytes:
        digest = hashlib.shake_256(self.secret + value).hexdigest(16)
        return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:])).encode()

    def _integer(self, value: int) -> int:
        """Return another integer: a permutation of each width, so that unique values stay unique, and equal
        ones in columns of different widths stay equal."""
        if value < 0:
            return -1 - self._integer(-1 - value)
        bits = next(bits for bits in _INTEGER_BITS if value < 1 << (bits - 1))
        lowest = 0 if bits == _INTEGER_BITS[0] else 1 << (bits // 2 - 1)
        while True:  # until it is of the same width again: it was, so the walk returns
            value = self._permuted(value, bits)
            if lowest <= value < 1 << (bits - 1):
                return value

    def _permuted(self, value: int, bits: int) -> int:
        """Return the image under a Feistel network."""
        half = bits // 2
        left, right = value >> half, value & ((1 << half) - 1)
        for turn in range(_ROUNDS):
            key = b"%s%d,%d,%d" % (self.secret, bits, turn, right)
            mixed = int.from_bytes(hashlib.shake_256(key).digest(4), "big") & ((1 << half) - 1)
            left, right = right, left ^ mixed
        return (left << half) | right


@dataclass
class _Rows:
    """Rows of a table between COPY and its end. ``shuffled``: places of the columns whose values move."""

    table: str
    n_columns: int
    changed: Mapping[int, Callable[[bytes], bytes]]
    shuffled: list[int]
    shuffling: random.Random
    held: list[list[bytes]] = field(default_factory=list)
    held_bytes: int = 0

    def add(self, line: bytes) -> Iterator[bytes]:
        """Yield the rows that are finished after another one."""
        values = line.removesuffix(b"\n").split(b"\t")
        if len(values) != self.n_columns:
            raise DatasetError(f"a row of {self.table} has {len(values)} columns instead of {self.n_columns}")
        for place, function in self.changed.items():
            if values[place] != NULL:
                values[place] = function(values[place])
        if not self.shuffled:
            yield _line(values)
            return
        self.held.append(values)
        self.held_bytes += len(line)
        if len(self.held) >= HELD_ROWS_MAX or self.held_bytes > HELD_BYTES_MAX:
            # Half of them stay, so that the last rows have others to exchange values with.
            self._shuffle()
            half = len(self.held) // 2
            yield from map(_line, self.held[:half])
            self.held = self.held[half:]
            self.held_bytes = sum(map(len, map(_line, self.held)))

    def rest(self) -> Iterator[bytes]:
        """Yield the rows that were held."""
        self._shuffle()
        yield from map(_line, self.held)

    def _shuffle(self) -> None:
        for place in self.shuffled:
            values = [row[place] for row in self.held]
            self.shuffling.shuffle(values)
            for row, value in zip(self.held, values, strict=True):
                row[place] = value


def _line(values: list[bytes]) -> bytes:
    return b"\t".join(values) + b"\n"


def _text(value: bytes) -> str:
    """Return the text of a value as COPY writes it."""
    text = value.decode(errors="surrogateescape")
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)


def _escaped(text: str) -> bytes:
    return re.sub(r"[\\\b\f\n\r\t\v]", lambda found: _ESCAPE_OF[found[0]], text).encode(
        errors="surrogateescape"
    )
