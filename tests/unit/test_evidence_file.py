"""Results file: consistent after a crash of its writer, readable while it grows, rejected with a reason."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pytest
from example_records import INTERVAL, READ, SERIES, SLICE, SMALL, begun
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_study import Synthetic, arms_of, study_of, write_anew, write_block, write_study

from edited_evidence import edited
from example_studies import make_study
from pgdyno.caveats import Caveat
from pgdyno.cli.report import read_report
from pgdyno.errors import DiskFullError, EvidenceError, EvidenceExistsError
from pgdyno.results import results_file
from pgdyno.results.codec import pairs_from
from pgdyno.results.reader import Evidence
from pgdyno.results.records import (
    Block,
    BlockStatus,
    Check,
    Counts,
    DriverFacts,
    Failure,
    Guarantee,
    Histogram,
    Interval,
    Kept,
    Measure,
    Moment,
    Points,
    SampleSeries,
    Slice,
    StoredReading,
    StudyEnd,
    Trial,
    TrialOutcome,
    TrialStatus,
    WakeLateNs,
)
from pgdyno.results.results_file import INTEGER_MAX, REAL_MAX, REAL_MIN, SCHEMA_VERSION
from pgdyno.results.writer import Writer
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Driving, Rate
from pgdyno.study.schedule import Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

T = TypeVar("T")

UNREAD = StoredReading("statements", Moment.BEGIN, 1.0, 0.0, None, "not in shared_preload_libraries")


def test_a_study_that_cannot_be_stored_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="UNIQUE"):
        Writer.create(tmp_path / "e", study_of(SMALL), arms_of(Synthetic(names=("18", "18"))))
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_what_a_study_has_once_is_read_as_it_was_written(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    for chunk in SERIES:
        writer.add_series(trial, chunk)
    outcome = TrialOutcome(TrialStatus.OK, 9.0, server_log="LOG:  ready\n", readings=[READ, UNREAD])
    writer.finish_trial(trial, outcome)
    writer.finish_block(0, BlockStatus.DONE, 10.0)
    writer.finish_study(StudyEnd.BUDGET, 11.0)
    writer.close()
    with Evidence(tmp_path / "e") as evidence:
        study, expected = evidence.study(), study_of(SMALL)
        assert (study.plan, study.host, study.engine) == (expected.plan, expected.host, expected.engine)
        assert (study.ended_because, study.ended_unix_s) == (StudyEnd.BUDGET, 11.0)
        assert evidence.arms() == arms_of(SMALL)
        assert evidence.blocks() == [Block(0, 11, [1, 0], 5.0, BlockStatus.DONE, 10.0)]
        assert evidence.readings(trial) == [UNREAD, READ]
        (wal,) = evidence.series(trial).values()
        assert list(wal.columns) == ["at_s", "late_s", "lsn", "fpi"]
        points = [[0, 0.0, 10, np.nan], [1, 0.2, 30, np.nan], [2, 0.0, 60, 4]]
        np.testing.assert_array_equal(wal.points, np.array(points))
        assert np.isnan(wal.column("no such")).all()
        assert evidence.server_log(trial) == "LOG:  ready\n"


def require_outcome(read: Trial, outcome: TrialOutcome) -> None:
    for name in {field.name for field in fields(Trial)} & vars(outcome).keys():
        assert getattr(read, name) == getattr(outcome, name), name


def whole(*more: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, INTEGER_MAX, *more])


def real(*, least: float = -REAL_MAX) -> st.SearchStrategy[float]:
    extremes = [of for of in (-REAL_MAX, -1.0, -REAL_MIN, 0.0, REAL_MIN, 1e-9, 1.0, REAL_MAX) if of >= least]
    return st.sampled_from(extremes) | st.floats(1e-9, REAL_MAX)


def maybe(values: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | values


CPU = real(least=0.0)
TEXT = st.text(max_size=9)
N = st.sampled_from([0, 1, 2**50])  # their sum is a number, too
COUNTS = st.dictionaries(TEXT, st.builds(Counts, *[N] * 5), max_size=2)
PAIRS = st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, 2**52), max_size=2)
FOUND = st.lists(st.dictionaries(TEXT, maybe(real() | whole() | TEXT), max_size=2), max_size=2)
OUTCOME = st.builds(
    TrialOutcome,
    st.sampled_from([status for status in TrialStatus if status not in ("running", "superseded")]),
    real(),
    reason=TEXT,
    log_error=TEXT,
    driver=st.builds(DriverFacts, threads=maybe(whole()), wake_late_ns=st.just(WakeLateNs(p99=12))),
    settings=st.dictionaries(TEXT, TEXT, max_size=2),
    tally=st.dictionaries(TEXT, whole(), max_size=2),
    epoch_unix_s=maybe(real()),
    restore_s=maybe(CPU),
    start_s=maybe(CPU),
    server_cpu_s=maybe(CPU),
    transactions=maybe(whole()),
    counters=st.dictionaries(TEXT, whole(), max_size=2),
    driver_memory_bytes=maybe(whole()),
    failures=st.lists(st.builds(Failure, TEXT, TEXT, whole(), TEXT), max_size=1),
    histograms=st.lists(
        st.builds(lambda pairs: Histogram("k", Measure.LATENCY, pairs_from(sorted(pairs.items()))), PAIRS),
        max_size=1,
    ),
    checks=st.lists(st.builds(Check, TEXT, st.booleans(), maybe(real()), maybe(CPU), TEXT), max_size=1),
    recovery_s=maybe(CPU),
    restart_s=maybe(CPU),
    probe_cpu_s=maybe(CPU),
    readings=st.lists(
        st.builds(StoredReading, TEXT, st.sampled_from(Moment), real(), CPU, maybe(FOUND), st.just("")),
        max_size=1,
    ),
)


PIECE = st.builds(
    Slice, whole(), st.sampled_from(Role), real(), real(), real(), real(), CPU, CPU, kinds=COUNTS
)
BETWEEN = st.builds(Interval, whole(), st.sampled_from(Role), real(), real(), COUNTS, *[maybe(whole())] * 4)
BLOCK = st.builds(
    Block, st.just(0), st.sampled_from([0, 2**63 - 1]), st.just([1, 0]), real(), ended_unix_s=st.none()
)
POINTS = st.lists(st.tuples(real(), real(), st.floats()), min_size=1, max_size=3).map(np.array)


@settings(max_examples=5)
@given(BLOCK, st.lists(st.tuples(PIECE, BETWEEN, POINTS, OUTCOME), min_size=1, max_size=8))
def test_the_extremes_of_every_number_are_written_and_read(
    block: Block, trials: list[tuple[Slice, Interval, Points, TrialOutcome]]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "e"
        with Writer.create(path, study_of(SMALL), arms_of(SMALL)) as writer:
            writer.begin_block(block)
            for piece, interval, points, outcome in trials:
                trial = writer.begin_trial(0, 1, block.started_unix_s)
                writer.add_slice(trial, piece)
                writer.add_interval(trial, interval)
                writer.add_series(trial, SampleSeries("server", ["at_s", "late_s", "x"], points))
                writer.finish_trial(trial, outcome)
        with Evidence(path) as evidence:
            assert evidence.blocks() == [block]
            for read, (piece, interval, points, outcome) in zip(
                evidence.trials(all_attempts=True), trials, strict=True
            ):
                assert read.slices == [piece]
                assert evidence.intervals(read.trial) == [interval]
                np.testing.assert_array_equal(evidence.series(read.trial)["server"].points, points)
                require_outcome(read, outcome)
                assert evidence.readings(read.trial) == outcome.readings
                histograms = evidence.histograms(read.trial, Measure.LATENCY)
                assert [(of.kind, of.pairs.tolist()) for of in histograms] == [
                    (of.kind, of.pairs.tolist()) for of in outcome.histograms
                ]


def test_numbers_that_the_reader_would_refuse_are_not_written(tmp_path: Path) -> None:
    edges = [0.0, REAL_MIN, REAL_MAX, math.inf, 5e-324]
    values = [
        sign * math.nextafter(edge, towards)
        for edge in edges
        for towards in (0, edge, math.inf)
        for sign in (-1, 1)
    ]
    writer, trial = begun(tmp_path / "e")
    written = []
    with writer:
        for name, least in (("server_cpu_s", 0.0), ("epoch_unix_s", -REAL_MAX)):
            for value in values:
                outcome = replace(TrialOutcome(TrialStatus.OK, 9.0), **{name: value})
                if least <= value <= REAL_MAX and (value == 0 or abs(value) >= REAL_MIN):
                    writer.finish_trial(trial, outcome)
                    written.append((name, value))
                    trial = writer.begin_trial(0, 1, 5.5)
                else:
                    with pytest.raises(EvidenceError, match=f"trial.{name} is out of range"):
                        writer.finish_trial(trial, outcome)
        for count in (-1, INTEGER_MAX + 1, 2**63, 2**70):
            with pytest.raises(EvidenceError, match="out of range"):
                writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0, transactions=count))
    with Evidence(tmp_path / "e") as evidence:
        *read, unfinished = evidence.trials(all_attempts=True)
    assert [getattr(of, name) for of, (name, _) in zip(read, written, strict=True)] == [
        value for _, value in written
    ]
    assert unfinished.status is TrialStatus.RUNNING


def test_every_column_with_numbers_has_one_range_for_writer_and_reader(tmp_path: Path) -> None:
    writer, _ = begun(tmp_path / "e")
    found = {
        name: sql
        for name, sql in writer._connection.execute("SELECT name, sql FROM sqlite_temp_schema")
        if name.startswith("range_")
    }
    for table in re.findall(r"CREATE TABLE (\w+)", results_file._schema()):
        ranges = dict(results_file._ranges(writer._connection, table))
        for event in ("insert", "update") if ranges else ():
            assert found[f"range_{table}_{event}"].count("RAISE") == len(ranges)
    writer.close()


def test_every_case_has_its_own_arms_blocks_and_caveats(tmp_path: Path) -> None:
    of_file: dict[str, Any] = {"file": "title = 1", "published": {"tables": []}, "changes": [{"key": "x"}]}
    small, large = (
        (replace(study_of(SMALL), case=name, levels={"clients": name}, **of_file), arms)
        for name, arms in (("8", arms_of(SMALL)), ("64", arms_of(Synthetic(names=("a", "b", "c")))))
    )
    with Writer.create(tmp_path / "e", *small, large) as writer:
        for case in (0, 1):
            writer.begin_block(Block(0, 7 + case, (1, 0), 5.0, case=case))
            trial = writer.begin_trial(0, 1, 5.5, case=case)
            writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 6.0))
            writer.describe_arm(1, case=case, safety=[Guarantee(f"of {case}", Kept.PARTLY, "")])
            writer.add_caveat(Caveat.of("shared-machine", cores=case), case=case)
        writer.finish_block(0, BlockStatus.DONE, 9.0, case=1)
    with Evidence(tmp_path / "e") as evidence:
        assert evidence.cases() == [0, 1]
        for case, (study, arms) in enumerate((small, large)):
            seen = evidence.study(case)
            assert (seen.case, seen.levels) == (study.case, study.levels)
            assert (seen.file, seen.changes) == ("title = 1", [{"key": "x"}])
            assert [arm.name for arm in evidence.arms(case)] == [arm.name for arm in arms]
            assert evidence.arms(case)[1].safety == [Guarantee(f"of {case}", Kept.PARTLY, "")]
            assert [(t.block, t.arm, t.attempt) for t in evidence.trials(case)] == [(0, 1, 1)]
            assert evidence.caveats(case) == [Caveat.of("shared-machine", cores=case)]
        statuses = [block.status for case in (0, 1) for block in evidence.blocks(case)]
        assert statuses == [BlockStatus.RUNNING, BlockStatus.DONE]


def test_remains_of_a_killed_file_creation_are_not_reused(tmp_path: Path) -> None:
    # A journal next to a database is rolled back when the database is opened.
    for companion in ("", "-journal", "-wal", "-shm"):
        (tmp_path / f"e.{16 * '0'}.new{companion}").write_bytes(b"of another file")
    write_anew(tmp_path / "e", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_a_finished_file_is_read_from_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    write_study(tmp_path / "e", SMALL)
    (tmp_path / "e").chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        with Evidence(tmp_path / "e") as evidence:
            assert len(evidence.trials()) == 4
    finally:
        tmp_path.chmod(0o755)


READS_ON_REQUEST = """
import sys
from pathlib import Path
from pgdyno.results.reader import Evidence
for _ in sys.stdin:
    with Evidence(Path(sys.argv[1])) as evidence:
        (trial,) = evidence.trials()
        n = len(evidence.intervals(trial.trial))
        print(f"{trial.status} {len(trial.slices)} slices {n} intervals", flush=True)
"""


def test_another_process_reads_while_the_study_runs(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    command = [sys.executable, "-c", READS_ON_REQUEST, tmp_path / "e"]
    pipe = subprocess.PIPE
    with writer, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as reader:

        def seen() -> str:
            print(file=reader.stdin, flush=True)
            return reader.stdout.readline().strip()

        assert seen() == "running 0 slices 0 intervals"
        writer.add_interval(trial, INTERVAL)
        writer.add_slice(trial, SLICE)
        assert seen() == "running 1 slices 1 intervals"
        writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0))
        assert seen() == "ok 1 slices 1 intervals"


def test_a_snapshot_does_not_contain_later_changes(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer, Evidence(tmp_path / "e") as evidence:
        with evidence.snapshot():
            assert evidence.trials()[0].slices == []
            writer.add_slice(trial, SLICE)
            assert evidence.trials()[0].slices == []
        assert evidence.trials()[0].slices == [SLICE]


SLICES = ("1", "2", "33", "400")
KILLED_WRITERS = """
import dataclasses, os, signal, sys
from pathlib import Path
import numpy as np
from synthetic_study import Synthetic, arms_of, study_of, write_block
from example_records import INTERVAL, SLICE
from pgdyno.results.records import Block
from pgdyno.results.writer import Writer

def write(path, pipe):
    wanted = Synthetic(blocks=2, slices=2)
    writer = Writer.create(path, study_of(wanted), arms_of(wanted))
    write_block(writer, wanted, 0, np.random.default_rng(1))
    writer.begin_block(Block(1, 12, (0, 1), 50.0))
    trials = [writer.begin_trial(1, arm, 50.0) for arm in (0, 1)]
    position = 0
    while True:
        for trial in trials:
            begin = float(position)
            writer.add_interval(trial, dataclasses.replace(INTERVAL, position=position, from_s=begin))
            writer.add_slice(trial, dataclasses.replace(SLICE, position=position))
            position += 1
            os.write(pipe, b".")

for slices in sys.argv[1:]:
    reader, pipe = os.pipe()
    if (child := os.fork()) == 0:
        write(Path(slices), pipe)
    os.close(pipe)
    for _ in range(int(slices)):
        assert os.read(reader, 1)
    os.kill(child, signal.SIGKILL)
    os.wait()
"""
"""For each number of slices, kill a process that has written as many to a file of this name and goes on."""


def test_a_killed_writer_leaves_a_consistent_file_that_can_be_resumed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", KILLED_WRITERS, *SLICES]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    for slices in SLICES:
        require_resumable(tmp_path / slices)


def require_resumable(path: Path) -> None:
    with Evidence(path) as evidence:
        unfinished = [trial for trial in evidence.trials() if trial.status is TrialStatus.RUNNING]
        assert sum(len(trial.slices) for trial in unfinished) >= int(path.name)
        assert [trial.status for trial in evidence.trials() if trial.block == 0] == [TrialStatus.OK] * 2

    with Writer.resume(path) as writer:
        again = writer.begin_trial(1, 1, 99.0)
        writer.finish_trial(again, TrialOutcome(TrialStatus.OK, 100.0))
    with Evidence(path) as evidence:
        attempts = [(t.arm, t.attempt, t.status) for t in evidence.trials(all_attempts=True) if t.block == 1]
        interrupted = TrialStatus.INTERRUPTED
        assert attempts == [(0, 1, interrupted), (1, 1, interrupted), (1, 2, TrialStatus.OK)]
        assert [block.status for block in evidence.blocks()] == [BlockStatus.DONE, BlockStatus.INTERRUPTED]


def test_a_restarted_block_keeps_its_trials(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0))
        writer.begin_block(Block(0, 11, (0, 1), 20.0))
    with Evidence(tmp_path / "e") as evidence:
        assert evidence.blocks() == [Block(0, 11, [0, 1], 20.0)]


def test_a_case_whose_plan_is_replaced_repeats_its_blocks(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0))
        writer.finish_block(0, BlockStatus.DONE, 9.0)
        plan = make_study(slice_s=2.0)
        writer.repeat_with(plan, 0)
    with Evidence(tmp_path / "e") as evidence:
        assert evidence.study().plan == plan
        assert [block.status for block in evidence.blocks()] == [BlockStatus.INTERRUPTED]
        assert [one.status for one in evidence.trials()] == [TrialStatus.INTERRUPTED]


def test_a_second_writer_is_rejected_with_the_name_of_the_first(tmp_path: Path) -> None:
    writer, _ = begun(tmp_path / "e")
    with writer:
        for attempt in (Writer.resume, lambda path: Writer.create(path, study_of(SMALL), arms_of(SMALL))):
            with pytest.raises(EvidenceError, match=rf"another pgdyno \(process {os.getpid()}\)"):
                attempt(tmp_path / "e")
    Writer.resume(tmp_path / "e").close()


def test_evidence_is_never_overwritten(tmp_path: Path) -> None:
    write_study(tmp_path / "e", SMALL)
    before = (tmp_path / "e").read_bytes()
    with pytest.raises(EvidenceExistsError, match=r"exists already: use another name, or .* --resume"):
        Writer.create(tmp_path / "e", study_of(SMALL), arms_of(SMALL))
    assert (tmp_path / "e").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def make_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192:20480] = b"\xff" * 12288
    path.write_bytes(bytes(data))


def make_older(path: Path) -> None:
    """Write the file of pgdyno 0.1."""
    kept = Path(__file__).parents[1] / "data" / "evidence_version_3.sqlite.gz"
    path.write_bytes(gzip.decompress(kept.read_bytes()))


def changed(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                assert connection.execute(statement).rowcount != 0

    return change


UNKNOWN, DAMAGED = "not a results file of pgdyno: check the name", "damaged .*: restore it from a copy"
OLDER = "older pgdyno .*: read it with the pgdyno that wrote it"


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (Path.unlink, "no results file at .*: check the name"),
        (lambda path: (path.unlink(), path.mkdir()), "no results file at .*: check the name"),
        (lambda path: path.write_bytes(b""), UNKNOWN),
        (
            lambda path: path.write_text("no database, though as long as a header" * 10),
            "its start is damaged",
        ),
        (lambda path: (path.unlink(), changed("CREATE TABLE t (x)")(path)), UNKNOWN),
        (make_truncated, DAMAGED),
        (make_scribbled, DAMAGED),
        (changed("DROP TABLE histogram"), "the table histogram is missing"),
        (changed(f"PRAGMA user_version = {SCHEMA_VERSION + 1}"), "newer pgdyno .*: upgrade pgdyno"),
        (make_older, r"schema version 3, this one reads 4\): read it with pgdyno 0\.1"),
        (changed("PRAGMA user_version = 2"), OLDER),
        (changed("DROP TABLE checksum", f"PRAGMA user_version = {SCHEMA_VERSION - 1}"), "older pgdyno"),
        (changed("UPDATE checksum SET digest = 'none' WHERE name = 'slice'"), r"damaged \(the table slice\)"),
    ],
)
def test_an_invalid_results_file_is_rejected(
    tmp_path: Path, spoil: Callable[[Path], object], complaint: str
) -> None:
    path = tmp_path / "e"
    write_study(path, SMALL)
    spoil(path)
    before = path.is_file() and path.read_bytes()
    with pytest.raises(EvidenceError, match=complaint) as reading:
        Evidence(path)
    with pytest.raises(EvidenceError, match=complaint):
        Writer.resume(path)
    assert "\n" not in str(reading.value)
    assert not (tmp_path / "e.lock").exists()
    assert (path.is_file() and path.read_bytes()) == before


@pytest.mark.parametrize("spoil", [make_truncated, make_scribbled])
def test_damage_in_a_file_too_large_for_a_full_check_is_found_when_read(
    tmp_path: Path, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_file, "CHECKED_BYTES_MAX", 0)
    write_study(tmp_path / "e", SMALL)
    spoil(tmp_path / "e")
    with pytest.raises(EvidenceError, match=DAMAGED):
        read_report(tmp_path / "e")
    with pytest.raises(EvidenceError, match=DAMAGED):
        Writer.resume(tmp_path / "e")


WARM_UP = {"driven_s": 5.0, "by": "evidence", "values": 5, "looks": 1, "looks_steady": 1, "times": 1}
STEP = {"rate_per_s": 1400.0, "latency_ms": 3.5}
CAPACITY: dict[str, Any] = {"limit": "p99 < 20ms", "closed_loop_per_s": 2000.5, "steps": [STEP]}
DRIVER_FACTS_WRONG: list[dict[str, Any]] = [
    {"threads": -1},
    {"memory_peak_bytes": 1e400},
    {"wake_late_ns": {"p99": 2**64}},
    {"ordered_checkpoint_s": math.nan},
    {"warm_up": WARM_UP | {"by": "chance"}},
    {"warm_up": {}},
    {"capacity": CAPACITY | {"limit": "p99 < soon"}},
    {"capacity": CAPACITY | {"steps": [STEP | {"rate_per_s": 0.0}]}},
]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(
            ("trial.driver", {"warm_up": WARM_UP, "capacity": CAPACITY} | wrong)
            for wrong in DRIVER_FACTS_WRONG
        ),
        ("arm.server", {"version": 18}),
        ("arm.server", {"compiled": ["-O2"]}),
        ("study.host", {"cores": "two"}),
        ("study.host", {"states": [{"when": "before"}]}),
        ("study.engine", {"profile": {}}),
    ],
    ids=str,
)
def test_a_fact_of_a_wrong_type_is_a_damaged_file(tmp_path: Path, place: str, value: dict[str, Any]) -> None:
    write_study(tmp_path / "e", SMALL)
    table, column = place.split(".")
    with edited(tmp_path / "e") as connection:
        old = json.loads(connection.execute(f"SELECT {column} FROM {table}").fetchone()[0])
        connection.execute(f"UPDATE {table} SET {column} = ?", (json.dumps(old | value),))
    with pytest.raises(EvidenceError):
        read_report(tmp_path / "e")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("UPDATE histogram SET n = n + 1", r"histogram\.n does not agree"),
        ("ALTER TABLE study RENAME COLUMN published TO announced", "has an invalid value"),
        ("UPDATE study_case SET plan = json_set(plan, '$.schedule', 'by the moon')", "has an invalid value"),
    ],
)
def test_a_file_with_an_invalid_value_or_column_is_rejected(
    tmp_path: Path, change: str, complaint: str
) -> None:
    write_study(tmp_path / "e", SMALL)
    with edited(tmp_path / "e") as connection:
        connection.execute(change)
    with pytest.raises(EvidenceError, match=complaint):
        read_report(tmp_path / "e")


def test_the_plan_of_a_study_round_trips_except_for_passwords(tmp_path: Path) -> None:
    dsn = ArmSpec(name="running", server="host=db password=secret", is_dsn=True)
    arms = (*make_study().arms[:1], dsn)
    driving = Driving(workload=PgbenchParameters(scale=3), clients=5, rate=Rate(per_s=70.0))
    other = driving.model_copy(update={"clients": 6})
    planned = make_study(
        arms=arms, **dict(driving), drivings=(driving, other), cpu_partition=None, warmup_min_s=1.0
    )
    levels = ({"clients": "5"}, {"clients": "6"})
    described = replace(
        study_of(SMALL), plan=planned, arm_levels=levels, why_no_aa="refused", aa_before=[0.25, -0.5]
    )
    Writer.create(tmp_path / "e", described, arms_of(SMALL)).close()
    with Evidence(tmp_path / "e") as evidence:
        found = evidence.study()
    assert found.plan == planned.model_copy(
        update={"arms": (arms[0], dsn.model_copy(update={"server": "host=db password=***"}))}
    )
    assert (tuple(found.arm_levels), found.why_no_aa, found.aa_before) == (levels, "refused", [0.25, -0.5])
    assert (found.aa_of, found.aa_arm) == (None, None)


def test_the_same_caveat_twice_is_stored_once(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        for about in (None, None, trial):
            writer.add_caveat(Caveat.of("shared-machine", about, cores=2))
    with Evidence(tmp_path / "e") as evidence:
        assert [caveat.trial for caveat in evidence.caveats()] == [None, trial]


def test_the_budget_of_a_resume_is_stored_for_all_cases_and_added_time_is_not_forgotten(
    tmp_path: Path,
) -> None:
    write_study(tmp_path / "e", *(replace(SMALL, levels={"clients": n}) for n in "89"))

    def stored(budget_s: float, *, may_go_on: bool) -> set[tuple[float, bool]]:
        with Writer.resume(tmp_path / "e") as writer:
            writer.note_more_time(budget_s, may_go_on=may_go_on)
        with Evidence(tmp_path / "e") as evidence:
            plans = [evidence.study(case).plan for case in evidence.cases()]
        return {(plan.budget_s, plan.resumed_for_more) for plan in plans}

    assert stored(812.5, may_go_on=False) == {(812.5, False)}
    assert stored(900.0, may_go_on=True) == {(900.0, True)}
    assert stored(1200.0, may_go_on=False) == {(1200.0, True)}


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
        writer.note_more_time(900.0)
        writer.add_caveat(Caveat.of("shared-machine", trial, cores=2))
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
    """The bytes as documented in docs/reference/results-file.md and generated_schema.sql, made by hand."""
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
    compared.clear()
    Evidence(path).close()
    assert not compared
    written = path.read_bytes()
    for damaged in (written[:-1], written[:-1] + bytes([written[-1] ^ 1]), written[:-32], written + b"\0"):
        compared.clear()
        path.write_bytes(damaged)
        Evidence(path).close()
        assert compared


def test_a_file_that_was_damaged_while_it_was_written_gets_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write_study(path, SMALL)
    with Writer.resume(path), closing(sqlite3.connect(path)) as another, another:
        another.execute("UPDATE arm SET clients = clients + 1")
    assert not results_file.has_bytes_digest(path)
    with pytest.raises(EvidenceError, match="the table arm"):
        Evidence(path)


def test_every_changed_byte_changes_the_digest_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_bytes(bytes(1024))  # two of the smallest pages
    results_file.store_bytes_digest(path)
    written = path.read_bytes()
    assert written[-32:] == hashlib.blake2b(bytes(1024), digest_size=32).digest()
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
    schema = (Path(results_file.__file__).parent / "generated_schema.sql").read_text()
    tables = re.findall(r"^CREATE TABLE (\w+)", schema, re.MULTILINE)
    assert set(CHANGES) == {*tables, "sqlite_schema"}


@pytest.mark.parametrize("table", CHANGES)
def test_a_table_that_was_changed_is_named(tmp_path: Path, table: str) -> None:
    path = tmp_path / "e"
    write_study(path, SMALL)
    changed(CHANGES[table])(path)
    for use in (Evidence, Writer.resume):
        with pytest.raises(EvidenceError, match=rf"damaged \(the table {table}\): restore it from a copy"):
            use(path)
    assert not path.with_name("e.lock").exists()


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
    with pytest.raises(DiskFullError, match="cannot write"):
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


def test_rows_committed_just_before_an_interrupt_are_in_the_checksum(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        with pytest.raises(KeyboardInterrupt), writer._checksums.kept():
            writer.add_slice(trial, SLICE)
            raise KeyboardInterrupt  # by a second signal, after COMMIT
        writer.add_slice(trial, replace(SLICE, position=5))
    with Evidence(tmp_path / "e") as evidence:
        assert {piece.position for piece in evidence.trials()[0].slices} == {4, 5}
