"""Repetition of disturbed blocks: whose use counts, limits, decisions from a results file, error rates."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.disturbed_blocks import DISTURBANCES, outcome, simulate
from synthetic_study import Synthetic, arms_of, study_of

from pgdyno.cli.report import read_report
from pgdyno.features.disturbed_blocks.programs import Process, read_processes, start, used_by_others
from pgdyno.features.disturbed_blocks.repetition import (
    CPU_SHARE_MAX,
    IO_BYTES_PER_S_MAX,
    OBSERVED_S_MIN,
    excesses,
    may_repeat,
    repeats,
)
from pgdyno.measure import study_runner
from pgdyno.measure.progress import Warned
from pgdyno.measure.study_runner import Budget, run_study
from pgdyno.measure.trial import STEAL_SHARE_MAX, Lab
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Block, BlockStatus, Moment, StoredReading, TrialOutcome, TrialStatus
from pgdyno.results.writer import Writer
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import Schedule
from pgdyno.study.schedule import PlannedBlock

OWN = 100
"""Process ID of pgdyno in these tests."""

INIT = Process("systemd", 0, 1, is_kernel=False, cpu_s=5.0, ended_cpu_s=50.0, io_bytes=7000)
SHELL = Process("bash", 1, 90, is_kernel=False, cpu_s=0.1, ended_cpu_s=70.0, io_bytes=9000)
MAKE = Process("make", 150, 200, is_kernel=False, cpu_s=1.0, ended_cpu_s=2.0, io_bytes=1000)
COMPILER = Process("cc1", 200, 200, is_kernel=False, cpu_s=2.0, ended_cpu_s=0.0, io_bytes=500)
SERVER = Process("postgres", OWN, 110, is_kernel=False, cpu_s=0.5, ended_cpu_s=0.0, io_bytes=10)
BEFORE = {
    1: INIT,
    50: replace(SERVER, name="jbd2/sda1-8", parent=2, session=0, is_kernel=True),
    90: SHELL,
    OWN: replace(SERVER, name="pgdyno", parent=90, session=90),
    110: SERVER,
    150: replace(SHELL, session=150),
    111: replace(SERVER, parent=110, session=111),
    200: MAKE,
    201: COMPILER,
}
TAR = replace(MAKE, name="tar")
ARCHIVING = replace(COMPILER, name="zstd", parent=111, session=111)


def grown(pid: int, cpu_s: float, ended_cpu_s: float = 0.0, io_bytes: int = 0) -> dict[int, Process]:
    """Return a process of BEFORE that has used more."""
    of = BEFORE[pid]
    more = {"cpu_s": of.cpu_s + cpu_s, "ended_cpu_s": of.ended_cpu_s + ended_cpu_s}
    return {pid: replace(of, io_bytes=of.io_bytes + io_bytes, **more)}


@pytest.mark.parametrize(
    ("changes", "cpu_s", "io_bytes", "largest"),
    [
        ({}, 0.0, 0, ""),
        ({**grown(200, 0.5), **grown(201, 4.0, 0.0, 2000)}, 4.5, 2000, "cc1"),
        ({**grown(90, 0.25)}, 0.25, 0, "bash"),
        # pgdyno, a server, its archiver and a kernel thread that writes for it.
        ({**grown(OWN, 1.0), **grown(110, 3.0), **grown(111, 1.0), **grown(50, 7.0)}, 0.0, 0, ""),
        # A command of the archiver, one in the background, and one in the background that has ended.
        ({300: ARCHIVING}, 0.0, 0, ""),
        ({300: replace(ARCHIVING, parent=1)}, 0.0, 0, ""),
        ({**grown(1, 0.0, 8.0, 5000)}, 0.0, 0, ""),
        ({**grown(90, 0.0, 8.0, 5000)}, 0.0, 0, ""),
        # A program that began meanwhile.
        ({300: TAR}, 3.0, 1000, "tar"),
        # A compiler used one more second and ended: make has all of its time.
        ({201: None, **grown(200, 0.0, 2.0 + 1.0, 500 + 100)}, 1.0, 100, "make"),
        # A compiler and its parent ended: a shell has their time, which was 5 s before. Then the shell ended.
        ({201: None, 200: None, **grown(150, 0.0, 5.0 + 0.25, 1500 + 100)}, 0.25, 100, "bash"),
        ({201: None, 200: None, 150: None, **grown(1, 0.0, 75.6, 9000), 300: TAR}, 3.0, 1000, "tar"),
        # Nobody waited for a compiler, and its time is lost.
        ({201: None}, 0.0, 0, ""),
    ],
)
def test_only_the_use_of_other_programs_since_the_first_reading_counts(
    changes: Mapping[int, Process | None], cpu_s: float, io_bytes: int, largest: str
) -> None:
    after = {pid: of for pid, of in {**BEFORE, **changes}.items() if of is not None}
    used = used_by_others(BEFORE, after, OWN)
    assert (used.cpu_s, used.io_bytes) == pytest.approx((cpu_s, io_bytes))
    assert (used.largest if cpu_s else "") == largest


def test_processes_are_read_whatever_their_names_and_permissions_are(tmp_path: Path) -> None:
    def stat(name: str, flags: int) -> str:
        # Fields 3 to 17 of proc_pid_stat(5): 25 + 5 ticks of its own, 10 + 2 of ended children.
        return f"7 ({name}) S 1 6 5 0 -1 {flags} 0 0 0 0 25 5 10 2 20 0 1 0\n"

    for pid, name, flags in ((7, "a) (b", 0x400000), (8, "kworker/0:1", 0x4208060), (9, "cut", 0)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat(name, flags))
    (tmp_path / "7" / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n")
    (tmp_path / "9" / "stat").write_text("9 (cut) S 1")
    (tmp_path / "meminfo").write_text("")
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    times = {"cpu_s": pytest.approx(30 * tick_s), "ended_cpu_s": pytest.approx(12 * tick_s)}
    assert read_processes(tmp_path) == {
        7: Process("a) (b", 1, 5, is_kernel=False, io_bytes=12288, **times),
        8: Process("kworker/0:1", 1, 5, is_kernel=True, io_bytes=0, **times),
    }


def test_this_process_is_read_from_the_kernel() -> None:
    own = read_processes()[os.getpid()]
    assert (own.parent, own.session, own.is_kernel) == (os.getppid(), os.getsid(0), False)
    observation = start(None, None)
    observation.halt()
    first, second = observation.stop(), observation.stop()
    assert first == second  # later use does not count
    (row,) = first
    assert all(float(row[name] or 0.0) >= 0 for name in row if name != "largest")


def row(cpu: float = 0.0, io: float = 0.0, steal: float = 0.0, elapsed_s: float = OBSERVED_S_MIN) -> Any:
    return {
        "elapsed_s": elapsed_s,
        "cpu_share": cpu,
        "io_bytes_per_s": io,
        "steal_share": steal,
        "largest": "cc1",
    }


@pytest.mark.parametrize(
    ("rows", "exceeding"),
    [
        ([row(CPU_SHARE_MAX, IO_BYTES_PER_S_MAX, STEAL_SHARE_MAX)], []),
        ([row(), row(cpu=0.06)], ["the CPU time of other programs"]),
        ([row(io=2.0 * IO_BYTES_PER_S_MAX), row(steal=0.06)], ["the I/O of other programs", "steal"]),
        ([row(cpu=0.5), row(cpu=0.5, elapsed_s=OBSERVED_S_MIN / 2)], []),
    ],
)
def test_a_block_is_disturbed_if_a_covariate_of_any_of_its_trials_exceeds_its_limit(
    rows: Sequence[Any], exceeding: Sequence[str]
) -> None:
    assert [excess.what for excess in excesses(rows)] == exceeding


@pytest.mark.parametrize(
    ("runs", "disturbed", "allowed"),
    [
        ([1], 1, True),
        ([2], 1, False),  # one repetition in the first five blocks
        ([1, 1, 1, 2, 1], 2, False),
        ([1, 1, 1, 2, 1, 1], 2, True),
        ([1, 1, 1, 1, 1, 2], 1, True),
        ([1] * 20 + [3], 1, False),  # two repetitions of a block
        ([1] * 20, 10, True),
        ([1] * 20, 11, False),  # a permanent disturbance
        ([1, 1], 2, False),
    ],
)
def test_repetitions_are_limited_by_block_and_study_and_on_a_busy_machine(
    runs: Sequence[int], disturbed: int, allowed: bool
) -> None:
    assert may_repeat(dict(enumerate(runs)), len(runs) - 1, disturbed) is allowed


class Measured:
    """A study whose blocks take no time. ``rows``: the covariates of each run of a block, then quiet ones."""

    def __init__(self, path: Path, rows: Sequence[Any], **plan: object) -> None:
        wanted = Synthetic(blocks=0)
        described = study_of(wanted)
        plan = {"blocks_max": 6, "budget_s": 1e6, **plan}
        self.study = described.plan.model_copy(update=plan)
        self.path, self.rows, self.warned = path, list(rows), list[str]()
        self.status = TrialStatus.OK
        self.requested = False
        self._record = replace(described, plan=self.study), arms_of(wanted)

    @contextmanager
    def lab(self) -> Iterator[Lab]:
        exists = self.path.exists()
        with Writer.resume(self.path) if exists else Writer.create(self.path, *self._record) as writer:
            yield Lab(self.study, [], writer, self._watch, self)

    def _watch(self, event: object) -> None:
        if isinstance(event, Warned):
            self.warned.append(event.text)

    def run_block(self, lab: Lab, block: PlannedBlock) -> BlockStatus:
        lab.writer.begin_block(Block(block.index, block.seed, block.order, 1.0))
        found = self.rows.pop(0) if self.rows else row()
        for arm in block.order:
            trial = lab.writer.begin_trial(block.index, arm, 1.0)
            reading = StoredReading("programs", Moment.END, 1.0, 0.01, [found])
            lab.writer.finish_trial(trial, TrialOutcome(self.status, 2.0, readings=[reading]))
        lab.writer.finish_block(block.index, BlockStatus.DONE, 2.0)
        return BlockStatus.DONE

    def run(self, monkeypatch: pytest.MonkeyPatch, first: int = 0) -> dict[int, int]:
        """Run the study, and return the number of runs of each block."""
        monkeypatch.setattr(study_runner, "run_block", self.run_block)
        undecided = SimpleNamespace(is_decided=False, extends_warm_up=False, is_lost=False, comparisons=())
        with self.lab() as lab:
            run_study([lab], lambda *_: undecided, [first])
        with Evidence(self.path) as evidence:
            return {trial.block: trial.attempt for trial in evidence.trials()}


BUSY, STOLEN = row(cpu=0.31), row(steal=0.2)


def test_a_disturbed_block_is_repeated_and_both_runs_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Measured(tmp_path / "e", [row(), BUSY, row(), row(), row(), row(), BUSY, BUSY])
    assert study.run(monkeypatch) == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 2}
    assert [text[:20] for text in study.warned] == ["block 2 is repeated:", "block 6 is repeated:"]
    assert "31.0%, mostly cc1 (limit 5% of all cores)" in study.warned[0]
    report = read_report(study.path)
    shown = {caveat.code: caveat.sentence for caveat in report.caveats}
    assert "Repeated blocks: 2 and 6." in shown["blocks-repeated"]
    assert "that count: 6." in shown["blocks-disturbed"]


def test_the_repetitions_before_a_resume_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Measured(tmp_path / "e", [BUSY], blocks_max=2)
    assert study.run(monkeypatch) == {0: 2, 1: 1}
    study.study = study.study.model_copy(update={"blocks_max": 4})
    study.rows = [STOLEN, row()]
    assert study.run(monkeypatch, first=2) == {0: 2, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    "plan",
    [{"schedule": Schedule.BLOCKS}, {"probes": ("host",)}, {"is_dsn": True}, {"budget_s": 0.0}],
    ids=["one arm after the other", "without the probe", "running server", "no time"],
)
def test_no_block_is_repeated_without_covariates_or_time(plan: dict[str, object], tmp_path: Path) -> None:
    if "is_dsn" in plan:
        plan = {"arms": tuple(ArmSpec(name=name, server=name, is_dsn=True) for name in ("17", "18"))}
    assert not decided(Measured(tmp_path / "e", [BUSY], **plan))


@pytest.mark.parametrize("status", [TrialStatus.FAILED, TrialStatus.EXCLUDED])
def test_a_failure_is_never_repeated_away(status: TrialStatus, tmp_path: Path) -> None:
    study = Measured(tmp_path / "e", [BUSY])
    study.status = status
    assert not decided(study)


def test_neither_an_interrupt_nor_load_generators_on_nodes_allow_a_repetition(tmp_path: Path) -> None:
    study = Measured(tmp_path / "e", [BUSY])
    assert not decided(study, session=SimpleNamespace())
    study = Measured(tmp_path / "f", [BUSY])
    study.requested = True
    assert not decided(study)
    study.requested = False
    with study.lab() as lab:
        assert repeats(lab, 0, Budget(study.study.budget_s, 0.0))


def decided(study: Measured, **changes: object) -> bool:
    """Return the decision after the first block."""
    with study.lab() as lab:
        study.run_block(lab, PlannedBlock(0, 1, (0, 1), ()))
        return repeats(replace(lab, **changes), 0, Budget(study.study.budget_s, 0.0))


# The others are long: they have fewer disturbed blocks, or less bias.
EXTREME = {
    "1 block in 10, the second arm loses more",
    "3 blocks in 10",
    "always",
    "steal that the arms cause",
}


@pytest.mark.parametrize(
    "disturbance",
    [
        pytest.param(of, id=of.name, marks=() if of.name in EXTREME else pytest.mark.long)
        for of in DISTURBANCES
    ],
)
def test_repetitions_keep_false_alarms_and_coverage(disturbance: Any) -> None:
    """The true effect is that of undisturbed blocks (figures: ``python -m bench disturbed-blocks``)."""
    found = outcome(simulate(disturbance, 300, repeated=True))
    assert found.alarms <= 0.05
    assert found.coverage >= 0.95
    if disturbance.share == 0.1 and disturbance.runs == 1:
        same, of_two, _ = outcome(simulate(disturbance, 300, repeated=False)).right
        assert found.right[0] > same + 0.1
        assert found.right[1] >= of_two
