"""Findings of a crash test: per arm what was lost, how fast it recovered, and what was corrupt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import scipy  # its parts load when first used

from pgdyno.analysis.finding_fields import Hidden, ShownAs, about, in_json
from pgdyno.analysis.statistics.intervals import CONFIDENCE, Proportion, proportion
from pgdyno.features.crash_disk.plan import CrashKind, CrashMoment, CrashPlan, StandbyCrash
from pgdyno.features.crash_disk.records import Crash, CrashArm, read_crash_test
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Json, Kept

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
class MedianInterval:
    """Median of ``n`` values with its interval; the ends are None if n is too small for the confidence."""

    value: float
    n: int
    low: float | None
    high: float | None


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> MedianInterval | None:
    """Return the median with its distribution-free interval between order statistics; None without values.

    The number of values below the true median is binomial with p = 1/2 (Conover, Practical Nonparametric
    Statistics). 6 values are enough for 95%.
    """
    n = len(values)
    if n == 0:
        return None
    ordered = sorted(values)
    ranks = np.arange(n // 2)
    # Probability that the median is not between the value of a rank and its mirror.
    outside = 2 * scipy.special.bdtr(ranks, n, 0.5)
    inside = ranks[outside <= 1 - confidence]
    if len(inside) == 0:
        return MedianInterval(float(median(ordered)), n, None, None)
    rank = int(inside[-1])
    return MedianInterval(float(median(ordered)), n, float(ordered[rank]), float(ordered[n - 1 - rank]))


@dataclass(frozen=True)
class CorruptionFindings:
    """Corruption that the checks found."""

    cuts: Annotated[Proportion | None, about("Crashes with corruption.")]
    by_check: Annotated[
        Mapping[str, int],
        about(
            "Crashes by check: ``mount``, ``start``, ``read``, ``amcheck``, ``consistency`` of the workload, "
            "``checksums``, ``log``."
        ),
    ]
    examples: Sequence[str]
    unchecked: Annotated[Sequence[str], about("Checks that were not possible.")]


@dataclass(frozen=True)
class CrashFindings:
    """One arm. Lists have one value per crash, of those whose rows could be read.

    How many commits are gone after the others is unknown; they count in ``cuts_with_loss`` only. Such a
    server mostly did not start.
    """

    arm: CrashArm
    cuts: Annotated[int, about("Number of crashes.")]
    acknowledged_commits: Annotated[int, about("Commits acknowledged before the crashes.")]
    cuts_with_loss: Annotated[
        Proportion | None,
        about("Crashes that lost an acknowledged commit, with its exact 95% interval and one-sided limit."),
    ]
    lost_commits: Annotated[
        Sequence[int], about("Lost commits of each crash after which rows were readable.")
    ]
    holes: Annotated[int, about("Lost commits with a later one of the same client that is present.")]
    phantoms: Annotated[int, about("Transactions that are present and were never sent.")]
    damaged: Annotated[int, about("Rows that contradict their checksum or their transaction.")]
    in_doubt: Annotated[int, about("Transactions without an answer.")]
    in_doubt_present: Annotated[int, about("Those of them that are present.")]
    cuts_unreadable: Annotated[int, about("Crashes after which the rows could not be read.")]
    loss_window_s: Annotated[Sequence[float], about("One value per crash with a loss.")]
    recovery_s: Annotated[
        MedianInterval | None,
        about("Median with its 95% interval between order statistics; null limits below 6 values."),
    ]
    replayed_bytes: Annotated[
        MedianInterval | None,
        about("WAL that the recovery replayed: median as in ``recovery_s``. Null with a standby."),
    ]
    disk_per_commit: Annotated[
        Mapping[str, float] | None,
        about("Mean requests and bytes of the simulated disk per acknowledged commit; null without it."),
    ]
    disk_faults: Annotated[
        int, about("Crashes after a request that failed on purpose, or on a disk that the server found full.")
    ]
    cuts_in_phase: Annotated[
        int | None,
        about("With ``--at``: crashes before the end of the checkpoint or VACUUM, or at the flush."),
    ]
    corruption: CorruptionFindings
    promised: Annotated[Kept, about("Whether the settings promise to keep everything, by the manual.")]

    @property
    def lost_max(self) -> int:
        """Most commits lost in one crash."""
        return max(self.lost_commits, default=0)

    @property
    def loss_window_s_max(self) -> float | None:
        """Longest loss window."""
        return max(self.loss_window_s, default=None)

    @in_json
    def breaks_promise(self) -> bool:
        """True if something is wrong that the settings exclude: a finding about the disk, or PostgreSQL."""
        shares = (self.cuts_with_loss, self.corruption.cuts)
        wrong = self.phantoms + self.holes + self.damaged + sum(of.count for of in shares if of is not None)
        return self.promised is Kept.YES and wrong > 0


def _plan_as_json(plan: CrashPlan) -> dict[str, Any]:
    """Return the plan. ``disk`` and ``file_system`` are null without a simulated disk."""
    is_simulated = plan.kind is CrashKind.POWER and not plan.real
    absent = {} if is_simulated else {"disk": None, "file_system": None}
    return {**plan.model_dump(mode="json"), **absent}


@dataclass(frozen=True)
class CrashTest:
    """A crash test."""

    plan: Annotated[CrashPlan, ShownAs(Json, _plan_as_json)]
    complete: bool
    arms: Sequence[CrashFindings]
    crashes: Hidden[Sequence[Crash]]
    command: Hidden[str] = ""


EXAMPLES_MAX = 3

DISK_COUNTERS = ("written_bytes", "writes", "flushes", "read_bytes", "reads")
"""Counters of the requests that a simulated disk completed."""

FAULTS = ("failed", "no_space")
"""Counters of a disk that failed on purpose."""


def crash_test_of_study(evidence: Evidence) -> CrashTest | None:
    """Return the crash test of the arms of a study."""
    return find_crash_test(evidence.path, verify=False)


def find_crash_test(path: Path, *, verify: bool = True) -> CrashTest | None:
    """Return the crash test in a results file; None if it has none. Raises EvidenceError."""
    found = read_crash_test(path, verify=verify)
    if found is None:
        return None
    record, arms, crashes = found
    is_complete, findings = record.ended_unix_s is not None, find_crashes(record.plan, arms, crashes)
    return CrashTest(record.plan, is_complete, findings, crashes, record.command)


def find_crashes(plan: CrashPlan, arms: Sequence[CrashArm], crashes: Sequence[Crash]) -> list[CrashFindings]:
    """Return the findings of all arms, in their order."""
    return [_of_arm(plan, arm, [one for one in crashes if one.arm == arm.arm]) for arm in arms]


def _of_arm(plan: CrashPlan, arm: CrashArm, crashes: Sequence[Crash]) -> CrashFindings:
    n = len(crashes)
    audits = [crash.audit for crash in crashes if crash.audit is not None]
    corrupt = [crash.corruption for crash in crashes if crash.corruption]
    replayed = [float(one.replayed_bytes) for one in crashes if one.replayed_bytes is not None]
    in_phase = sum(crash.disk.get("in_phase", 0) for crash in crashes)
    return CrashFindings(
        arm=arm,
        cuts=n,
        acknowledged_commits=sum(crash.acknowledged for crash in crashes),
        cuts_with_loss=proportion(sum(crash.has_loss for crash in crashes), n) if n else None,
        lost_commits=[audit.lost for audit in audits],
        holes=sum(audit.holes for audit in audits),
        phantoms=sum(audit.phantoms for audit in audits),
        damaged=sum(audit.damaged for audit in audits),
        in_doubt=sum(audit.in_doubt for audit in audits),
        in_doubt_present=sum(audit.in_doubt_present for audit in audits),
        cuts_unreadable=n - len(audits),
        loss_window_s=[audit.loss_window_s for audit in audits if audit.loss_window_s is not None],
        recovery_s=median_interval([one.recovery_s for one in crashes if one.recovery_s is not None]),
        replayed_bytes=median_interval(replayed),
        disk_faults=sum(any(crash.disk.get(fault) for fault in FAULTS) for crash in crashes),
        cuts_in_phase=None if plan.at is CrashMoment.ANY else in_phase,
        disk_per_commit=_per_commit(crashes),
        corruption=CorruptionFindings(
            cuts=proportion(len(corrupt), n) if n else None,
            by_check=Counter(check for found in corrupt for check in {one.check for one in found}),
            examples=list(dict.fromkeys(found[0].text for found in corrupt))[:EXAMPLES_MAX],
            unchecked=sorted({check for crash in crashes for check in crash.unchecked}),
        ),
        promised=_promise(plan, arm),
    )


def _per_commit(crashes: Sequence[Crash]) -> dict[str, float] | None:
    """Return the disk's counters of all crashes per acknowledged commit; None if one of them has none."""
    commits = sum(crash.acknowledged for crash in crashes)
    if not commits or not all("flushes" in crash.disk for crash in crashes):
        return None
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
