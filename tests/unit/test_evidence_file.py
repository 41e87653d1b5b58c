"""Results file: consistent after a crash of its writer, readable while it grows, rejected with a reason."""

from __future__ import annotations

import gzip
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pytest
from example_records import INTERVAL, READ, SERIES, SLICE, SMALL, begun
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_study import Synthetic, arms_of, study_of, write_anew, write_study

from edited_evidence import edited
from example_studies import make_study
from pgdyno.caveats import Caveat, Code
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
HISTOGRAM = Histogram("new_order", Measure.LATENCY, pairs_from([(1_000_000, 60), (2_000_000, 30)]))


def test_a_study_that_cannot_be_stored_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="UNIQUE"):
        Writer.create(tmp_path / "e", study_of(SMALL), arms_of(Synthetic(names=("18", "18"))))
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_written_records_round_trip(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    writer.add_slice(trial, SLICE)
    writer.add_interval(trial, INTERVAL)
    outcome = TrialOutcome(
        TrialStatus.EXCLUDED,
        9.0,
        reason="condition 4",
        log_error="PANIC: x",
        epoch_unix_s=6.0,
        restore_s=1.5,
        start_s=0.25,
        server_cpu_s=3.5,
        transactions=1234,
        counters={"new_orders": 567},
        driver_memory_bytes=9_000_000,
        driver=DriverFacts(threads=2, wake_late_ns=WakeLateNs(p99=12)),
        settings={"fsync": "on"},
        tally={"drawn": {"new_order": 91}},
        failures=[Failure("payment", "40P01", 2, "deadlock detected")],
        histograms=[HISTOGRAM],
        checks=[Check("condition 4", False, 1.5, 0.01, "one order lacks a line")],
        server_log="LOG:  ready\n",
        recovery_s=2.5,
        restart_s=0.5,
        probe_cpu_s=0.125,
        readings=[READ, UNREAD],
    )
    for chunk in SERIES:
        writer.add_series(trial, chunk)
    writer.finish_trial(trial, outcome)
    writer.add_caveat(Caveat(Code.SHARED_MACHINE, {"cores": 2}))
    writer.finish_block(0, BlockStatus.DONE, 10.0)
    writer.finish_study(StudyEnd.BUDGET, 11.0)
    writer.close()

    with Evidence(tmp_path / "e") as evidence:
        study = evidence.study()
        assert (study.plan, study.host, study.engine) == (
            study_of(SMALL).plan,
            study_of(SMALL).host,
            study_of(SMALL).engine,
        )
        assert (study.ended_because, study.ended_unix_s) == (StudyEnd.BUDGET, 11.0)
        assert evidence.arms() == arms_of(SMALL)
        assert evidence.blocks() == [Block(0, 11, [1, 0], 5.0, BlockStatus.DONE, 10.0)]
        (read,) = evidence.trials()
        assert (read.block, read.arm, read.attempt, read.started_unix_s) == (0, 1, 1, 5.5)
        require_outcome(read, outcome)
        assert read.slices == [SLICE]
        assert read.driver_cpu_s == pytest.approx(0.05)
        assert evidence.intervals(trial) == [INTERVAL]
        (histogram,) = evidence.histograms(trial, Measure.LATENCY)
        assert histogram.pairs.tolist() == HISTOGRAM.pairs.tolist()
        assert evidence.histograms(trial, Measure.LAG) == []
        assert evidence.readings(trial) == [UNREAD, READ]
        (wal,) = evidence.series(trial).values()
        assert list(wal.columns) == ["at_s", "late_s", "lsn", "fpi"]
        expected = [[0, 0.0, 10, np.nan], [1, 0.2, 30, np.nan], [2, 0.0, 60, 4]]
        np.testing.assert_array_equal(wal.points, np.array(expected))
        np.testing.assert_array_equal(wal.column("lsn"), [10, 30, 60])
        assert np.isnan(wal.column("no such")).all()
        assert evidence.server_log(trial) == "LOG:  ready\n"
        assert evidence.caveats() == [Caveat(Code.SHARED_MACHINE, {"cores": 2})]


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
    epoch_unix_s=maybe(real()),
    restore_s=maybe(CPU),
    start_s=maybe(CPU),
    server_cpu_s=maybe(CPU),
    transactions=maybe(whole()),
    counters=st.dictionaries(TEXT, whole(), max_size=2),
    driver_memory_bytes=maybe(whole()),
    failures=st.lists(st.builds(Failure, TEXT, TEXT, whole(), st.just("")), max_size=1),
    histograms=st.lists(
        st.builds(lambda pairs: Histogram("k", Measure.LATENCY, pairs_from(sorted(pairs.items()))), PAIRS),
        max_size=1,
    ),
    checks=st.lists(st.builds(Check, TEXT, st.booleans(), maybe(real()), maybe(CPU)), max_size=1),
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


@settings(max_examples=5, deadline=None)
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
    small, large = (
        (
            replace(
                study_of(SMALL),
                case=name,
                levels={"clients": name},
                file="title = 1",
                published={"tables": []},
                changes=[{"key": "x"}],
            ),
            arms,
        )
        for name, arms in (("8", arms_of(SMALL)), ("64", arms_of(Synthetic(names=("a", "b", "c")))))
    )
    with Writer.create(tmp_path / "e", *small, large) as writer:
        for case in (0, 1):
            writer.begin_block(Block(0, 7 + case, (1, 0), 5.0, case=case))
            trial = writer.begin_trial(0, 1, 5.5, case=case)
            writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 6.0))
            writer.describe_arm(1, case=case, safety=[Guarantee(f"of {case}", Kept.PARTLY, "")])
            writer.add_caveat(Caveat(Code.SHARED_MACHINE, {"cores": case}), case=case)
        writer.finish_block(0, BlockStatus.DONE, 9.0, case=1)
    with Evidence(tmp_path / "e") as evidence:
        assert evidence.cases() == [0, 1]
        for case, (study, arms) in enumerate((small, large)):
            seen = evidence.study(case)
            assert (seen.case, seen.levels, seen.file, seen.changes) == (
                study.case,
                study.levels,
                "title = 1",
                [{"key": "x"}],
            )
            assert [arm.name for arm in evidence.arms(case)] == [arm.name for arm in arms]
            assert evidence.arms(case)[1].safety == [Guarantee(f"of {case}", Kept.PARTLY, "")]
            assert [(t.block, t.arm, t.attempt) for t in evidence.trials(case)] == [(0, 1, 1)]
            assert evidence.caveats(case) == [Caveat(Code.SHARED_MACHINE, {"cores": case})]
        assert [[b.status for b in evidence.blocks(case)] for case in (0, 1)] == [
            [BlockStatus.RUNNING],
            [BlockStatus.DONE],
        ]


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


def test_another_process_reads_while_the_study_runs(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        assert seen_by_another_process(tmp_path / "e") == "running 0 slices 0 intervals"
        writer.add_interval(trial, INTERVAL)
        writer.add_slice(trial, SLICE)
        assert seen_by_another_process(tmp_path / "e") == "running 1 slices 1 intervals"
        writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0))
        assert seen_by_another_process(tmp_path / "e") == "ok 1 slices 1 intervals"


def seen_by_another_process(path: Path) -> str:
    script = (
        "import sys; from pathlib import Path; from pgdyno.results.reader import Evidence\n"
        "evidence = Evidence(Path(sys.argv[1])); (trial,) = evidence.trials()\n"
        "n = len(evidence.intervals(trial.trial))\n"
        "print(f'{trial.status} {len(trial.slices)} slices {n} intervals')"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_snapshot_does_not_contain_later_changes(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer, Evidence(tmp_path / "e") as evidence:
        with evidence.snapshot():
            assert evidence.trials()[0].slices == []
            writer.add_slice(trial, SLICE)
            assert evidence.trials()[0].slices == []
        assert evidence.trials()[0].slices == [SLICE]


WRITES_FOREVER = """
import dataclasses, sys
from pathlib import Path
import numpy as np
from synthetic_study import Synthetic, arms_of, study_of, write_block
from example_records import INTERVAL, SLICE
from pgdyno.results.records import Block
from pgdyno.results.writer import Writer
wanted = Synthetic(blocks=2, slices=2)
writer = Writer.create(Path(sys.argv[1]), study_of(wanted), arms_of(wanted))
write_block(writer, wanted, 0, np.random.default_rng(1))
writer.begin_block(Block(1, 12, (0, 1), 50.0))
trials = [writer.begin_trial(1, arm, 50.0) for arm in (0, 1)]
position = 0
while True:
    for trial in trials:
        writer.add_interval(trial, dataclasses.replace(INTERVAL, position=position, from_s=float(position)))
        writer.add_slice(trial, dataclasses.replace(SLICE, position=position))
        position += 1
        print(position, flush=True)
"""


@pytest.mark.parametrize("slices", [1, 2, 33, 400])
def test_a_killed_writer_leaves_a_consistent_file_that_can_be_resumed(tmp_path: Path, slices: int) -> None:
    path = tmp_path / "e"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", WRITES_FOREVER, path], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for _ in range(slices):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)

    with Evidence(path) as evidence:
        unfinished = [trial for trial in evidence.trials() if trial.status is TrialStatus.RUNNING]
        assert sum(len(trial.slices) for trial in unfinished) >= slices
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


def changed(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def make_foreign(path: Path) -> None:
    path.unlink()
    changed(path, "CREATE TABLE t (x)")


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


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_version(version: int) -> Callable[[Path], None]:
    return lambda path: changed(path, f"PRAGMA user_version = {version}")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (Path.unlink, "no results file at .*: check the name"),
        (make_directory, "no results file at .*: check the name"),
        (lambda path: path.write_bytes(b""), "not a results file of pgdyno: check the name"),
        (
            lambda path: path.write_text("not a database, though as long as a header" * 10),
            "is not a database",
        ),
        (make_foreign, "not a results file of pgdyno: check the name"),
        (make_truncated, "damaged .*: restore it from a copy"),
        (make_scribbled, "damaged .*: restore it from a copy"),
        (lambda path: changed(path, "DROP TABLE histogram"), "the table histogram is missing"),
        (of_version(SCHEMA_VERSION + 1), "newer pgdyno .*: upgrade pgdyno"),
        (make_older, r"schema version 3, this one reads 4\): read it with pgdyno 0\.1"),
        (of_version(2), "older pgdyno .*: read it with the pgdyno that wrote it"),
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
    with pytest.raises(EvidenceError, match=r"damaged .*: restore it from a copy"):
        read_report(tmp_path / "e")
    with pytest.raises(EvidenceError, match=r"damaged .*: restore it from a copy"):
        Writer.resume(tmp_path / "e")


@pytest.mark.parametrize(
    ("change", "read", "complaint"),
    [
        (
            "UPDATE histogram SET n = n + 1",
            lambda of: of.histograms(1, Measure.LATENCY),
            r"histogram\.n .* does not agree",
        ),
        ("ALTER TABLE study RENAME COLUMN published TO announced", Evidence.study, "has an invalid value"),
        (
            "UPDATE study_case SET plan = json_set(plan, '$.schedule', 'by the moon')",
            Evidence.study,
            "has an invalid value",
        ),
    ],
)
def test_a_file_with_an_invalid_value_or_column_is_rejected(
    tmp_path: Path, change: str, read: Callable[[Evidence], object], complaint: str
) -> None:
    write_study(tmp_path / "e", SMALL)
    with edited(tmp_path / "e") as connection:
        connection.execute(change)
    with Evidence(tmp_path / "e") as evidence, pytest.raises(EvidenceError, match=complaint):
        read(evidence)


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
    assert (list(found.arm_levels), found.why_no_aa, found.aa_before) == (
        list(levels),
        "refused",
        [0.25, -0.5],
    )
    assert (found.aa_of, found.aa_arm) == (None, None)


def test_a_full_disk_is_reported_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        writer.add_slice(trial, SLICE)
        writer._connection.execute("PRAGMA max_page_count = 1")  # grows no further, as on a full disk
        large = TrialOutcome(
            TrialStatus.OK, 9.0, settings={str(i): os.urandom(40).hex() for i in range(9000)}
        )
        with pytest.raises(DiskFullError, match="cannot write"):
            writer.finish_trial(trial, large)
    with Evidence(tmp_path / "e") as evidence:
        (read,) = evidence.trials()
        assert (read.status, read.slices) == (TrialStatus.RUNNING, [SLICE])


def test_a_trial_is_finished_once(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        writer.finish_trial(trial, TrialOutcome(TrialStatus.OK, 9.0))
        with pytest.raises(ValueError, match="not running"):
            writer.finish_trial(trial, TrialOutcome(TrialStatus.FAILED, 10.0))


def test_the_same_caveat_twice_is_stored_once(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        for about in (None, None, trial):
            writer.add_caveat(Caveat(Code.SHARED_MACHINE, {"cores": 2}, about))
    with Evidence(tmp_path / "e") as evidence:
        assert [caveat.trial for caveat in evidence.caveats()] == [None, trial]


def test_a_copy_taken_after_a_kill_with_its_wal_file_is_complete(tmp_path: Path) -> None:
    writer, trial = begun(tmp_path / "e")
    with writer:
        writer.add_slice(trial, SLICE)
        (tmp_path / "copy").mkdir()
        for name in ("e", "e-wal"):
            shutil.copy(tmp_path / name, tmp_path / "copy" / name)
    with Evidence(tmp_path / "copy" / "e") as evidence:
        assert evidence.trials()[0].slices == [SLICE]
