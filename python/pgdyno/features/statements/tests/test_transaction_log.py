"""Transactions in logs of the server."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pgdyno.errors import UsageError
from pgdyno.features.statement_parameters.draws import EqualPlaces, LoggedRange
from pgdyno.features.statement_parameters.parse import fingerprint, parse_statement
from pgdyno.features.statements.scripts import STATEMENTS_MAX, Transaction, TransactionLog, read_transactions

READ, WRITE = "SELECT a FROM t WHERE b = 1", "UPDATE t SET a = 2 WHERE b = 3"
PAIR = (fingerprint("SELECT a FROM t WHERE b = $1"), fingerprint("UPDATE t SET a = $1 WHERE b = $2"))

Entry = tuple[str, ...]
"""Session, virtual transaction, message, and the detail if there is one."""

Writer = Callable[[Path, Sequence[Entry]], Path]

ENTRIES: Sequence[Entry] = (
    ("a", "3/1", "statement: BEGIN"),
    ("b", "4/1", "statement: START TRANSACTION"),
    ("a", "3/1", f"statement: {READ}"),
    ("b", "4/1", f"duration: 0.1 ms  execute s1: {READ}"),
    ("a", "3/1", "duration: 0.1 ms"),
    ("b", "4/1", f"duration: 0.1 ms  execute fetch from s1/C_2: {READ}"),
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


def with_detail(entry: Entry) -> tuple[str, str, str, str]:
    session, virtual, message, *detail = entry
    return session, virtual, message, "".join(detail)


def json_log(path: Path, entries: Sequence[Entry], database: str = "shop") -> Path:
    lines = [
        json.dumps(
            {"dbname": database, "session_id": session, "vxid": virtual, "message": message, "detail": detail}
        )
        for session, virtual, message, detail in map(with_detail, entries)
    ]
    path.write_text("\n".join([*lines, json.dumps({"message": "checkpoint starting: time"})]))
    return path


def csv_log(path: Path, entries: Sequence[Entry], database: str = "shop") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for session, virtual, message, detail in map(with_detail, entries):
            before = ("now", "ann", database, "1", "", session, "1", "SELECT", "then", virtual)
            writer.writerow([*before, "0", "LOG", "00000", message, detail, *[""] * 8])
    return path


def read(folder: Path, entries: Sequence[Entry]) -> TransactionLog:
    return read_transactions(json_log(folder / "log", entries), "shop")


@pytest.mark.parametrize("written", [json_log, csv_log])
def test_statements_of_a_virtual_transaction_are_counted_together(written: Writer, tmp_path: Path) -> None:
    path = written(tmp_path / "log", ENTRIES)
    for incomplete_last_entry in ("", "\n{" if written is json_log else 'now,"ann'):
        path.write_text(path.read_text() + incomplete_last_entry)
        log = read_transactions(path, "shop")
        assert log.transactions == {Transaction("BEGIN", PAIR): 2}
        assert log.statements == {PAIR[0]: 4 + STATEMENTS_MAX + 1, PAIR[1]: 4}
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_transactions(path, "shop").statements == log.statements


def test_sessions_with_the_same_backend_number_have_their_own_transactions(tmp_path: Path) -> None:
    entries = [
        ("a", "3/1", f"statement: {READ}"),
        ("c", "4/1", f"statement: {READ}"),
        ("a", "3/1", f"statement: {WRITE}"),
        ("b", "3/1", f"statement: {READ}"),
        ("c", "4/1", f"statement: {WRITE}"),
        ("b", "3/1", f"statement: {WRITE}"),
        ("d", "3/0", "statement: ROLLBACK"),
    ]
    assert read(tmp_path, entries).transactions == {Transaction("BEGIN", PAIR): 3}


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("start transaction", "BEGIN"),
        ("BEGIN ISOLATION LEVEL READ COMMITTED", "BEGIN ISOLATION LEVEL READ COMMITTED"),
        ("begin read write, not deferrable", "BEGIN NOT DEFERRABLE READ WRITE"),
        (
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
            "BEGIN DEFERRABLE ISOLATION LEVEL SERIALIZABLE READ ONLY",
        ),
    ],
)
def test_a_transaction_keeps_the_modes_of_its_begin(text: str, begin: str, tmp_path: Path) -> None:
    entries = [("a", "3/1", f"statement: {one}") for one in (text, READ, WRITE, "COMMIT")]
    plain = [("a", "3/2", f"statement: {one}") for one in (READ, WRITE)]
    assert read(tmp_path, entries).transactions == {Transaction(begin, PAIR): 1}
    assert Transaction("BEGIN", PAIR) in read(tmp_path, [*entries, *plain]).transactions


def test_savepoints_and_rejected_statements_stay_in_a_transaction(tmp_path: Path) -> None:
    texts = ("BEGIN", READ, "SAVEPOINT s", "SELECT 'x' FRO t")
    entries = [("a", "1/1", f"statement: {text}") for text in texts]
    (transaction,) = read(tmp_path, entries).transactions
    assert transaction.statements == (PAIR[0], fingerprint("SAVEPOINT s"), "")


def test_a_transaction_that_was_rolled_back_is_not_counted(tmp_path: Path) -> None:
    # log_min_duration_statement logs the ROLLBACK after the end of its transaction.
    entries = [("a", "1/7", f"duration: 0.1 ms  statement: {text}") for text in ("BEGIN", READ, WRITE)]
    log = read(tmp_path, [*entries, ("a", "1/0", "duration: 0.1 ms  statement: ROLLBACK")])
    assert not log.transactions
    assert log.statements[PAIR[1]] == 1
    assert read(tmp_path, [*entries, ("a", "1/0", "duration: 0.1 ms  statement: COMMIT")]).transactions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no statement of the database shop: set log_min_duration_statement"),
        (
            '{"dbname": "shop", "vxid": "3/1", "message": "Dauer: 0.1 ms  Anweisung: SELECT 1"}',
            "or log_statement = all, with lc_messages = 'C'",
        ),
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
    with pytest.raises(UsageError, match="no statement of the database shop"):
        read_transactions(json_log(tmp_path / "other", ENTRIES, "other"), "shop")


LOCK = parse_statement("SELECT a FROM t WHERE b = $1 AND c > $2 FOR UPDATE")
CHANGE = parse_statement("UPDATE t SET a = $1 WHERE b = $2")


def simple(number: int, locked: object, bound: object, value: object, changed: object) -> list[Entry]:
    """Return a transaction with constants in its texts."""
    texts = (
        "BEGIN",
        f"select a  from t where b = {locked} and c > {bound} for update",
        f"UPDATE t SET a = {value} WHERE b = {changed};",
        "COMMIT",
    )
    return [("a", f"3/{number}", f"statement: {text}") for text in texts]


def extended(number: int, locked: object, bound: object, value: object, changed: object) -> list[Entry]:
    """Return a transaction with parameters, whose values are in the details of its entries."""
    return [
        ("a", f"3/{number}", "execute <unnamed>: BEGIN"),
        ("a", f"3/{number}", f"execute s1: {LOCK.text}", f"parameters: $1 = {locked}, $2 = {bound}"),
        ("a", f"3/{number}", f"execute s2: {CHANGE.text}", f"Parameters: $1 = {value}, $2 = {changed}"),
    ]


def equal_places(log: TransactionLog) -> list[EqualPlaces]:
    return log.equal_places([LOCK, CHANGE])


SAME_ROW = EqualPlaces(((0, 1), (1, 2)), is_varied=True)


@pytest.mark.parametrize("written", [json_log, csv_log])
@pytest.mark.parametrize("form", [simple, extended])
def test_places_with_equal_values_in_every_transaction_are_found(
    written: Writer, form: Callable[..., list[Entry]], tmp_path: Path
) -> None:
    rows = ["'x''1'", "'x2'", "'x3'"]
    entries = [one for n, row in enumerate(rows, 1) for one in form(n, row, "'7'", "'7'", row)]
    equal = equal_places(read_transactions(written(tmp_path / "log", entries), "shop"))
    assert sorted(equal, key=lambda one: one.places) == [
        SAME_ROW,
        EqualPlaces(((0, 2), (1, 1)), is_varied=False),  # a constant of the application
    ]


def test_one_transaction_with_different_values_ends_an_equality_but_two_nulls_do_not(tmp_path: Path) -> None:
    entries = [one for n in (1, 2, 3, 4) for one in simple(n, n, 10 + n, 10 + n, n)]
    assert len(equal_places(read(tmp_path, entries))) == 2
    entries += [*simple(5, 5, 15, 16, 5), *extended(6, "NULL", "'0'", "'9'", "NULL")]
    assert equal_places(read(tmp_path, entries)) == [SAME_ROW]


def test_a_value_that_the_log_does_not_have_is_equal_to_none(tmp_path: Path) -> None:
    cut = "'long...'"
    for values in ((cut, "'1'", "'2'", cut), ("NULL", "'1'", "'2'", "'3'")):
        entries = [one for n in (1, 2) for one in extended(n, *values)]
        assert equal_places(read(tmp_path, entries)) == []
    entries = [("a", "3/1", f"execute s1: {LOCK.text}"), ("a", "3/1", f"execute s1: {CHANGE.text}")]
    assert equal_places(read(tmp_path, entries)) == []


def test_numbers_in_the_log_have_a_range_at_each_place(tmp_path: Path) -> None:
    entries = [*simple(1, 5, -2, "'x'", 5), *extended(2, "'17'", "'8.5'", "NULL", "'2'")]
    ranges = read(tmp_path, entries).ranges
    assert [one.rounded() for one in ranges[LOCK.shape]] == [(5, 17), (-2, 8.5)]
    assert [one.rounded() for one in ranges[CHANGE.shape]] == [None, (2, 5)]
    assert LoggedRange().rounded() is None


def test_typed_and_nested_constants_are_found_at_their_places(tmp_path: Path) -> None:
    text = (
        "SELECT date_trunc('day', d), e::varchar(20) FROM t WHERE d > now() - 3 * interval '2 hours' "
        "AND f IN (4, 5) AND g = -6 AND h = true ORDER BY 1 LIMIT 7"
    )
    ranges = read(tmp_path, [("a", "3/1", f"statement: {text}")]).ranges
    expected = [None, (3, 3), (2, 2), (4, 4), (5, 5), (-6, -6), None, (7, 7)]
    assert [one.rounded() for one in ranges[parse_statement(text).shape]] == expected
