"""One block: restore and start the arms, drive them, check their work, and put it all into the evidence.

In the slices schedule all arms are up together and the driver takes them in turn; in the blocks schedule the
same is done for one arm after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import psycopg

from pgdyno.caveats import Caveat, Code
from pgdyno.drive.run import Run, run_drive
from pgdyno.drive.specification import drive_specification
from pgdyno.engine import Event
from pgdyno.errors import DatasetError, EngineError, ServerError
from pgdyno.evidence import records
from pgdyno.evidence.events import interval_from, slice_from
from pgdyno.evidence.records import BlockStatus, Outcome, TrialStatus
from pgdyno.evidence.writer import Writer
from pgdyno.interruption import Interruption
from pgdyno.lab.arm import Connection, LabArm
from pgdyno.lab.doubts import Surroundings, doubts_of_trial, read_surroundings
from pgdyno.lab.judge import judge, outcome_of
from pgdyno.lab.progress import BlockEnded, Doubt, Running, Step, Watch
from pgdyno.probe.cpu import server_cpu_s
from pgdyno.server.settings.safety import safety
from pgdyno.server.witness import keep_idle, require_undisturbed
from pgdyno.study.plan import Block, Slice, Study
from pgdyno.workload.choose import workload_of
from pgdyno.workload.interface import TrialChecks

FAULTS = (ServerError, EngineError, DatasetError, psycopg.Error)
"""What makes a trial fail and leaves the study going. A full disk is not among them: it ends the study."""


@dataclass(frozen=True)
class Lab:
    """What every step of a study needs."""

    study: Study
    arms: Sequence[LabArm]
    writer: Writer
    watch: Watch
    interruption: Interruption


@dataclass
class Trial:
    """A trial while it runs."""

    arm: LabArm
    id: int
    checks: TrialChecks
    restore_s: float | None = None
    start_s: float | None = None
    witness: Connection | None = None
    counted_s: float = 0.0
    ok: Counter[str] = field(default_factory=Counter)  # by kind, in the counted time
    slices: list[records.Slice] = field(default_factory=list)


def run_block(lab: Lab, block: Block) -> BlockStatus:
    """Runs one block. Faults of servers and engine end up in the trials' status, not in exceptions.

    Raises Interrupted only between trials, with the block marked so.
    """
    lab.writer.begin_block(records.Block(block.index, block.seed, block.order, time.time()))
    groups = [block.order] if lab.study.schedule == "slices" else [(arm,) for arm in block.order]
    rates: dict[int, float | None] = {}
    status = BlockStatus.DONE
    for group in groups:
        if lab.interruption.requested:
            status = BlockStatus.INTERRUPTED
            break
        status = max(status, run_group(lab, block, group, rates), key=_badness)
    lab.writer.finish_block(block.index, status, time.time())
    lab.watch(BlockEnded(block.index, tuple(rates.get(arm.index) for arm in lab.arms)))
    return status


def _badness(status: BlockStatus) -> int:
    return [BlockStatus.RUNNING, BlockStatus.DONE, BlockStatus.FAILED, BlockStatus.INTERRUPTED].index(status)


def run_group(lab: Lab, block: Block, group: Sequence[int], rates: dict[int, float | None]) -> BlockStatus:
    """Runs the trials of arms that are up together."""
    trials = {index: _begin(lab, block, lab.arms[index]) for index in group}
    try:
        outcomes = _carry_out(lab, block, trials)
    except FAULTS as error:
        outcomes = {index: _failed(trial, _in_one_line(error)) for index, trial in trials.items()}
    finally:
        for trial in trials.values():
            if trial.witness is not None:
                trial.witness.close()
            trial.arm.stop()
    for index, trial in trials.items():
        outcome = outcomes[index]
        lab.writer.finish_trial(trial.id, outcome)
        counts = outcome.status is TrialStatus.OK and trial.counted_s > 0
        rates[index] = lab.study.workload.PACE.of(trial.ok, trial.counted_s) if counts else None
        if outcome.status in (TrialStatus.FAILED, TrialStatus.EXCLUDED):
            lab.watch(Doubt(f"block {block.index + 1}, {trial.arm.name}: {outcome.status}: {outcome.reason}"))
    found = {outcome.status for outcome in outcomes.values()}
    if TrialStatus.INTERRUPTED in found:
        return BlockStatus.INTERRUPTED
    return BlockStatus.FAILED if TrialStatus.FAILED in found else BlockStatus.DONE


def _begin(lab: Lab, block: Block, arm: LabArm) -> Trial:
    checks = workload_of(lab.study.workload).checks(lab.study.clients, restored=arm.is_restored())
    return Trial(arm, lab.writer.begin_trial(block.index, arm.index, time.time()), checks)


def _carry_out(lab: Lab, block: Block, trials: Mapping[int, Trial]) -> dict[int, Outcome]:
    for trial in trials.values():
        _bring_up(lab, trial)
        if lab.interruption.requested:
            return {index: _interrupted() for index in trials}
    seen: dict[str, Surroundings] = {}
    run = _drive(lab, block, trials, seen)
    outcomes = {}
    for target, (index, trial) in enumerate(trials.items()):
        lab.watch(Step(f"check {trial.arm.name}"))
        outcome = outcome_of(run, target, trial.arm.name, trial.restore_s, trial.start_s)
        if outcome.status is TrialStatus.OK:
            outcome = _judged(trial, outcome, run, target)
        else:
            # What the server said of its end is wanted most where nothing is left to judge.
            outcome = replace(outcome, server_log=trial.arm.log() or "")
        for doubt in doubts_of_trial(lab.study, trial.id, trial.arm, run, target, seen, trial.slices):
            lab.writer.add_caveat(doubt)
        outcomes[index] = outcome
    return outcomes


def _judged(trial: Trial, outcome: Outcome, run: Run, target: int) -> Outcome:
    """A server that was lost after the last slice, or while its work is checked, fails its own trial, and no
    other.
    """
    assert trial.witness is not None
    try:
        require_undisturbed(trial.witness)
        return judge(outcome, trial.arm, run, target, trial.checks)
    except FAULTS as error:
        log = trial.arm.log() or ""
        return replace(outcome, status=TrialStatus.FAILED, reason=_in_one_line(error), server_log=log)


def _bring_up(lab: Lab, trial: Trial) -> None:
    lab.watch(Step(f"restore {trial.arm.name}"))
    begun_s = time.monotonic()
    trial.arm.restore()
    trial.restore_s = time.monotonic() - begun_s
    lab.watch(Step(f"start {trial.arm.name}"))
    begun_s = time.monotonic()
    trial.arm.start()
    trial.start_s = time.monotonic() - begun_s
    lab.writer.describe_arm(trial.arm.index, safety=_badges(trial.arm))
    if dropped := trial.arm.dropped():
        names = {"arm": trial.arm.name, "settings": ", ".join(sorted(dropped))}
        lab.writer.add_caveat(Caveat(Code.SETTINGS_DROPPED, names))
    trial.witness = keep_idle(trial.arm.connect())
    trial.checks.begin(trial.witness)


def _badges(arm: LabArm) -> list[records.Badge]:
    found = safety(arm.effective())
    return [records.Badge(badge.name, records.Kept(badge.kept), badge.reason) for badge in found.badges]


def _drive(lab: Lab, block: Block, trials: Mapping[int, Trial], seen: dict[str, Surroundings]) -> Run:
    arms = list(trials)
    targets = [(trials[index].arm.name, trials[index].arm.conninfo()) for index in arms]
    slices = [
        Slice(arms.index(s.arm), s.role, s.duration_s, s.round) for s in block.slices if s.arm in trials
    ]
    specification = drive_specification(lab.study, block.seed, slices, targets)

    def on_event(event: Event) -> None:
        if event["event"] == "slice":
            _note_slice(lab, trials[arms[event["target"]]], event)
        elif event["event"] == "interval":
            _note_interval(lab, trials[arms[event["target"]]], event)

    def read() -> list[float | None]:
        # Before the measured part the servers' CPU is read last, after it first: our own question of
        # autovacuum does not count.
        ours = [trials[index].arm for index in arms]
        if not seen:
            seen["measure"] = read_surroundings(ours)
            return [_server_cpu_s(arm) for arm in ours]
        used = [_server_cpu_s(arm) for arm in ours]
        seen["end"] = read_surroundings(ours)
        return used

    lab.watch(Step("connect"))
    return run_drive(specification, lab.interruption, on_event, read)


def _note_slice(lab: Lab, trial: Trial, event: Event) -> None:
    piece = slice_from(event)
    lab.writer.add_slice(trial.id, piece)
    trial.slices.append(piece)
    if piece.role is records.Role.MEASURE:
        trial.counted_s += piece.counted_s
        trial.ok.update({kind: counts.ok for kind, counts in piece.kinds.items()})


def _note_interval(lab: Lab, trial: Trial, event: Event) -> None:
    interval = interval_from(event)
    lab.writer.add_interval(trial.id, interval)
    n = sum(counts.executed for counts in interval.kinds.values())
    p99_ns = interval.latency_p99_ns
    lab.watch(
        Running(
            arm=trial.arm.index,
            role=event["role"],
            transactions_per_s=n / max(interval.to_s - interval.from_s, 1e-9),
            latency_p99_s=None if p99_ns is None else p99_ns / 1e9,
        )
    )


def _server_cpu_s(arm: LabArm) -> float | None:
    pid = arm.postmaster_pid()
    if pid is None:
        return None
    try:
        return server_cpu_s(pid)
    except ProcessLookupError:
        # It died; the driver finds that out as well and says so.
        return None


def _failed(trial: Trial, reason: str) -> Outcome:
    return Outcome(
        TrialStatus.FAILED,
        time.time(),
        reason=reason,
        restore_s=trial.restore_s,
        start_s=trial.start_s,
        server_log=trial.arm.log() or "",
    )


def _in_one_line(error: Exception) -> str:
    """A driver's message has several lines, and says where in a statement the fault is."""
    return " / ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _interrupted() -> Outcome:
    return Outcome(TrialStatus.INTERRUPTED, time.time(), reason="stopped by the user")
