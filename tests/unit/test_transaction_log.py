"""Transactions in logs of the server."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pgdyno.errors import UsageError
from pgdyno.workload.statements.statement_parser import fingerprint
from pgdyno.workload.statements.transaction_log import STATEMENTS_MAX, read_transactions

READ, WRITE = "SELECT a FROM t WHERE b = 1", "UPDATE t SET a = 2 WHERE b = 3"
PAIR = (fingerprint("SELECT a FROM t WHERE b = $1"), fingerprint("UPDATE t SET a = $1 WHERE b = $2"))

Entry = tuple[str, str, str]
"""Session, virtual transaction and message."""

ENTRIES: Sequence[Entry] = (
    ("a", "3/1", "statement: BEGIN"),
    ("b", "4/1", "statement: START TRANSACTION"),
    ("a", "3/1", f"statement: {READ}"),
    ("b", "4/1", f"duration: 0.1 ms  execute s1: {READ}"),
    ("a", "3/1", "duration: 0.1 ms"),
    ("b", "4/1", f"duration: 0.1 ms  bind s1: {WRITE}"),
    ("b", "4/1", f"duration: 0.1 ms  execute <unnamed>: {WRITE}"),
    ("a", "3/1", f"statement: {WRITE}"),
    ("a", "3/1", "statement: COMMIT"),
    ("a", "3/0", f"duration: 0.1 ms  statement: {READ}"),
    ("a", "3/0", f"duration: 0.1 ms  statement: {WRITE}"),
    ("a", "3/2", f"statement: {READ}"),
    ("a", "3/3", f"statement: {WRITE}"),
    *(("c", "5/1", f"statement: {READ}") for _ in range(STATEMENTS_MAX + 1)),
)


def json_log(path: Path, entries: Sequence[Entry], database: str = "shop") -> Path:
    lines = [
        json.dumps({"dbname": database, "session_id": session, "vxid": virtual, "message": message})
        for session, virtual, message in entries
    ]
    path.write_text("\n".join([*lines, json.dumps({"message": "checkpoint starting: time"})]))
    return path


def csv_log(path: Path, entries: Sequence[Entry], database: str = "shop") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for session, virtual, message in entries:
            row = [
                "now",
                "ann",
                database,
                "1",
                "",
                session,
                "1",
                "SELECT",
                "then",
                virtual,
                "0",
                "LOG",
                "00000",
            ]
            writer.writerow([*row, message, *[""] * 9])
    return path


@pytest.mark.parametrize("written", [json_log, csv_log])
def test_statements_of_a_virtual_transaction_are_counted_together(
    written: Callable[[Path, Sequence[Entry]], Path], tmp_path: Path
) -> None:
    log = read_transactions(written(tmp_path / "log", ENTRIES), "shop")
    assert log.transactions == {PAIR: 2}
    assert log.statements == {PAIR[0]: 4 + STATEMENTS_MAX + 1, PAIR[1]: 4}


def test_savepoints_and_rejected_statements_stay_in_a_transaction(tmp_path: Path) -> None:
    texts = ("BEGIN", READ, "SAVEPOINT s", "SELECT 'x' FRO t")
    entries = [("a", "1/1", f"statement: {text}") for text in texts]
    (transaction,) = read_transactions(json_log(tmp_path / "log", entries), "shop").transactions
    assert transaction == (PAIR[0], fingerprint("SAVEPOINT s"), "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no statement of the database shop: set log_min_duration_statement"),
        ("{}\n{\n", ":2 is not an entry of jsonlog"),
        ("LOG:  statement: SELECT 1\n", ":1 is not an entry of csvlog"),
        (None, "cannot read .*: No such file"),
    ],
)
def test_a_file_without_transactions_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "log").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_transactions(tmp_path / "log", "shop")


@pytest.mark.parametrize("written", [json_log, csv_log])
def test_an_incomplete_last_entry_is_ignored(
    written: Callable[[Path, Sequence[Entry]], Path], tmp_path: Path
) -> None:
    path = written(tmp_path / "log", ENTRIES)
    path.write_text(path.read_text() + ("\n{" if written is json_log else 'now,"ann'))
    assert read_transactions(path, "shop").transactions == {PAIR: 2}


def test_statements_of_other_databases_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no statement of the database shop"):
        read_transactions(json_log(tmp_path / "log", ENTRIES, "other"), "shop")
