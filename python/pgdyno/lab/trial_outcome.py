"""Outcome of a trial from the result of the engine and the checks of the workload."""

from __future__ import annotations

import time
from dataclasses import replace

from pgdyno.drive.engine_runs import EngineRun
from pgdyno.engine import Event
from pgdyno.fleet.driver_nodes import NODE_LOST
from pgdyno.lab.arms import LabArm
from pgdyno.results.driver_facts import ENGINE, DriverFacts, driver_facts
from pgdyno.results.engine_events import failures_from, histograms_from
from pgdyno.results.records import TrialOutcome, TrialStatus
from pgdyno.workload.interface import TrialChecks
from pgdyno.workload.invariant_checks import PREFIX
from pgdyno.workload.row_values import message_without_values


def trial_outcome(
    run: EngineRun,
    target: int,
    arm: str,
    restore_s: float | None,
    start_s: float | None,
    *,
    hides_values: bool = False,
) -> TrialOutcome:
    """Return the outcome of one target before the checks. For a run that belongs to the capacity search, it
    has only status and reason. ``hides_values``: in errors, because the rows are those of the user.
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
    outcome = replace(
        outcome,
        epoch_unix_s=run.epoch_unix_s,
        transactions=run.transactions(target),
    )
    if run.result is None:
        return outcome
    found = run.result.targets[target]
    round_trip_ns = next((e["round_trip_ns"] for e in run.connected if e["target"] == target), None)
    driver = driver_facts({**run.result.driver, "round_trip_ns": round_trip_ns})
    return replace(
        outcome,
        counters=found.counters,
        driver_memory_bytes=driver.memory_peak_bytes,
        driver=replace(driver, stopped_by=outcome.driver.stopped_by),
        tally=found.tally,
        failures=failures_from(found, _errors(run, target, hides_values=hides_values)),
        histograms=histograms_from(found),
    )


def _errors(run: EngineRun, target: int, *, hides_values: bool) -> list[Event]:
    ours = [error for error in run.errors if error["target"] == target]
    if not hides_values:
        return ours
    return [
        {**error, "message": message_without_values(error["message"], error["sqlstate"] or "")}
        for error in ours
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
        f"{check.name} {check.detail}" if check.name.startswith(PREFIX) else check.name
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
