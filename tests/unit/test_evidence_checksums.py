"""Damage of a results file is detected in any state of the file."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from example_records import INTERVAL, READ, SERIES, SLICE, begun
from synthetic_study import Synthetic, arms_of, study_of, write_block, write_study

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import DiskFullError, EvidenceError
from pgdyno.results import results_file
from pgdyno.results.codec import pairs_from
from pgdyno.results.reader import Evidence
from pgdyno.results.records import (
    BlockStatus,
    Check,
    Failure,
    Guarantee,
    Histogram,
    Kept,
    Measure,
    StudyEnd,
    TrialOutcome,
    TrialStatus,
)
from pgdyno.results.results_file import SCHEMA_VERSION
from pgdyno.results.writer import Writer

SMALL = Synthetic(blocks=2, slices=2)
EVERY_PART = TrialOutcome(
    TrialStatus.OK,
    9.0,
    server_cpu_s=-0.0,
    settings={"work_mem": "4MB µ"},
    tally={"a": 1},
    failures=[Failure("payment", "40001", 2**40, "é")],
    histograms=[Histogram("payment", Measure.LAG, pairs_from([(0, 5)]))],
    checks=[Check("balances", True, None, 0.5, "")],
    readings=[READ],
    server_log="LOG: ok",
)


def written_in_every_way(path: Path) -> None:
    """A file for which every method of the writer was called."""
    writer, trial = begun(path)
    with writer:
        writer.add_interval(trial, INTERVAL)
        writer.add_slice(trial, SLICE)
        writer.add_series(trial, SERIES[0])
        writer.describe_arm(1, safety=[Guarantee("durable", Kept.YES, "")])
        writer.add_machine_state({"cores": 2})
        writer.note_more_time()
        writer.add_caveat(Caveat(Code.SHARED_MACHINE, {"cores": 2}, trial))
        writer.finish_trial(trial, EVERY_PART)
        writer.finish_block(0, BlockStatus.DONE, 9.0)
        writer.finish_study(StudyEnd.BLOCKS, 10.0)


def test_the_checksums_kept_row_by_row_are_those_of_the_rows(tmp_path: Path) -> None:
    written_in_every_way(tmp_path / "e")
    with closing(sqlite3.connect(tmp_path / "e")) as connection:
        kept = dict(connection.execute("SELECT name, rows || ' ' || digest FROM checksum"))
        results_file.store_all(connection)
        computed = dict(connection.execute("SELECT name, rows || ' ' || digest FROM checksum"))
        empty = {name for name, text in kept.items() if text.startswith("0 ")}
    assert kept == computed
    assert empty == {"crash", "crash_arm", "crash_test"}  # a study has no crashes
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'checksum'"
    with closing(sqlite3.connect(tmp_path / "e")) as connection:
        assert set(kept) == {"sqlite_schema", *(name for (name,) in connection.execute(tables))}


def test_a_digest_is_as_documented() -> None:
    """The bytes as documented in docs/reference/results-file.md and schema.sql, made by hand."""
    values = b"integer 1 1" + b"null 0 " + b"real 8 " + struct.pack("<d", 0.5)
    values += b"text 2 \xc3\xa4" + b"blob 1 \0"
    digest = hashlib.blake2b(values, digest_size=8).digest()
    assert results_file.row_digest((1, None, 0.5, "ä", b"\0")) == int.from_bytes(digest, "little")
    rows = [(1, "a"), (2, "b")]
    assert results_file.sum_of(rows) == results_file.sum_of(reversed(rows))
    assert results_file.sum_of(rows) != results_file.sum_of([(1, "b"), (2, "a")])


def test_rows_are_compared_only_if_the_bytes_do_not_match_their_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e"
    write_study(path, SMALL)
    compared: list[sqlite3.Connection] = []
    monkeypatch.setattr(results_file, "damaged_table", compared.append)
    Evidence(path).close()
    with Writer.resume(path):
        assert not compared
        Evidence(path).close()  # the resumed study is in the WAL
        assert len(compared) == 1
    Evidence(path).close()
    assert len(compared) == 1
    written = path.read_bytes()
    for damaged in (written[:-1], written[:-1] + bytes([written[-1] ^ 1]), written[:-32], written + b"\0"):
        compared.clear()
        path.write_bytes(damaged)
        Evidence(path).close()
        assert compared


def test_every_changed_byte_changes_the_digest_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_bytes(bytes(4096))
    results_file.store_bytes_digest(path)
    written = path.read_bytes()
    assert written[-32:] == hashlib.blake2b(bytes(4096), digest_size=32).digest()
    assert results_file.has_bytes_digest(path)
    for place in range(len(written)):
        path.write_bytes(written[:place] + b"\1" + written[place + 1 :])
        assert results_file.has_bytes_digest(path) == (written[place] == 1)
    path.write_bytes(written)
    path.with_name("e-wal").touch()
    assert not results_file.has_bytes_digest(path)


CHANGES = {
    "study": "UPDATE study SET title = title || '.'",
    "study_case": "UPDATE study_case SET plan = json_set(plan, '$.margin', 0.03)",
    "arm": "UPDATE arm SET clients = clients + 1",
    "block": "UPDATE block SET ended_unix_s = ended_unix_s + 1 WHERE block = 1",
    "trial": "UPDATE trial SET transactions = transactions + 1 WHERE trial = 3",
    "slice": "DELETE FROM slice WHERE trial = 1",
    "slice_count": "UPDATE slice_count SET ok = ok + 1 WHERE trial = 1",
    "interval": "UPDATE interval SET to_s = to_s + 1e-9 WHERE trial = 1",
    "interval_count": "DELETE FROM interval_count WHERE trial = 2",
    "failure": "INSERT INTO failure VALUES (1, 'payment', '40001', 1, '')",
    "histogram": "UPDATE histogram SET kind = 'payment2' WHERE trial = 1 AND kind = 'payment'",
    "check_result": "UPDATE check_result SET passed = 1 - passed WHERE trial = 1",
    "reading": "INSERT INTO reading VALUES (1, 'wal', 'begin', 0, 0, '', NULL, NULL)",
    "series": "INSERT INTO series VALUES (1, 'wal', 0, '[]', x'00')",
    "caveat": "INSERT INTO caveat VALUES (9, 0, NULL, 'shared-machine', '{}')",
    "log": "UPDATE log SET text = x'00' WHERE trial = 1",
    "crash_test": "INSERT INTO crash_test VALUES (1, 0, NULL, '', '{}', '', '{}', '{}')",
    "crash_arm": "INSERT INTO crash_arm VALUES (0, '', '{}', '{}', '[]', 0.2)",
    "crash": f"INSERT INTO crash SELECT 0, 0, 0, 0, 0, '', 0, {', '.join(['NULL'] * 9)}, '[]', '[]', '{{}}'",
    "checksum": "INSERT INTO checksum VALUES ('another', 0, '0')",
    "sqlite_schema": "CREATE TABLE another (a)",
}


def test_every_table_has_a_change_that_is_tried() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((Path(results_file.__file__).parent / "schema.sql").read_text())
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        }
    assert set(CHANGES) == {*tables, "sqlite_schema"}


@pytest.mark.parametrize("table", CHANGES)
def test_a_table_that_was_changed_is_named(tmp_path: Path, table: str) -> None:
    path = tmp_path / "e"
    write_study(path, SMALL)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(CHANGES[table]).rowcount != 0
    for use in (Evidence, Writer.resume):
        with pytest.raises(EvidenceError, match=rf"damaged \(the table {table}\): restore it from a copy"):
            use(path)
    assert not path.with_name("e.lock").exists()


def test_a_digest_that_is_not_a_number_is_damage(tmp_path: Path) -> None:
    write_study(tmp_path / "e", SMALL)
    with closing(sqlite3.connect(tmp_path / "e")) as connection, connection:
        connection.execute("UPDATE checksum SET digest = 'none' WHERE name = 'slice'")
    with pytest.raises(EvidenceError, match=r"damaged \(the table slice\)"):
        Evidence(tmp_path / "e")


def test_an_index_that_lost_an_entry_is_damage(tmp_path: Path) -> None:
    """No row changes, but searches by the index would miss one."""
    path = tmp_path / "e"
    write_study(path, SMALL)
    with closing(sqlite3.connect(path)) as connection:
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_trial_1'"
        (page,) = connection.execute(query).fetchone()
    data = bytearray(path.read_bytes())
    last = page * page_bytes - 1  # entries lie at the end of the page, the first one last: its trial's number
    data[last] ^= 2
    path.write_bytes(bytes(data))
    with pytest.raises(EvidenceError, match=r"damaged \(an index of the table trial\)"):
        Evidence(path)


@pytest.mark.parametrize("end", ["running", "killed", "resumed"])
def test_a_study_in_any_state_matches_its_checksums(tmp_path: Path, end: str) -> None:
    path = tmp_path / "e"
    writer = Writer.create(path, study_of(SMALL), arms_of(SMALL))
    write_block(writer, SMALL, 0, np.random.default_rng(1))
    trial = writer.begin_trial(0, 0, 50.0)
    writer.add_slice(trial, SLICE)
    if end != "running":  # as after a kill: the file, and the journal next to it
        (tmp_path / "copy").mkdir()
        for name in ("e", "e-wal"):
            shutil.copy(tmp_path / name, tmp_path / "copy" / name)
        path = tmp_path / "copy" / "e"
    if end == "resumed":
        with Writer.resume(path) as again:
            again.finish_study(StudyEnd.BUDGET, 99.0)
    with Evidence(path) as evidence:
        statuses = [one.status for one in evidence.trials(all_attempts=True)]
    unfinished = TrialStatus.INTERRUPTED if end == "resumed" else TrialStatus.RUNNING
    assert sorted(statuses) == sorted([TrialStatus.OK] * 2 + [unfinished])
    writer.close()


def fail_within(writer: Writer, trial: int) -> None:
    with pytest.raises(ValueError, match="not running"):
        writer.finish_trial(trial + 1, TrialOutcome(TrialStatus.OK, 9.0))


def fill_the_disk(writer: Writer, trial: int) -> None:
    writer._connection.execute("PRAGMA max_page_count = 1")  # grows no further, as on a full disk
    large = TrialOutcome(TrialStatus.OK, 9.0, settings={str(i): os.urandom(40).hex() for i in range(9000)})
    with pytest.raises(DiskFullError):
        writer.finish_trial(trial, large)
    writer._connection.execute("PRAGMA max_page_count = 100000")


def write_a_slice_twice(writer: Writer, trial: int) -> None:
    writer.add_slice(trial, SLICE)
    with pytest.raises(EvidenceError, match="UNIQUE"):
        writer.add_slice(trial, SLICE)


@pytest.mark.parametrize("fail", [fail_within, fill_the_disk, write_a_slice_twice])
def test_rolled_back_rows_are_in_no_checksum(tmp_path: Path, fail: Callable[[Writer, int], None]) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        fail(writer, trial)
        Evidence(tmp_path / "e").close()
        writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0))
    with Evidence(tmp_path / "e") as evidence:
        assert [one.status for one in evidence.trials()] == [TrialStatus.OK]


def test_evidence_without_checksums_is_of_an_older_version(tmp_path: Path) -> None:
    write_study(tmp_path / "e", SMALL)
    with closing(sqlite3.connect(tmp_path / "e")) as connection:
        connection.execute("DROP TABLE checksum")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 1}")
    with pytest.raises(EvidenceError, match="older pgdyno"):
        Evidence(tmp_path / "e")
