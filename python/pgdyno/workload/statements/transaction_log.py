"""Transactions in a log of the server: which statements they execute, in which order, and which of their
values are equal. Values are compared in memory.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.workload.statements.logged_values import EqualValues, LoggedRange, logged_statement
from pgdyno.workload.statements.statement_parser import fingerprint, is_begin_or_commit

Transaction = tuple[str, ...]
"""Fingerprints of the statements of a transaction, in order, without BEGIN and COMMIT."""

STATEMENTS_MAX = 30
"""Maximum number of statements of a transaction; longer ones are loads and are not counted."""

TRANSACTIONS_MAX = 100_000
"""Maximum number of different transactions; later ones are not counted."""

COMPARED_MAX = 1000
"""Maximum number of executions of a transaction, or of a statement, whose values are compared: parsing takes
0.1 ms each."""

DISTINCT_MIN = 3
"""Number of different values that places of different columns need to count as equal: fewer are often equal
by chance, or are constants of the application."""

FIELD_CHARS_MAX = 16 << 20
"""Maximum length of a field of csvlog."""

_CSV = {"dbname": 2, "session_id": 5, "vxid": 9, "message": 13, "detail": 14}
_MESSAGE = re.compile(r"(?:duration: [\d.]+ ms  )?(?:statement|execute [^:]*): (.*)", re.DOTALL)


@dataclass(frozen=True)
class EqualPlaces:
    """Places of parameters with equal values: the statement of the transaction, and the place in its text.

    ``is_varied``: they had enough different values to be equal not by chance.
    """

    places: tuple[tuple[int, int], ...]
    is_varied: bool


@dataclass
class TransactionLog:
    """Numbers of executions: of transactions with at least two statements, and of all statements.

    ``equal``: by the shapes of the statements of a transaction. ``ranges``: by the shape of a statement, for
    each place of a parameter.
    """

    transactions: Counter[Transaction] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    equal: dict[tuple[str, ...], EqualValues] = field(default_factory=lambda: defaultdict(EqualValues))
    ranges: dict[str, list[LoggedRange]] = field(default_factory=dict)

    def equal_places(self, shapes: Sequence[str], counts: Sequence[int]) -> list[EqualPlaces]:
        """Return the places of a transaction that were equal in all of its executions.

        ``counts``: number of places of each statement.
        """
        found = self.equal.get(tuple(shapes))
        if found is None or len(found.groups) != sum(counts):
            return []
        groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
        every = [(part, place) for part, count in enumerate(counts) for place in range(count)]
        for at, group in zip(every, found.groups, strict=True):
            groups[group].append(at)
        return [
            EqualPlaces(tuple(places), len(found.distinct[group]) >= DISTINCT_MIN)
            for group, places in groups.items()
            if len(places) > 1
        ]


def read_transactions(path: Path, database: str, check: Callable[[], None] = lambda: None) -> TransactionLog:
    """Return the transactions of a csvlog or jsonlog.

    Raises UsageError if the file is neither, or has no statement of the database; Interrupted.
    """
    found = TransactionLog()
    open_ones: dict[str, _Open] = {}  # by session
    for entry in _entries(path):
        check()
        message = _MESSAGE.fullmatch(entry.get("message") or "")
        if message is None or entry.get("dbname") != database:
            continue
        session, virtual = entry.get("session_id") or "", entry.get("vxid") or ""
        known = open_ones.get(session)
        if known is None or known.virtual != virtual or _is_alone(virtual):
            _count(found, known)
            known = open_ones[session] = _Open(virtual)
        if (one := _fingerprint(message[1])) is not None:
            found.statements[one] += 1
            if found.statements[one] <= COMPARED_MAX:
                _add_ranges(found, message[1], entry.get("detail") or "")
            if len(known.statements) <= STATEMENTS_MAX:
                known.statements.append((one, message[1], entry.get("detail") or ""))
    for known in open_ones.values():
        _count(found, known)
    if not found.statements:
        raise UsageError(
            f"--log: {path} has no statement of the database {database}: set log_min_duration_statement = 0, "
            "or log_statement = all"
        )
    return found


def _is_alone(virtual: str) -> bool:
    """True if the statement was logged after its own commit: the virtual transaction has no number."""
    return virtual.rpartition("/")[2] in ("", "0")


@dataclass
class _Open:
    """A transaction that is being read: fingerprint, text and detail of each statement."""

    virtual: str
    statements: list[tuple[str, str, str]] = field(default_factory=list)


def _count(found: TransactionLog, known: _Open | None) -> None:
    if known is None or not 2 <= len(known.statements) <= STATEMENTS_MAX:
        return
    transaction = tuple(one for one, _, _ in known.statements)
    if transaction not in found.transactions and len(found.transactions) >= TRANSACTIONS_MAX:
        return
    found.transactions[transaction] += 1
    if found.transactions[transaction] <= COMPARED_MAX:
        executed = [logged_statement(text, detail) for _, text, detail in known.statements]
        complete = [one for one in executed if one is not None]
        if len(complete) == len(executed):
            shapes = tuple(one.shape for one in complete)
            found.equal[shapes].add([value for one in complete for value in one.values])


def _add_ranges(found: TransactionLog, text: str, detail: str) -> None:
    if (executed := logged_statement(text, detail)) is not None:
        ranges = found.ranges.setdefault(executed.shape, [LoggedRange() for _ in executed.values])
        for one, value in zip(ranges, executed.values, strict=True):
            one.add(value)


@lru_cache(maxsize=10_000)
def _fingerprint(text: str) -> str | None:
    """Return the fingerprint of a statement; None for BEGIN and COMMIT; empty if it is not parsed."""
    return None if is_begin_or_commit(text) else fingerprint(text)


def _entries(path: Path) -> Iterator[Mapping[str, str | None]]:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            start = file.read(1)
            file.seek(0)
            yield from _of_json(file, path) if start == "{" else _of_csv(file, path)
    except OSError as error:
        raise UsageError(f"--log: cannot read {path}: {error.strerror}") from None


def _of_json(lines: Iterable[str], path: Path) -> Iterator[Mapping[str, str | None]]:
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            if not line.endswith("\n"):
                return  # the server is writing it
            raise UsageError(f"--log: {path}:{number} is not an entry of jsonlog") from None
        if isinstance(entry, dict):
            yield entry


def _of_csv(lines: Iterable[str], path: Path) -> Iterator[Mapping[str, str | None]]:
    csv.field_size_limit(FIELD_CHARS_MAX)
    reader = csv.reader(lines)
    try:
        for row in reader:
            if len(row) <= max(_CSV.values()):
                if reader.line_num > 1 and next(reader, None) is None:
                    return  # the server is writing it
                raise UsageError(
                    f"--log: {path}:{reader.line_num} is not an entry of csvlog: set log_destination to "
                    "csvlog or jsonlog"
                )
            yield {name: row[place] for name, place in _CSV.items()}
    except csv.Error as error:
        raise UsageError(f"--log: {path}:{reader.line_num}: {error}") from None
