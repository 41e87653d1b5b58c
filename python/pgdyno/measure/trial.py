"""A trial: its outcome, and its execution.

- Outcome of a trial from the result of the engine and the checks of the workload.
- A trial during a run: restored data, state of the caches, a started server, caveats.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import psycopg

from pgdyno.caveats import Caveat
from pgdyno.errors import ServerError
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import Connection, LabArm, Redaction, brief_session
from pgdyno.measure.engine_runs import EngineRun, StartEngine, failures_from, histograms_from, start_local
from pgdyno.measure.host_counters import MachineCpu, machine_cpu
from pgdyno.measure.progress import PreparationStep, Watch
from pgdyno.measure.server_probes import autovacuum_runs
from pgdyno.measure.warm_up import with_longer_warm_up
from pgdyno.results import records
from pgdyno.results.records import (
    ENGINE,
    CapacitySearch,
    DriverFacts,
    Slice,
    TrialOutcome,
    TrialStatus,
    WarmUpEnd,
    facts_from,
)
from pgdyno.results.writer import Writer
from pgdyno.server.builds import NEWEST_MAJOR, Version
from pgdyno.server.engine import NODE_LOST, Event
from pgdyno.server.processes import keep_idle
from pgdyno.server.safety import safety
from pgdyno.server.snapshots import prewarm
from pgdyno.study.plan import Driving, Study
from pgdyno.study.schedule import Role
from pgdyno.units import given_percent, percent_text
from pgdyno.workloads.workload import INVARIANT, TrialChecks, workload_of

# ----------------------------------------------------------------------
# Outcome of a trial from the result of the engine and the checks of the workload.
# ----------------------------------------------------------------------


def trial_outcome(
    run: EngineRun,
    target: int,
    arm: str,
    restore_s: float | None,
    start_s: float | None,
    *,
    redaction: Redaction | None = None,
) -> TrialOutcome:
    """Return the outcome of one target before the checks. For a run that belongs to the capacity search, it
    has only status and reason. ``redaction``: of error messages, if the rows are those of the user.
    """
    status, reason = status_of(run, target, arm)
    outcome = TrialOutcome(
        status, time.time(), reason=f"{run.before}{reason}", restore_s=restore_s, start_s=start_s
    )
    culprit = _culprit(run)
    if culprit is None and run.failure is not None:
        culprit = ENGINE  # a failure of a server names its arm
    if culprit != arm:
        outcome = replace(outcome, driver=DriverFacts(stopped_by=culprit))
    if run.before:
        return outcome
    outcome = replace(outcome, epoch_unix_s=run.epoch_unix_s, transactions=run.transactions(target))
    if run.result is None:
        return outcome
    found = run.result.targets[target]
    round_trip_ns = next((e["round_trip_ns"] for e in run.connected if e["target"] == target), None)
    driver = facts_from(DriverFacts, {**run.result.driver, "round_trip_ns": round_trip_ns})
    return replace(
        outcome,
        counters=found.counters,
        driver_memory_bytes=driver.memory_peak_bytes,
        driver=replace(driver, stopped_by=outcome.driver.stopped_by),
        tally=found.tally,
        failures=failures_from(found, _errors(run, target, redaction)),
        histograms=histograms_from(found),
    )


def _errors(run: EngineRun, target: int, redaction: Redaction | None) -> list[Event]:
    ours = [error for error in run.errors if error["target"] == target]
    if redaction is None:
        return ours
    return [
        {**error, "message": redaction.message(error["message"], error["sqlstate"] or "")} for error in ours
    ]


def status_of(run: EngineRun, target: int, arm: str) -> tuple[TrialStatus, str]:
    """Return the status of a run for one target according to the engine, and the reason of a failure."""
    because = because_of("driver", _culprit(run), arm)
    if run.failure is not None and run.failure.stage == NODE_LOST:
        return TrialStatus.INTERRUPTED, run.failure.message
    if run.failure is not None:
        return TrialStatus.FAILED, f"{because}{run.failure.stage}: {run.failure.message}"
    if run.result is not None and run.result.stopped == "server-lost":
        return TrialStatus.FAILED, f"{because}the server was lost in the middle of the trial"
    if not run.complete:
        return TrialStatus.INTERRUPTED, "stopped before its last slice"
    assert run.result is not None
    if lost := run.result.targets[target].connections_lost:
        # A server that crashed and recovered between two slices works again, but its caches are cold.
        return TrialStatus.FAILED, f"connections to the server were lost: {lost}"
    return TrialStatus.OK, ""


def _culprit(run: EngineRun) -> str | None:
    """Return the arm that caused an early end of the run, if one did."""
    found: str | None = None
    if run.failure is not None:
        found = run.failure.target
    elif run.result is not None and run.result.stopped == "server-lost":
        found = run.result.lost
    return found


def because_of(what: str, culprit: str | None, arm: str) -> str:
    """Return the prefix of the reason of a trial that another arm has ended."""
    return "" if culprit in (None, arm) else f"the {what} stopped because of {culprit}: "


def judge_trial(
    outcome: TrialOutcome,
    arm: LabArm,
    run: EngineRun,
    target: int,
    trial_checks: TrialChecks,
    log_from: int = 0,
) -> TrialOutcome:
    """Check the database, the driver's random numbers and the server log from ``log_from`` on. Earlier
    entries belong to other runs. A failed check excludes the trial.
    """
    assert run.result is not None
    log = arm.log()
    ours = None if log is None else log[log_from:]
    checks = trial_checks.end(arm.connect, run.result.targets[target], ours)
    failed = [
        f"{check.name} {check.detail}" if check.name.startswith(INVARIANT) else check.name
        for check in checks
        if not check.passed
    ]
    return replace(
        outcome,
        status=TrialStatus.EXCLUDED if failed else outcome.status,
        reason=f"failed checks: {', '.join(failed)}" if failed else outcome.reason,
        ended_unix_s=time.time(),
        checks=checks,
        settings=dict(arm.effective()),
        server_log=arm.log() or "",
    )


# ----------------------------------------------------------------------
# A trial during a run: restored data, state of the caches, a started server, caveats.
#
# ``analysis.comparison.comparison_caveats`` finds the caveats that follow from the results file.
# ----------------------------------------------------------------------

DRIVER_SHARE_MAX = 0.25
"""Maximum driver CPU as a share of all cores. Clients of other tools take 14% to 30% for this workload; this
driver takes far less."""

DRIVER_LATE_NS_MAX = 10_000_000
"""Maximum lateness at the 99th percentile. Beyond it the driver adds more latency than the fsync of a
commit."""

STEAL_SHARE_MAX = 0.05


@dataclass(frozen=True)
class BarrierReadings:
    """Readings at a barrier in addition to the servers' CPU time. ``autovacuums`` per arm of the run, in its
    order; None if the server does not answer. ``logged``: characters of their logs.
    """

    cpu: MachineCpu
    autovacuums: Sequence[int | None]
    logged: Sequence[int]


def untested_version(server: str, version: Version) -> Iterator[Caveat]:
    """Yield the caveat on a server that is newer than every version that pgdyno is tested with."""
    if version.is_untested:
        yield Caveat.of("untested-version", arm=server, version=str(version), newest=NEWEST_MAJOR)


def read_surroundings(arms: Sequence[LabArm]) -> BarrierReadings:
    """Read them now, when no transaction runs."""
    cpu, autovacuums = machine_cpu(), [_autovacuums(arm) for arm in arms]
    return BarrierReadings(cpu, autovacuums, [len(arm.log() or "") for arm in arms])  # a log can be long


def _autovacuums(arm: LabArm) -> int | None:
    try:
        with brief_session(arm) as connection:
            return autovacuum_runs(connection)
    except (ServerError, psycopg.Error):
        # The server ended; the driver detects and reports it.
        return None


def trial_caveats(
    study: Study,
    trial: int,
    arm: LabArm,
    driver: DriverFacts,
    target: int,
    seen: Mapping[str, BarrierReadings],
    slices: Sequence[Slice],
) -> Iterator[Caveat]:
    """Yield the caveats of one trial with these slices. ``seen`` has the readings at the barriers reached."""
    if arm.is_local() and driver.nodes is None:
        cores = study.cpu_partition.size if study.cpu_partition else len(os.sched_getaffinity(0))
        yield from driver_busy(trial, arm, slices, cores)
    if {"measure", "end"} <= seen.keys():
        yield from _steal(trial, arm, seen["measure"].cpu, seen["end"].cpu)
        before, after = (seen[name].autovacuums[target] for name in ("measure", "end"))
        if study.schedule == "slices" and before is not None and after is not None and after > before:
            yield Caveat.of("autovacuum-in-slices", trial, arm=arm.name, n=after - before)
    late_ns = driver.wake_late_ns.p99 if driver.wake_late_ns else None
    if late_ns is not None and late_ns > DRIVER_LATE_NS_MAX:
        late_ms, limit_ms = round(late_ns / 1e6, 1), DRIVER_LATE_NS_MAX // 1_000_000
        yield Caveat.of("driver-late", trial, arm=arm.name, late_ms=late_ms, limit_ms=limit_ms)
    first, last = (seen[name].logged[target] if name in seen else None for name in ("measure", "end"))
    checkpoints = (arm.log() or "")[first:last].count("checkpoint starting")
    if study.schedule == "slices" and checkpoints:
        yield Caveat.of("checkpoint-in-slices", trial, arm=arm.name, n=checkpoints)
    is_probed = "checkpoints" in study.probes  # then the analysis is more precise
    is_unknown = arm.log() is not None and not checkpoints and not is_probed
    if is_unknown and study.driving(arm.index).workload.writes:
        yield Caveat.of("window-without-checkpoint", arm=arm.name)


def driver_busy(trial: int, arm: LabArm, slices: Sequence[Slice], cores: int) -> Iterator[Caveat]:
    """Yield a caveat if the driver used too much CPU in the measured slices, as a share of the arm's
    cores."""
    measured = [piece for piece in slices if piece.role is Role.MEASURE]
    elapsed_s = sum(piece.drained_s - piece.opened_s for piece in measured)
    if elapsed_s <= 0:
        return
    share = sum(piece.driver_cpu_s for piece in measured) / (cores * elapsed_s)
    if share > DRIVER_SHARE_MAX:
        yield Caveat.of("driver-busy", trial, **_share(arm, share, DRIVER_SHARE_MAX))


def _steal(trial: int, arm: LabArm, before: MachineCpu, after: MachineCpu) -> Iterator[Caveat]:
    busy_s = after.busy_s - before.busy_s
    if busy_s <= 0:
        return
    stolen = (after.steal_s - before.steal_s) / busy_s
    if stolen > STEAL_SHARE_MAX:
        yield Caveat.of("steal", trial, **_share(arm, stolen, STEAL_SHARE_MAX))


def _share(arm: LabArm, share: float, limit: float) -> dict[str, str]:
    return {"arm": arm.name, "share": percent_text(share, 1), "limit": given_percent(limit)}


KEPT_SHARE_MAX = 0.05
"""Maximum share of the data in the page cache at a cold start."""


class MeasuredCase(Protocol):
    """Progress of a case of a study."""

    lab: Lab
    next_block: int
    given_up: bool
    decided: bool


def start_again(case: MeasuredCase, changed: Callable[[Study], Study]) -> None:
    """Repeat a case and its A/A blocks from the first block on, with changed plans.

    Rates of their warm-ups so far are those of another load or interval.
    """
    aa = {arm: replace(of, study=changed(of.study)) for arm, of in case.lab.aa.items()}
    case.lab = replace(case.lab, study=changed(case.lab.study), aa=aa, rates={})
    for of in (case.lab, *aa.values()):
        of.writer.repeat_with(of.study, of.case)
    case.next_block = 0


@dataclass(frozen=True)
class Session:
    """Hooks that replace parts of the core while a study is measured.

    ``start_engine``: returns what starts the drives of a block with this seed. ``repeats``: whether to repeat
    a block of a case that was interrupted, given all cases and the name of the block in warnings.
    ``caveats``: those of the drive of a trial, given its number and the name of its arm.
    """

    start_engine: Callable[[int], StartEngine]
    repeats: Callable[[MeasuredCase, Sequence[MeasuredCase], str], bool]
    caveats: Callable[[int, str, DriverFacts], Iterable[Caveat]]


OpenSession = Callable[[Study], AbstractContextManager[Session | None]]
"""Opens the session of a study; None if the feature replaces nothing in it."""

SESSIONS: Hooks[OpenSession] = Hooks("session")


@dataclass(frozen=True)
class Lab:
    """Context of all steps of a case."""

    study: Study
    arms: Sequence[LabArm]
    writer: Writer
    watch: Watch
    interruption: Interruption
    case: int = 0
    name: str = ""  # of the case
    kept: Mapping[tuple[int, int], float | None] = field(default_factory=dict)
    """(block, arm) of trials that need not be repeated, with the rate of those that count."""
    failed: frozenset[int] = frozenset()  # blocks with such a trial that failed
    aa: Mapping[int, Lab] = field(default_factory=dict)  # by arm: its A/A comparison
    rates: dict[int, list[Sequence[float]]] = field(default_factory=dict)
    """By arm, the rates from the start of the warm-up in each block so far, for later warm-ups."""
    measured: dict[int, Sequence[Slice]] = field(default_factory=dict)
    """By arm, the measured slices of the last block."""
    warmed_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """By case and block, the warm-up of the first arm in seconds, if arms run one after the other."""
    warm_up_times: int = 1
    """Maximum of the warm-up as a multiple of the plan's. It grows while an effect changes in the windows."""
    session: Session | None = None

    @property
    def block_study(self) -> Study:
        """The plan of the next block."""
        return with_longer_warm_up(self.study, self.warm_up_times)

    def engine_of(self, seed: int) -> StartEngine:
        """Return what starts the drives of a block with this seed."""
        return start_local if self.session is None else self.session.start_engine(seed)


@dataclass
class RunningTrial:
    """A trial while it runs."""

    arm: LabArm
    id: int
    checks: TrialChecks
    restore_s: float | None = None
    cached_share: float = 0.0  # of the data, in the page cache at a cold start
    start_s: float | None = None
    crash_detector: Connection | None = None
    counted_s: float = 0.0
    ok: Counter[str] = field(default_factory=Counter)  # by kind, in the counted time
    slices: list[records.Slice] = field(default_factory=list)
    log_from: int = 0  # characters of the server log from earlier runs of the driver
    measured_s: float = 0.0  # of the window, so far
    measured_n: int = 0  # transactions in the window, whatever their result
    sqlstate: str = ""  # of the last reported error
    warmed: WarmUpEnd | None = None
    ordered_checkpoint_s: float | None = None  # duration of the forced checkpoint before its window
    search: CapacitySearch | None = None
    driving: Driving | None = None  # the clients at the result of the search


def begin_trial(lab: Lab, block: int, arm: LabArm) -> RunningTrial:
    """Record the start of a trial, before its first step."""
    driving = lab.study.driving(arm.index)
    as_loaded = arm.is_restored() and not driving.workload.age
    checks = workload_of(driving.workload).checks(driving.clients, restored=as_loaded)
    return RunningTrial(arm, lab.writer.begin_trial(block, arm.index, time.time(), lab.case), checks)


def restore_data(trial: RunningTrial, block: int) -> None:
    """Restore the data of a trial. Safe in a thread of its own. Raises the errors of ``LabArm``."""
    begun_s = time.monotonic()
    trial.arm.restore(block)
    trial.restore_s = time.monotonic() - begun_s


def start_server(trial: RunningTrial, study: Study) -> None:
    """Start the server on the restored data. Safe in a thread of its own. Raises the errors of ``LabArm``."""
    if study.cache_state == "cold":
        trial.cached_share = trial.arm.drop_cache()
    begun_s = time.monotonic()
    trial.arm.start()
    trial.start_s = time.monotonic() - begun_s


def complete_start(lab: Lab, trial: RunningTrial) -> None:
    """Record the started server, prewarm its cache, begin the checks. Raises the errors of ``LabArm``."""
    arm = trial.arm
    if trial.cached_share > KEPT_SHARE_MAX:
        share = percent_text(trial.cached_share, 0)
        lab.writer.add_caveat(Caveat.of("cache-not-cold", trial.id, arm=arm.name, share=share), lab.case)
    lab.writer.describe_arm(arm.index, case=lab.case, safety=[*safety(arm.effective()).badges.values()])
    if dropped := arm.dropped():
        caveat = Caveat.of("settings-dropped", arm=arm.name, settings=", ".join(sorted(dropped)))
        lab.writer.add_caveat(caveat, lab.case)
    if lab.study.cache_state == "prewarmed":
        lab.watch(PreparationStep(f"prewarming the cache of {arm.name}"))
        with arm.connect() as connection:
            prewarm(connection, arm.data_path())
    trial.crash_detector = keep_idle(arm.connect())
    trial.checks.begin(trial.crash_detector)


def failed(trial: RunningTrial, reason: str) -> TrialOutcome:
    """Return the outcome of a failed trial."""
    return TrialOutcome(
        TrialStatus.FAILED,
        time.time(),
        reason=reason,
        restore_s=trial.restore_s,
        start_s=trial.start_s,
        server_log=trial.arm.log() or "",
    )


def interrupted(reason: str = "stopped by the user") -> TrialOutcome:
    """Return the outcome of a trial that the user or a lost load generator stopped: its block is repeated."""
    return TrialOutcome(TrialStatus.INTERRUPTED, time.time(), reason=reason)
