"""One block: restore and start the arms, drive them, check their work, and write the results file.

In the schedule slices all servers run at the same time and the driver alternates between them. In a duet it
drives both at once. In the other schedules the arms follow one after the other.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import psycopg

from pgdyno.caveats import Caveat
from pgdyno.errors import DatasetError, EngineError, FleetError, ServerError, WorkloadError, in_one_line
from pgdyno.measure.arms import BuildArm
from pgdyno.measure.drive import Seen, drive_trials, order_checkpoint
from pgdyno.measure.engine_runs import EngineRun
from pgdyno.measure.progress import BlockEnded, PreparationStep, Warned
from pgdyno.measure.telemetry_collection import TelemetryCollection
from pgdyno.measure.trial import (
    Lab,
    RunningTrial,
    because_of,
    begin_trial,
    complete_start,
    failed,
    interrupted,
    judge_trial,
    restore_data,
    start_server,
    trial_caveats,
    trial_outcome,
)
from pgdyno.results import records
from pgdyno.results.records import ENGINE, BlockStatus, DriverFacts, TrialOutcome, TrialStatus, with_log_error
from pgdyno.server.processes import require_no_crash
from pgdyno.study.plan import Study
from pgdyno.study.schedule import PlannedBlock
from pgdyno.workloads.server_log import LOG_CHECK, first_unexpected_error

FAULTS = (ServerError, EngineError, DatasetError, psycopg.Error)
"""Errors that fail a trial, while the study continues. A full disk ends the study."""


def run_block(lab: Lab, block: PlannedBlock) -> BlockStatus:
    """Run one block. Faults of servers and engine set the status of trials and are not raised.

    Raises Interrupted only between trials, after marking the block, and WorkloadError in the first block.
    """
    _begin_block(lab, block)
    groups = [block.order] if lab.study.is_together else [(arm,) for arm in block.order]
    rates: dict[int, float | None] = {}
    status = BlockStatus.DONE
    for group in groups:
        if lab.interruption.requested:
            status = BlockStatus.INTERRUPTED
            break
        try:
            status = max(status, run_group(lab, block, group, rates), key=_badness)
        except WorkloadError:
            _finish_block(lab, block, BlockStatus.FAILED, rates)
            raise
    _finish_block(lab, block, status, rates)
    return status


def run_in_sequence(lab: Lab, blocks: Sequence[PlannedBlock]) -> BlockStatus:
    """Run all trials of the first arm, then those of the next: the blocks overlap in time."""
    rates: dict[int, dict[int, float | None]] = {block.index: {} for block in blocks}
    for (index, arm), rate in lab.kept.items():
        rates[index][arm] = rate
    status = {block.index: BlockStatus.DONE for block in blocks}
    status |= dict.fromkeys(lab.failed, BlockStatus.FAILED)
    for block in blocks:
        _begin_block(lab, block)
    for arm, block in itertools.product(range(len(lab.arms)), blocks):
        if (block.index, arm) in lab.kept:
            continue
        if lab.interruption.requested:
            status[block.index] = BlockStatus.INTERRUPTED
        elif lab.study.on_failure == "continue" or BlockStatus.FAILED not in status.values():
            try:
                became = run_group(lab, block, (arm,), rates[block.index])
            except WorkloadError:
                for begun in blocks:
                    _finish_block(lab, begun, BlockStatus.FAILED, rates[begun.index])
                raise
            status[block.index] = max(status[block.index], became, key=_badness)
    for block in blocks:
        _finish_block(lab, block, status[block.index], rates[block.index])
    return max(status.values(), key=_badness)


def _begin_block(lab: Lab, block: PlannedBlock) -> None:
    lab.writer.begin_block(records.Block(block.index, block.seed, block.order, time.time(), case=lab.case))


def _finish_block(
    lab: Lab, block: PlannedBlock, status: BlockStatus, rates: Mapping[int, float | None]
) -> None:
    lab.writer.finish_block(block.index, status, time.time(), lab.case)
    lab.watch(BlockEnded(block.index, tuple(rates.get(arm.index) for arm in lab.arms)))


def _badness(status: BlockStatus) -> int:
    return [BlockStatus.RUNNING, BlockStatus.DONE, BlockStatus.FAILED, BlockStatus.INTERRUPTED].index(status)


def rate_of_trial(
    study: Study, arm: int, ok: Counter[str], counted_s: float, driver: DriverFacts
) -> float | None:
    """Return the rate that the progress shows: the capacity, or the throughput in the unit of the workload.

    None if a search did not find the capacity.
    """
    if study.searches_capacity:
        return None if driver.capacity is None else driver.capacity.capacity_per_s
    return study.driving(arm).workload.pace.of(ok, counted_s)


def rate_unit(study: Study) -> str:
    """Return the unit of ``rate_of_trial``."""
    if study.searches_clients:
        return "clients capacity"
    return "tx/s capacity" if study.searches_capacity else study.workload.pace.unit


def run_group(
    lab: Lab, block: PlannedBlock, group: Sequence[int], rates: dict[int, float | None]
) -> BlockStatus:
    """Run the trials of arms that run at the same time."""
    trials = {index: begin_trial(lab, block.index, lab.arms[index]) for index in group}
    try:
        outcomes = _carry_out(lab, block, trials)
    except (FaultOf, FleetError, *FAULTS) as error:
        outcomes = {index: _after(error, trial) for index, trial in trials.items()}
    finally:
        for trial in trials.values():
            if trial.crash_detector is not None:
                trial.crash_detector.close()
            trial.arm.stop()
    if lab.interruption.requested:
        # An interrupt cuts waits short: failures after it are not faults of a server.
        outcomes = {
            index: interrupted() if outcome.status is TrialStatus.FAILED else outcome
            for index, outcome in outcomes.items()
        }
    for index, trial in trials.items():
        outcome = with_log_error_of_server(outcomes[index])
        lab.writer.finish_trial(trial.id, outcome)
        counts = outcome.status is TrialStatus.OK and trial.counted_s > 0
        rates[index] = (
            rate_of_trial(lab.study, index, trial.ok, trial.counted_s, outcome.driver) if counts else None
        )
        is_void = outcome.status is TrialStatus.INTERRUPTED and not lab.interruption.requested
        if is_void or outcome.status in (TrialStatus.FAILED, TrialStatus.EXCLUDED):
            why = with_log_error(outcome.reason, outcome.log_error)
            lab.watch(Warned(f"block {block.index + 1}, {trial.arm.name}: {outcome.status}: {why}"))
    if block.index == 0:
        for index, trial in trials.items():
            if outcomes[index].status in (TrialStatus.OK, TrialStatus.EXCLUDED):
                require_working_kinds(trial.arm.name, trial.ok, outcomes[index].failures)
    found = {outcome.status for outcome in outcomes.values()}
    if TrialStatus.INTERRUPTED in found:
        return BlockStatus.INTERRUPTED
    return BlockStatus.FAILED if TrialStatus.FAILED in found else BlockStatus.DONE


TEMPORARY = ("40", "53", "57", "55P03", "connection", "abandoned")
"""SQLSTATEs, or their first digits, that another block need not have: conflicts, lack of resources,
shutdowns, timeouts, lost connections."""

FAILURES_MIN = 10
"""Minimum number of failures of a kind without a success, so that bad luck does not end a study."""


def require_working_kinds(arm: str, ok: Mapping[str, int], failures: Sequence[records.Failure]) -> None:
    """Raise WorkloadError for a kind of transaction that never succeeded. ``ok``: successes by kind."""
    for failure in failures:
        is_rare = failure.n < FAILURES_MIN
        if not ok.get(failure.kind) and not is_rare and not failure.sqlstate.startswith(TEMPORARY):
            raise WorkloadError(
                f"every transaction of {failure.kind} failed on {arm} (SQLSTATE {failure.sqlstate}: "
                f"{failure.message}); correct the workload or the settings of the arm, then start a new study"
            )


def with_log_error_of_server(outcome: TrialOutcome) -> TrialOutcome:
    """Add the error in the server log, if it is the reason why the trial does not count."""
    by_log = any(check.name == LOG_CHECK and not check.passed for check in outcome.checks)
    if outcome.status is TrialStatus.FAILED or (outcome.status is TrialStatus.EXCLUDED and by_log):
        words = first_unexpected_error(outcome.server_log)
        if words:
            return replace(outcome, log_error=words)
    return outcome


def _carry_out(lab: Lab, block: PlannedBlock, trials: Mapping[int, RunningTrial]) -> dict[int, TrialOutcome]:
    names = " and ".join(trial.arm.name for trial in trials.values())
    lab.watch(PreparationStep(f"restoring {names}"))
    _in_parallel([(trial, partial(restore_data, trial, block.index)) for trial in trials.values()])
    if lab.interruption.requested:
        return {index: interrupted() for index in trials}
    lab.watch(PreparationStep(f"starting {names}"))
    _in_parallel([(trial, partial(start_server, trial, lab.study)) for trial in trials.values()])
    for trial in trials.values():
        if lab.interruption.requested:
            return {index: interrupted() for index in trials}
        with _attributed_to(trial.arm.name):
            complete_start(lab, trial)
    if lab.interruption.requested:
        return {index: interrupted() for index in trials}
    seen: Seen = {}
    with TelemetryCollection.open(lab, list(trials.values())) as telemetry:
        run = drive_trials(lab, block, trials, seen, telemetry)
        lab.watch(PreparationStep(f"checking {names}"))
        judged = _in_parallel(
            [(trial, partial(_outcome, trial, run, target)) for target, trial in enumerate(trials.values())]
        )
        outcomes = {}
        for target, ((index, trial), outcome) in enumerate(zip(trials.items(), judged, strict=True)):
            with _attributed_to(trial.arm.name):
                found: Iterable[Caveat] = trial_caveats(
                    lab.study, trial.id, trial.arm, outcome.driver, target, seen, trial.slices
                )
                if lab.session is not None:
                    found = [*lab.session.caveats(trial.id, trial.arm.name, outcome.driver), *found]
                for caveat in found:
                    lab.writer.add_caveat(caveat, lab.case)
            outcomes[index] = _with_later_steps(lab, block.index, trial, outcome, telemetry)
    return outcomes


Result = TypeVar("Result")


def _in_parallel(steps: Sequence[tuple[RunningTrial, Callable[[], Result]]]) -> list[Result]:
    """Return the results of the steps of several trials, each in its own thread.

    A fault is attributed to its arm after all have ended. Arms on one server take turns.
    """
    shared = any(trial.arm.shares_server for trial, _ in steps)
    results = []
    with ThreadPoolExecutor(1 if shared else len(steps), "pgdyno-arm") as pool:
        futures = [(trial, pool.submit(step)) for trial, step in steps]
    for trial, future in futures:
        with _attributed_to(trial.arm.name):
            results.append(future.result())
    return results


def _outcome(trial: RunningTrial, run: EngineRun, target: int) -> TrialOutcome:
    """Return the outcome of a trial after its checks."""
    redaction = trial.arm.redaction if isinstance(trial.arm, BuildArm) else None
    outcome = trial_outcome(run, target, trial.arm.name, trial.restore_s, trial.start_s, redaction=redaction)
    if outcome.status is TrialStatus.OK:
        return _judged(trial, outcome, run, target)
    # The server log is most important for a trial without results.
    return replace(outcome, server_log=trial.arm.log() or "")


class FaultOf(Exception):
    """A fault of a known arm."""

    def __init__(self, arm: str, cause: Exception) -> None:
        super().__init__(in_one_line(cause))
        self.arm = arm


@contextlib.contextmanager
def _attributed_to(arm: str) -> Iterator[None]:
    """Attribute faults in the block to that arm, and not to the others."""
    try:
        yield
    except FAULTS as error:
        raise FaultOf(arm, error) from error


def _after(error: Exception, trial: RunningTrial) -> TrialOutcome:
    """Return the outcome of a trial after an error in the block, of its own arm or of another."""
    if isinstance(error, FaultOf):
        outcome = failed(trial, because_of("block", error.arm, trial.arm.name) + str(error))
        culprit = None if error.arm == trial.arm.name else error.arm
        return replace(outcome, driver=DriverFacts(stopped_by=culprit))
    if isinstance(error, FleetError):
        return interrupted(in_one_line(error))
    ended_by = DriverFacts(stopped_by=ENGINE if isinstance(error, EngineError) else None)
    return replace(failed(trial, in_one_line(error)), driver=ended_by)


def _judged(trial: RunningTrial, outcome: TrialOutcome, run: EngineRun, target: int) -> TrialOutcome:
    """Check a trial. A server that is lost after the last slice or during the checks fails only its own
    trial.
    """
    assert trial.crash_detector is not None
    try:
        require_no_crash(trial.crash_detector)
        return judge_trial(outcome, trial.arm, run, target, trial.checks, trial.log_from)
    except FAULTS as error:
        log = trial.arm.log() or ""
        return replace(outcome, status=TrialStatus.FAILED, reason=in_one_line(error), server_log=log)


def _with_later_steps(
    lab: Lab, block: int, trial: RunningTrial, outcome: TrialOutcome, telemetry: TelemetryCollection
) -> TrialOutcome:
    """Add readings of the probes, and the steps after the measured part: VACUUM, a crash or a checkpoint, a
    restart.
    """
    checkpoint_s = None
    if outcome.status is TrialStatus.OK:
        try:
            if lab.study.vacuum_after:
                lab.watch(PreparationStep(f"vacuuming {trial.arm.name}"))
                telemetry.vacuum_and_read(trial)
            if lab.study.checkpoint_after and (block % 2 or not lab.study.recovery):
                lab.watch(PreparationStep(f"checkpoint and restart of {trial.arm.name}"))
                checkpoint_s = order_checkpoint(trial.arm)
                outcome = replace(outcome, restart_s=trial.arm.restart())
            elif lab.study.recovery:
                lab.watch(PreparationStep(f"crashing and restarting {trial.arm.name}"))
                outcome = replace(outcome, recovery_s=trial.arm.recover(), restart_s=trial.arm.restart())
        except FAULTS as error:
            outcome = replace(outcome, status=TrialStatus.FAILED, reason=in_one_line(error))
    return replace(
        outcome,
        driver=replace(
            outcome.driver,
            capacity=trial.search,
            warm_up=trial.warmed,
            ordered_checkpoint_s=trial.ordered_checkpoint_s,
            last_checkpoint_s=checkpoint_s,
        ),
        ended_unix_s=time.time(),
        readings=telemetry.readings_of(trial),
        server_cpu_s=telemetry.server_cpu_s(trial),
        probe_cpu_s=telemetry.cpu_s(trial),
    )
