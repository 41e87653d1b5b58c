"""Findings of a crash test: per arm what was lost, how fast it recovered, and what was corrupt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.statistics.intervals import (
    MedianInterval,
    Proportion,
    median_interval,
    proportion,
)
from pgdyno.features.crash.plan import CrashKind, CrashPlan, StandbyCrash
from pgdyno.features.crash.records import Crash, CrashArm
from pgdyno.results.records import Kept

PROMISES: Mapping[CrashKind, str] = {
    CrashKind.BACKEND: "survives a crash of the server",
    CrashKind.SERVER: "survives a crash of the server",
    CrashKind.POWER: "survives a crash of the system or a power loss",
}
"""Name of the safety property that a crash of each kind tests."""

WAIT_FOR_FLUSH = ("on", "true", "yes", "1", "remote_apply")
"""Values of synchronous_commit with which a commit waits until a synchronous standby has flushed its WAL."""

WAIT_FOR_STANDBY = (*WAIT_FOR_FLUSH, "remote_write")
"""Values with which it waits at least until the standby's operating system has it."""

TORN_PAGES = "torn-page protection"


@dataclass(frozen=True)
class CrashFindings:
    """One arm. ``lost``, ``loss_window_s``: one value per crash, of those whose rows could be read.

    ``unreadable``: crashes after which the rows could not be read, mostly because the server did not start.
    How many commits are gone is then unknown; such crashes count in ``with_loss`` only. ``promise``: whether
    the settings promise to keep everything, by the manual. ``findings``: corruption by check.
    ``disk_faults``: crashes before which the disk failed a request on purpose, or the server found it full.
    ``in_phase``: crashes before the end of the checkpoint or VACUUM, or at the flush, that they aim at.
    ``disk_per_commit``: mean requests and bytes of the simulated disk per acknowledged commit, by counter;
    empty without one.
    """

    name: str
    crashes: int
    acknowledged: int
    with_loss: Proportion | None
    lost: Sequence[int]
    holes: int
    phantoms: int
    damaged: int
    in_doubt: int
    in_doubt_present: int
    unreadable: int
    loss_window_s: Sequence[float]
    wal_writer_delay_s: float
    recovery_s: MedianInterval | None
    replayed_bytes: MedianInterval | None
    disk_faults: int
    in_phase: int
    disk_per_commit: Mapping[str, float]
    corrupt: Proportion | None
    findings: Mapping[str, int]
    examples: Sequence[str]
    unchecked: Sequence[str]
    promise: Kept

    @property
    def lost_max(self) -> int:
        """Most commits lost in one crash."""
        return max(self.lost, default=0)

    @property
    def loss_window_s_max(self) -> float | None:
        """Longest loss window."""
        return max(self.loss_window_s, default=None)

    @property
    def breaks_promise(self) -> bool:
        """True if something is wrong that the settings exclude: a finding about the disk, or PostgreSQL."""
        wrong = self.phantoms + self.holes + self.damaged
        loses = self.with_loss is not None and self.with_loss.count > 0
        corrupt = self.corrupt is not None and self.corrupt.count > 0
        return self.promise is Kept.YES and bool(wrong or loses or corrupt)


EXAMPLES_MAX = 3

DISK_COUNTERS = ("written_bytes", "writes", "flushes", "read_bytes", "reads")
"""Counters of the requests that a simulated disk completed."""

FAULTS = ("failed", "no_space")
"""Counters of a disk that failed on purpose."""


def find_crashes(plan: CrashPlan, arms: Sequence[CrashArm], crashes: Sequence[Crash]) -> list[CrashFindings]:
    """Return the findings of all arms, in their order."""
    return [_of_arm(plan, arm, [one for one in crashes if one.arm == arm.arm]) for arm in arms]


def _of_arm(plan: CrashPlan, arm: CrashArm, crashes: Sequence[Crash]) -> CrashFindings:
    n = len(crashes)
    audits = [crash.audit for crash in crashes if crash.audit is not None]
    corrupt = [crash for crash in crashes if crash.corruption]
    checks = Counter(check for crash in crashes for check in {one.check for one in crash.corruption})
    texts = dict.fromkeys(one.text for crash in corrupt for one in crash.corruption[:1])
    return CrashFindings(
        name=arm.name,
        crashes=n,
        acknowledged=sum(crash.acknowledged for crash in crashes),
        with_loss=proportion(sum(crash.has_loss for crash in crashes), n) if n else None,
        lost=[audit.lost for audit in audits],
        holes=sum(audit.holes for audit in audits),
        phantoms=sum(audit.phantoms for audit in audits),
        damaged=sum(audit.damaged for audit in audits),
        in_doubt=sum(audit.in_doubt for audit in audits),
        in_doubt_present=sum(audit.in_doubt_present for audit in audits),
        unreadable=n - len(audits),
        loss_window_s=[audit.loss_window_s for audit in audits if audit.loss_window_s is not None],
        wal_writer_delay_s=arm.wal_writer_delay_s,
        recovery_s=median_interval([one.recovery_s for one in crashes if one.recovery_s is not None]),
        replayed_bytes=median_interval(
            [float(one.replayed_bytes) for one in crashes if one.replayed_bytes is not None]
        ),
        disk_faults=sum(any(crash.disk.get(fault) for fault in FAULTS) for crash in crashes),
        in_phase=sum(crash.disk.get("in_phase", 0) for crash in crashes),
        disk_per_commit=_per_commit(crashes),
        corrupt=proportion(len(corrupt), n) if n else None,
        findings=dict(checks),
        examples=list(texts)[:EXAMPLES_MAX],
        unchecked=sorted({check for crash in crashes for check in crash.unchecked}),
        promise=_promise(plan, arm),
    )


def _per_commit(crashes: Sequence[Crash]) -> dict[str, float]:
    """Return the disk's counters of all crashes per acknowledged commit; empty if one of them has none."""
    commits = sum(crash.acknowledged for crash in crashes)
    if not commits or not all("flushes" in crash.disk for crash in crashes):
        return {}
    return {name: sum(crash.disk[name] for crash in crashes) / commits for name in DISK_COUNTERS}


def _promise(plan: CrashPlan, arm: CrashArm) -> Kept:
    """Return what the settings promise for the server that is audited."""
    alone = _promise_alone(plan.kind, arm)
    if plan.standby is None:
        return alone
    level = arm.settings.get("synchronous_commit", "on").lower()
    if plan.standby is StandbyCrash.PRIMARY:
        return Kept.YES if level in WAIT_FOR_STANDBY else Kept.NO
    if plan.standby is StandbyCrash.STANDBY:
        return Kept.YES if alone is Kept.YES else Kept.UNKNOWN
    # remote_write waits until the standby's operating system has the WAL, which a power cut loses.
    durable = WAIT_FOR_STANDBY if plan.kind is CrashKind.SERVER else WAIT_FOR_FLUSH
    return alone if level in durable else Kept.NO


def _promise_alone(kind: CrashKind, arm: CrashArm) -> Kept:
    """Return what the settings promise without a standby: for power cuts, torn pages count, too."""
    kept = {one.name: one.kept for one in arm.safety}
    first = kept.get(PROMISES[kind], Kept.UNKNOWN)
    if kind is CrashKind.POWER and first is Kept.YES:
        return kept.get(TORN_PAGES, Kept.UNKNOWN)
    return first
