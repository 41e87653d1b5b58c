"""WAL by type of record: output of pg_waldump, readable segments, parts per transaction, the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_forms import report_of
from synthetic_study import Synthetic

from pgdyno.features.wal_records import reading
from pgdyno.features.wal_records.reading import first_readable, lsn, types_of
from pgdyno.features.wal_records.section import parts_of_trial, sections, wal_of
from pgdyno.measure.telemetry_collection import ProbeError
from pgdyno.server import build_store
from pgdyno.server.builds import Build, read_build
from pgdyno.study.defaults import Schedule

OUTPUT = """\
WAL statistics between 0/5000028 and 0/5012345:
Type                N   (%)      Record size   (%)       FPI size   (%)     Combined size   (%)
----                -   ---      -----------   ---       --------   ---     -------------   ---
XLOG/FPI_FOR_HINT   4 (  0.01)   204 (  0.01)   3444 (  0.30)   3648 (  0.13)
Heap/INSERT+INIT   12 ( 10.00)   708 (  3.10)      0 (  0.00)    708 (  3.10)
             --------          --------            --------            --------
Total              16             912 [20.94%]    3444 [79.06%]         4356 [100%]
"""


def test_each_type_of_record_is_read_from_pg_waldump() -> None:
    assert types_of(OUTPUT) == [
        {"type": "XLOG/FPI_FOR_HINT", "n": 4, "record_bytes": 204, "image_bytes": 3444},
        {"type": "Heap/INSERT+INIT", "n": 12, "record_bytes": 708, "image_bytes": 0},
    ]
    assert types_of("pg_waldump: error") == []


def fake_build(folder: Path, version: str, *more: str) -> Build:
    """Return a build whose programs report a version."""
    folder.mkdir()
    for name in ("postgres", "initdb", *more):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return read_build(folder, "system", "")


def test_pg_waldump_of_another_build_of_the_major_version_reads_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other, devel = (
        fake_build(tmp_path / "own", "7.20"),
        fake_build(tmp_path / "other", "7.23", "pg_waldump"),
        fake_build(tmp_path / "devel", "7devel", "pg_waldump"),
    )
    monkeypatch.setattr(build_store, "system_builds", lambda: [devel, other])
    assert reading.waldump_of(other.bin_dir) == other.program("pg_waldump")
    assert reading.waldump_of(own.bin_dir) == other.program("pg_waldump")
    newer = fake_build(tmp_path / "newer", "8.1")
    assert reading.waldump_of(newer.bin_dir) is None


def test_positions_are_those_of_postgres() -> None:
    assert lsn((3 << 32) + 0x2A000028) == "3/2A000028"


SEGMENT = 16 << 20


@pytest.mark.parametrize(
    ("begin", "end", "there", "first"),
    [
        (5 * SEGMENT + 40, 6 * SEGMENT + 9, (4, 5, 6, 7), 5 * SEGMENT + 40),
        (2 * SEGMENT + 40, 6 * SEGMENT + 9, (2, 4, 5, 6), 4 * SEGMENT),  # the third was removed
        (5 * SEGMENT + 40, 6 * SEGMENT, (5,), 5 * SEGMENT + 40),  # ends with its segment
        (255 * SEGMENT + 8, 256 * SEGMENT + 9, (255, 256), 255 * SEGMENT + 8),  # the next file number
        (6 * SEGMENT, 6 * SEGMENT, (6,), 6 * SEGMENT),
    ],
)
def test_reading_begins_where_all_segments_exist(
    begin: int, end: int, there: tuple[int, ...], first: int
) -> None:
    files = [f"00000001{number // 256:08X}{number % 256:08X}" for number in there]
    assert first_readable([*files, "archive_status"], begin, end, SEGMENT) == first


def test_removed_wal_is_a_reason() -> None:
    with pytest.raises(ProbeError, match="wal_keep_size"):
        first_readable([], SEGMENT, 2 * SEGMENT, SEGMENT)


def rows(insert: int, images: int, written: int = 2000, read: int = 1000) -> list[dict[str, object]]:
    return [
        {"wal_bytes": written, "read_bytes": read},
        {"type": "Heap/INSERT", "n": 5, "record_bytes": insert, "image_bytes": images},
        {"type": "Heap/LOCK", "n": 5, "record_bytes": 100, "image_bytes": images},
    ]


def test_parts_are_per_transaction_and_stand_for_all_wal() -> None:
    found = parts_of_trial(rows(300, 50), transactions=10)  # type: ignore[arg-type]
    assert found == {"Heap/INSERT": 60.0, "Heap/LOCK": 20.0, "Heap, full-page images": 20.0}
    assert parts_of_trial([], 10) == {}
    assert parts_of_trial(rows(300, 50), 0) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("read", [1000, 2000])
def test_the_table_has_the_difference_of_each_part_with_its_interval(read: int) -> None:
    findings = report_of(Synthetic(blocks=6, schedule=Schedule.SLICES)).findings.first
    assert not wal_of(findings)
    by_trial = {
        trial.trial: replace(
            findings.telemetry.by_trial[trial.trial],
            after={
                "wal_records": rows(
                    round((300 + trial.block + 150 * trial.arm) * trial.transactions * read / 2000),
                    50 * trial.transactions,
                    read=read,
                )
            },
        )
        for trial in findings.trials
    }
    measured = replace(findings, telemetry=replace(findings.telemetry, by_trial=by_trial))
    (found,) = wal_of(measured)
    insert = next(part for part in found.parts if part.name == "Heap/INSERT")
    assert (found.blocks, found.read_share) == (6, read / 2000)
    assert (insert.change.low is None) is (read < 2000)
    assert insert.baseline_bytes == pytest.approx(302.5, abs=0.01)
    assert insert.change.value == pytest.approx(150, abs=0.01)
    assert found.parts[0] is insert
    (section,) = sections(measured)
    (table,) = section.tables
    assert table.rows[0][:3] == ["Heap/INSERT", "302", "452"] and table.rows[0][3].startswith("+150")
    assert ("50% of it was read" in table.note) is (read < 2000)
