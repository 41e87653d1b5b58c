"""Results files of crash tests.

- Records of a crash test in a results file.
- Writer and reader of crash tests in results files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pgdyno.features.crash_disk.plan import CrashPlan, Survivors
from pgdyno.results import results_file
from pgdyno.results.codec import Column, Record, Table, insert, select
from pgdyno.results.records import Guarantee, Json
from pgdyno.results.writer import Writer

# ----------------------------------------------------------------------
# Records of a crash test in a results file, which define its tables.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class CrashTestRecord:
    """A crash test (pgdyno crash). A file has a study, a crash test, or a study with a crash test of its arms
    (--durability). One row.
    """

    TABLE: ClassVar = Table("crash_test", ("id INTEGER PRIMARY KEY CHECK (id = 1)",))

    created_unix_s: float
    pgdyno_version: str
    engine: Json
    """JSON: output of pgdyno-engine version."""
    command: str
    """Command line that repeats the test."""
    host: Json
    """JSON: machine facts, name → text or number."""
    plan: CrashPlan
    """JSON: see CrashPlan in features/crash_disk/plan.py."""
    ended_unix_s: Annotated[float | None, Column(before="pgdyno_version")] = None
    """Null during the test, and after a kill."""


@dataclass(frozen=True)
class CrashArm:
    """One arm of a crash test."""

    TABLE: ClassVar = Table("crash_arm", ("arm INTEGER PRIMARY KEY",))

    arm: int
    name: Annotated[str, Column(sql="UNIQUE")]
    server: Json
    """JSON: version, provider."""
    settings: Mapping[str, str]
    """JSON: requested settings, name → value."""
    safety: Sequence[Guarantee]
    """JSON: list of {name, kept: yes, partly, no, unknown; text}, derived from the effective settings."""
    wal_writer_delay_s: float
    """Effective value."""


@dataclass(frozen=True)
class Corruption:
    """One finding of a check. ``check``: mount, start, read, amcheck, consistency, checksums or log."""

    check: str
    text: str


@dataclass(frozen=True)
class AuditCounts:
    """Counts of the audit: transactions, except ``damaged``: rows. ``loss_window_s``: from the first lost
    acknowledgement until the crash, None without a loss.
    """

    lost: int
    in_doubt: int
    in_doubt_present: int
    phantoms: int
    holes: int
    damaged: int
    loss_window_s: float | None


@dataclass(frozen=True, kw_only=True)
class Crash:
    """One crash of an arm. Counts are transactions, except damaged: rows (README.md)."""

    TABLE: ClassVar = Table("crash", key="number, arm")

    number: int
    """0, 1, …"""
    arm: Annotated[int, Column(sql="REFERENCES crash_arm")]
    started_unix_s: float
    took_s: float
    """Duration of start, load, crash, recovery and checks together."""
    active_s: float
    """From the first transaction until the crash."""
    survivors: Annotated[Survivors | None, Column(values=())]
    """Unflushed writes that survived a power cut; null for other crashes."""
    acknowledged: int
    """Transactions acknowledged before the crash."""
    recovery_s: float | None
    """From the start of the server until it accepts connections; null if it does not."""
    replayed_bytes: int | None = None
    """WAL that the recovery replayed; null if the log has no messages about it."""
    lost: int | None = None
    """Acknowledged and absent; null if the rows cannot be read; so are the next ones."""
    in_doubt: int | None = None
    """Sent and not acknowledged."""
    in_doubt_present: int | None = None
    phantoms: int | None = None
    """Present and never sent."""
    holes: int | None = None
    """Lost before a present one of the same client."""
    damaged: int | None = None
    loss_window_s: float | None = None
    """From the first lost acknowledgement until the crash; null without a loss."""
    corruption: Sequence[Corruption] = ()
    """JSON: list of {check, text}; check is mount, start, read, amcheck, consistency, checksums or log."""
    unchecked: Sequence[str] = ()
    """JSON: list of checks that were not possible."""
    disk: Mapping[str, int] = field(default_factory=dict)
    """JSON: counters at the crash, name → number: of the disk; no_space: the server found it full; in_phase:
    before the end of the checkpoint or VACUUM."""

    @property
    def audit(self) -> AuditCounts | None:
        """The counts of the audit; None if the rows could not be read."""
        counts = {one.name: getattr(self, one.name) for one in fields(AuditCounts)}
        return None if self.lost is None else AuditCounts(**counts)

    @property
    def has_loss(self) -> bool:
        """True if an acknowledged transaction is gone: lost, or on a server that does not start."""
        return self.acknowledged > 0 if self.audit is None else self.audit.lost > 0


TABLES: tuple[type[Record], ...] = (CrashTestRecord, CrashArm, Crash)
"""The records of a crash test, in the order of their tables in the file."""


# ----------------------------------------------------------------------
# Writer and reader of crash tests in results files.
# ----------------------------------------------------------------------


class CrashWriter(Writer):
    """The only writer of the results file of a crash test."""

    @classmethod
    def begin(cls, path: Path, record: CrashTestRecord, arms: Sequence[CrashArm]) -> Self:
        """Create a file, or open the file of a study to add a test of its arms."""

        def fill(writer: Self) -> None:
            with writer._transaction() as connection:
                insert(connection, record, 1)
                for arm in arms:
                    insert(connection, arm)

        return (cls._open if path.exists() else cls._create)(path, fill)

    @classmethod
    def resume_test(cls, path: Path, plan: CrashPlan) -> Self:
        """Open an existing file to continue its test, with the number of cuts of ``plan``."""
        values = {"ended_unix_s": None, "plan": plan}
        return cls._open(path, lambda writer: writer._update(CrashTestRecord, values))

    def add_crash(self, crash: Crash) -> None:
        """Store a crash and flush it to disk."""
        with self._transaction() as connection:
            insert(connection, crash)
        self._checkpoint()

    def finish_test(self, ended_unix_s: float) -> None:
        """Store the end of the test."""
        self._update(CrashTestRecord, {"ended_unix_s": ended_unix_s})


def read_crash_test(
    path: Path, *, verify: bool = True
) -> tuple[CrashTestRecord, list[CrashArm], list[Crash]] | None:
    """Return a crash test with its arms and crashes; None if the file has none. Raises EvidenceError."""
    with (
        closing(results_file.open_for_reading(path, verify=verify)) as connection,
        results_file.validated(path),
    ):
        connection.execute("BEGIN")
        tests = select(connection, CrashTestRecord)
        return (tests[0], select(connection, CrashArm), select(connection, Crash)) if tests else None


def has_study(path: Path) -> bool:
    """Return whether a results file has a study. Raises EvidenceError."""
    with (
        closing(results_file.open_for_reading(path, verify=False)) as connection,
        results_file.translated(path),
    ):
        return connection.execute("SELECT 1 FROM study").fetchone() is not None
