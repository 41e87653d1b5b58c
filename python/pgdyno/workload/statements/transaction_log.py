"""Transactions in a log of the server: which statements they execute, in which order."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.workload.statements.statement_parser import fingerprint, is_begin_or_commit

Transaction = tuple[str, ...]
"""Fingerprints of the statements of a transaction, in order, without BEGIN and COMMIT."""

STATEMENTS_MAX = 30
"""Maximum number of statements of a transaction; longer ones are loads and are not counted."""

TRANSACTIONS_MAX = 100_000
"""Maximum number of different transactions; later ones are not counted."""

FIELD_CHARS_MAX = 16 << 20
"""Maximum length of a field of csvlog."""

_CSV = {"dbname": 2, "session_id": 5, "vxid": 9, "message": 13}
_MESSAGE = re.compile(r"(?:duration: [\d.]+ ms  )?(?:statement|execute [^:]*): (.*)", re.DOTALL)


@dataclass
class TransactionLog:
    """Numbers of executions: of transactions with at least two statements, and of all statements."""

    transactions: Counter[Transaction] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)


def read_transactions(path: Path, database: str, check: Callable[[], None] = lambda: None) -> TransactionLog:
    """Return the transactions of a csvlog or jsonlog.

    Raises UsageError if the file is neither, or has no statement of the database; Interrupted.
    """
    found = TransactionLog()
    open_ones: dict[str, tuple[str, list[str]]] = {}  # by session: virtual transaction and statements
    for entry in _entries(path):
        check()
        message = _MESSAGE.fullmatch(entry.get("message") or "")
        if message is None or entry.get("dbname") != database:
            continue
        session, virtual = entry.get("session_id") or "", entry.get("vxid") or ""
        known = open_ones.get(session)
        if known is None or known[0] != virtual or _is_alone(virtual):
            _count(found.transactions, known)
            known = open_ones[session] = (virtual, [])
        if (one := _fingerprint(message[1])) is not None:
            known[1].append(one)
            found.statements[one] += 1
    for known in open_ones.values():
        _count(found.transactions, known)
    if not found.statements:
        raise UsageError(
            f"--log: {path} has no statement of the database {database}: set log_min_duration_statement = 0, "
            "or log_statement = all"
        )
    return found


def _is_alone(virtual: str) -> bool:
    """True if the statement was logged after its own commit: the virtual transaction has no number."""
    return virtual.rpartition("/")[2] in ("", "0")


def _count(found: Counter[Transaction], known: tuple[str, list[str]] | None) -> None:
    if known is None or not 2 <= len(known[1]) <= STATEMENTS_MAX:
        return
    transaction = tuple(known[1])
    if transaction in found or len(found) < TRANSACTIONS_MAX:
        found[transaction] += 1


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
