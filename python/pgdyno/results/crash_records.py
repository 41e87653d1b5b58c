"""Records of a crash test in a results file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgdyno.results.records import Guarantee, Json
from pgdyno.study.crash_plan import CrashPlan, Survivors


@dataclass(frozen=True)
class CrashTestRecord:
    """The row of ``crash_test``."""

    created_unix_s: float
    pgdyno_version: str
    engine: Json
    command: str
    host: Json
    plan: CrashPlan
    ended_unix_s: float | None = None


@dataclass(frozen=True)
class CrashArm:
    """One arm of a crash test."""

    arm: int
    name: str
    server: Json
    settings: Mapping[str, str]
    safety: Sequence[Guarantee]
    wal_writer_delay_s: float


@dataclass(frozen=True)
class Corruption:
    """One finding of a check. ``check``: mount, start, read, amcheck, consistency,
    checksums or log."""

    check: str
    text: str


@dataclass(frozen=True)
class AuditCounts:
    """Counts of the audit: transactions, except ``damaged``: rows."""

    lost: int
    in_doubt: int
    in_doubt_present: int
    phantoms: int
    holes: int
    damaged: int
    loss_window_s: float | None


@dataclass(frozen=True)
class Crash:
    """One crash of one arm. ``audit`` is None if the rows could not be read, and ``recovery_s`` if the server
    did not start. ``unchecked``: checks for which the build has no tool. ``replayed_bytes``: WAL that the
    recovery replayed.
    """

    number: int
    arm: int
    started_unix_s: float
    took_s: float
    active_s: float
    survivors: Survivors | None
    acknowledged: int
    recovery_s: float | None
    audit: AuditCounts | None
    corruption: Sequence[Corruption] = ()
    unchecked: Sequence[str] = ()
    replayed_bytes: int | None = None
    disk: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_loss(self) -> bool:
        """True if an acknowledged transaction is gone: lost, or on a server that does not start."""
        return self.acknowledged > 0 if self.audit is None else self.audit.lost > 0
