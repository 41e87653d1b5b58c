"""A trial while it runs: pristine data, the state of the caches, a server that is up, and what it did."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgdyno.caveats import Caveat, Code
from pgdyno.evidence import records
from pgdyno.evidence.records import Outcome, TrialStatus
from pgdyno.evidence.writer import Writer
from pgdyno.interruption import Interruption
from pgdyno.lab.arm import Connection, LabArm
from pgdyno.lab.progress import Step, Watch
from pgdyno.server.crash_detector import keep_idle
from pgdyno.server.page_cache import prewarm
from pgdyno.server.settings.setting_safety import safety
from pgdyno.study.plan import Study
from pgdyno.workload.choose import workload_of
from pgdyno.workload.interface import TrialChecks

KEPT_SHARE_MAX = 0.05
"""Of the data in the operating system's cache: with more of them there a trial did not begin cold."""


@dataclass(frozen=True)
class Lab:
    """What every step of a case needs."""

    study: Study
    arms: Sequence[LabArm]
    writer: Writer
    watch: Watch
    interruption: Interruption
    case: int = 0
    name: str = ""  # of the case
    kept: Mapping[tuple[int, int], float | None] = field(default_factory=dict)
    """(block, arm) of trials that need not be repeated, and the rate of those that count."""
    aa: Mapping[int, Lab] = field(default_factory=dict)  # by arm: its comparison with its twin
    rates: dict[int, list[Sequence[float]]] = field(default_factory=dict)
    """By arm, of each block so far: how its rate came up, for the warm-ups of those to come."""
    warmed_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """By case and block, where its arms come one after the other: how long the first one was warmed up."""


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
    log_from: int = 0  # characters of the server's log that earlier runs of the driver left
    measured_s: float = 0.0  # of the window, so far
    measured_n: int = 0  # transactions in it, however they ended
    warmed: Mapping[str, Any] | None = None  # how its warm-up ended
    ordered_checkpoint_s: float | None = None  # how long the one before its window took
    search: Mapping[str, object] | None = None  # for its capacity, as the evidence keeps it
    rate_per_s: float | None = None  # that was found


def begin_trial(lab: Lab, block: int, arm: LabArm) -> Trial:
    """Notes it down; nothing is done yet."""
    driving = lab.study.driving(arm.index)
    checks = workload_of(driving.workload).checks(driving.clients, restored=arm.is_restored())
    return Trial(arm, lab.writer.begin_trial(block, arm.index, time.time(), lab.case), checks)


def bring_up(lab: Lab, trial: Trial) -> None:
    """Restores the data and starts the server. Raises what they raise."""
    arm = trial.arm
    lab.watch(Step(f"restoring {arm.name}"))
    begun_s = time.monotonic()
    arm.restore()
    trial.restore_s = time.monotonic() - begun_s
    if lab.study.cache_state == "cold":
        lab.watch(Step(f"emptying the cache of {arm.name}"))
        kept = arm.drop_cache()
        if kept > KEPT_SHARE_MAX:
            names = {"arm": arm.name, "share": f"{kept:.0%}"}
            lab.writer.add_caveat(Caveat(Code.CACHE_NOT_COLD, names, trial.id), lab.case)
    lab.watch(Step(f"starting {arm.name}"))
    begun_s = time.monotonic()
    arm.start()
    trial.start_s = time.monotonic() - begun_s
    lab.writer.describe_arm(arm.index, case=lab.case, safety=_badges(arm))
    if dropped := arm.dropped():
        names = {"arm": arm.name, "settings": ", ".join(sorted(dropped))}
        lab.writer.add_caveat(Caveat(Code.SETTINGS_DROPPED, names), lab.case)
    if lab.study.cache_state == "prewarmed":
        lab.watch(Step(f"prewarming the cache of {arm.name}"))
        with arm.connect() as connection:
            prewarm(connection, arm.data_path())
    trial.witness = keep_idle(arm.connect())
    trial.checks.begin(trial.witness)


def _badges(arm: LabArm) -> list[records.Badge]:
    found = safety(arm.effective())
    return [records.Badge(badge.name, records.Kept(badge.kept), badge.reason) for badge in found.badges]


def failed(trial: Trial, reason: str) -> Outcome:
    """It did not run to its end."""
    return Outcome(
        TrialStatus.FAILED,
        time.time(),
        reason=reason,
        restore_s=trial.restore_s,
        start_s=trial.start_s,
        server_log=trial.arm.log() or "",
    )


def interrupted() -> Outcome:
    """By the user."""
    return Outcome(TrialStatus.INTERRUPTED, time.time(), reason="stopped by the user")
