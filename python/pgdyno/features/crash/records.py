"""Results files of crash tests.

- Records of a crash test in a results file.
- Writer and reader of crash tests in results files.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pgdyno.features.crash.plan import CrashPlan, Survivors
from pgdyno.results import codec, results_file
from pgdyno.results.codec import mask_passwords, masked_json
from pgdyno.results.records import Guarantee, Json, Kept
from pgdyno.results.writer import Writer

# ----------------------------------------------------------------------
# Records of a crash test in a results file.
# ----------------------------------------------------------------------


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


# ----------------------------------------------------------------------
# Writer and reader of crash tests in results files.
# ----------------------------------------------------------------------

_AUDIT = ("lost", "in_doubt", "in_doubt_present", "phantoms", "holes", "damaged", "loss_window_s")


class CrashWriter(Writer):
    """The only writer of the results file of a crash test."""

    @classmethod
    def begin(cls, path: Path, record: CrashTestRecord, arms: Sequence[CrashArm]) -> Self:
        """Create a file. Raises EvidenceExistsError if the path exists."""
        return cls._create(path, lambda writer: writer._insert_test(record, arms))

    @classmethod
    def resume_test(cls, path: Path, plan: CrashPlan) -> Self:
        """Open an existing file to continue its test, with the number of cuts of ``plan``."""

        def reopen(writer: Self) -> None:
            with writer._transaction() as connection:
                connection.execute(
                    "UPDATE crash_test SET ended_unix_s = NULL, plan = ?",
                    (masked_json(plan.model_dump(mode="json")),),
                )

        return cls._open(path, reopen)

    @classmethod
    def add_test(cls, path: Path, record: CrashTestRecord, arms: Sequence[CrashArm]) -> Self:
        """Open the file of a study to add a test of its arms."""
        return cls._open(path, lambda writer: writer._insert_test(record, arms))

    def _insert_test(self, record: CrashTestRecord, arms: Sequence[CrashArm]) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO crash_test VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.created_unix_s,
                    record.ended_unix_s,
                    record.pgdyno_version,
                    masked_json(record.engine),
                    mask_passwords(record.command),
                    masked_json(record.host),
                    masked_json(record.plan.model_dump(mode="json")),
                ),
            )
            connection.executemany(
                "INSERT INTO crash_arm VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (
                        arm.arm,
                        mask_passwords(arm.name),
                        masked_json(arm.server),
                        masked_json(dict(arm.settings)),
                        codec.of_safety(arm.safety),
                        arm.wal_writer_delay_s,
                    )
                    for arm in arms
                ],
            )

    def add_crash(self, crash: Crash) -> None:
        """Store a crash and flush it to disk."""
        audit = crash.audit
        with self._transaction() as connection:
            connection.execute(
                f"INSERT INTO crash VALUES ({', '.join('?' * 19)})",
                (
                    crash.number,
                    crash.arm,
                    crash.started_unix_s,
                    crash.took_s,
                    crash.active_s,
                    crash.survivors,
                    crash.acknowledged,
                    crash.recovery_s,
                    crash.replayed_bytes,
                    *((getattr(audit, name) for name in _AUDIT) if audit else (None for _ in _AUDIT)),
                    masked_json([{"check": one.check, "text": one.text} for one in crash.corruption]),
                    masked_json(list(crash.unchecked)),
                    masked_json(dict(crash.disk)),
                ),
            )
        self._checkpoint()

    def finish_test(self, ended_unix_s: float) -> None:
        """Store the end of the test."""
        with self._transaction() as connection:
            connection.execute("UPDATE crash_test SET ended_unix_s = ?", (ended_unix_s,))


def read_crash_test(
    path: Path, *, verify: bool = True
) -> tuple[CrashTestRecord, list[CrashArm], list[Crash]] | None:
    """Return a crash test with its arms and crashes; None if the file has none. Raises EvidenceError."""
    connection = results_file.open_for_reading(path, verify=verify)
    connection.row_factory = sqlite3.Row
    try:
        with results_file.translated(path):
            connection.execute("BEGIN")
            test = connection.execute("SELECT * FROM crash_test").fetchone()
            if test is None:
                return None
            arms = connection.execute("SELECT * FROM crash_arm ORDER BY arm").fetchall()
            crashes = connection.execute("SELECT * FROM crash ORDER BY number, arm").fetchall()
            return _test(test), [_arm(row) for row in arms], [_crash(row) for row in crashes]
    finally:
        connection.close()


def has_study(path: Path) -> bool:
    """Return whether a results file has a study. Raises EvidenceError."""
    connection = results_file.open_for_reading(path, verify=False)
    try:
        with results_file.translated(path):
            return connection.execute("SELECT 1 FROM study").fetchone() is not None
    finally:
        connection.close()


def _test(row: sqlite3.Row) -> CrashTestRecord:
    return CrashTestRecord(
        created_unix_s=row["created_unix_s"],
        ended_unix_s=row["ended_unix_s"],
        pgdyno_version=row["pgdyno_version"],
        engine=json.loads(row["engine"]),
        command=row["command"],
        host=json.loads(row["host"]),
        plan=CrashPlan.model_validate_json(row["plan"]),
    )


def _arm(row: sqlite3.Row) -> CrashArm:
    return CrashArm(
        arm=row["arm"],
        name=row["name"],
        server=json.loads(row["server"]),
        settings=json.loads(row["settings"]),
        safety=[Guarantee(one["name"], Kept(one["kept"]), one["text"]) for one in json.loads(row["safety"])],
        wal_writer_delay_s=row["wal_writer_delay_s"],
    )


def _crash(row: sqlite3.Row) -> Crash:
    return Crash(
        number=row["number"],
        arm=row["arm"],
        started_unix_s=row["started_unix_s"],
        took_s=row["took_s"],
        active_s=row["active_s"],
        survivors=None if row["survivors"] is None else Survivors(row["survivors"]),
        acknowledged=row["acknowledged"],
        recovery_s=row["recovery_s"],
        replayed_bytes=row["replayed_bytes"],
        audit=None if row["lost"] is None else AuditCounts(**{name: row[name] for name in _AUDIT}),
        corruption=[Corruption(one["check"], one["text"]) for one in json.loads(row["corruption"])],
        unchecked=json.loads(row["unchecked"]),
        disk=json.loads(row["disk"]),
    )
