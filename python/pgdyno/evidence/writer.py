"""Writes an evidence file as the study runs. Every method is one transaction: after a kill the file is whole.

The order of calls::

    writer = Writer.create(path, study, arms)        # or Writer.resume(path)
    writer.begin_block(block)
        trial = writer.begin_trial(block, arm, started_unix_s)      # one for each arm
        writer.add_interval(trial, interval) …  writer.add_slice(trial, piece) …
        writer.finish_trial(trial, outcome)
    writer.finish_block(block, status, ended_unix_s)
    writer.finish_study(ending, ended_unix_s)
    writer.close()

A trial that was begun and not finished is ``running``; ``resume`` makes it ``interrupted``, and the lab
repeats its block.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from pgdyno.caveats import Caveat
from pgdyno.errors import EvidenceError
from pgdyno.evidence import file
from pgdyno.evidence.lock import WriterLock
from pgdyno.evidence.masking import mask_passwords, masked_json
from pgdyno.evidence.packing import pack_json, pack_pairs, pack_text
from pgdyno.evidence.records import (
    Arm,
    Badge,
    Block,
    BlockStatus,
    Counts,
    Ending,
    Interval,
    Json,
    Outcome,
    Slice,
    Study,
    TrialStatus,
)


class Writer:
    """The one writer of an evidence file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock) -> None:
        """Use ``create`` or ``resume``."""
        self._path = path
        self._connection = connection
        self._lock = lock

    @classmethod
    def create(cls, path: Path, study: Study, arms: Sequence[Arm]) -> Self:
        """A new file. Raises EvidenceError where there is one: evidence is never overwritten.

        The file appears under its name only with the study and its arms in it.
        """
        if [arm.arm for arm in arms] != list(range(len(arms))) or not arms:
            raise ValueError("arms are numbered 0, 1, … from the baseline")
        lock = WriterLock(path)
        try:
            if path.exists():
                raise EvidenceError(f"{path} exists already: name another file, or continue it with --resume")
            half_made = path.with_name(path.name + ".new")
            half_made.unlink(missing_ok=True)
            try:
                _make(half_made, study, arms, lock)
                half_made.rename(path)
            finally:
                half_made.unlink(missing_ok=True)
            return cls(path, file.open_for_writing(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume(cls, path: Path) -> Self:
        """An existing file, to go on with. What was running when its writer died is marked as interrupted."""
        if not path.is_file():
            raise EvidenceError(f"no evidence file at {path}: check the name")
        lock = WriterLock(path)
        try:
            writer = cls(path, file.open_for_writing(path), lock)
            with writer._transaction() as connection:
                reason = "pgdyno ended before the trial did"
                connection.execute(
                    "UPDATE trial SET status = 'interrupted', reason = ? WHERE status = 'running'", (reason,)
                )
                connection.execute("UPDATE block SET status = 'interrupted' WHERE status = 'running'")
                connection.execute("UPDATE study SET ended_unix_s = NULL, ended_because = NULL")
            return writer
        except BaseException:
            lock.release()
            raise

    def describe_arm(
        self,
        arm: int,
        *,
        server: Json | None = None,
        safety: Sequence[Badge] | None = None,
        dataset: Json | None = None,
    ) -> None:
        """Replace what was not known of an arm when the study was created, e.g. after its first start."""
        given = {
            "server": None if server is None else masked_json(server),
            "safety": None if safety is None else masked_json([asdict(badge) for badge in safety]),
            "dataset": None if dataset is None else masked_json(dataset),
        }
        with self._transaction() as connection:
            for column, value in given.items():
                if value is not None:
                    connection.execute(f"UPDATE arm SET {column} = ? WHERE arm = ?", (value, arm))

    def begin_block(self, block: Block) -> None:
        """A block starts, or starts again after an interruption."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO block (block, seed, arm_order, status, started_unix_s) "
                "VALUES (?1, ?2, ?3, 'running', ?4) ON CONFLICT (block) DO UPDATE SET seed = ?2, "
                "arm_order = ?3, status = 'running', started_unix_s = ?4, ended_unix_s = NULL",
                (block.block, block.seed, json.dumps(list(block.arm_order)), block.started_unix_s),
            )

    def finish_block(self, block: int, status: BlockStatus, ended_unix_s: float) -> None:
        """A block ends."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE block SET status = ?, ended_unix_s = ? WHERE block = ?", (status, ended_unix_s, block)
            )

    def begin_trial(self, block: int, arm: int, started_unix_s: float) -> int:
        """One arm's part of a block starts, at its restore. Gives the trial's id."""
        with self._transaction() as connection:
            row = connection.execute(
                "INSERT INTO trial (block, arm, attempt, status, started_unix_s) SELECT ?1, ?2, "
                "1 + coalesce(max(attempt), 0), 'running', ?3 FROM trial WHERE block = ?1 AND arm = ?2 "
                "RETURNING trial",
                (block, arm, started_unix_s),
            ).fetchone()
        return int(row[0])

    def add_slice(self, trial: int, piece: Slice) -> None:
        """A slice was drained."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    trial,
                    piece.position,
                    piece.role,
                    piece.opened_s,
                    piece.counted_from_s,
                    piece.closed_s,
                    piece.drained_s,
                    piece.driver_cpu_user_s,
                    piece.driver_cpu_system_s,
                ),
            )
            _insert_counts(connection, "slice_count", (trial, piece.position), piece.kinds)

    def add_interval(self, trial: int, interval: Interval) -> None:
        """The driver streamed an interval."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO interval VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    trial,
                    interval.position,
                    interval.role,
                    interval.from_s,
                    interval.to_s,
                    interval.latency_p50_ns,
                    interval.latency_p95_ns,
                    interval.latency_p99_ns,
                    interval.latency_max_ns,
                ),
            )
            _insert_counts(connection, "interval_count", (trial, interval.from_s), interval.kinds)

    def finish_trial(self, trial: int, outcome: Outcome) -> None:
        """A trial ended, well or not: everything at once, then to the disk.

        Raises ValueError for a trial that is not running.
        """
        if outcome.status is TrialStatus.RUNNING:
            raise ValueError("a finished trial is not running")
        with self._transaction() as connection:
            self._update_trial(connection, trial, outcome)
            connection.executemany(
                "INSERT INTO failure VALUES (?, ?, ?, ?, ?)",
                [(trial, f.kind, f.sqlstate, f.n, mask_passwords(f.sample)) for f in outcome.failures],
            )
            connection.executemany(
                "INSERT INTO histogram VALUES (?, ?, ?, ?, ?)",
                [(trial, h.kind, h.measure, h.n, pack_pairs(h.pairs)) for h in outcome.histograms],
            )
            connection.executemany(
                "INSERT INTO check_result VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (trial, c.name, int(c.passed), c.statistic, c.p_value, mask_passwords(c.detail))
                    for c in outcome.checks
                ],
            )
            if outcome.server_log:
                connection.execute("INSERT INTO log VALUES (?, ?)", (trial, pack_text(outcome.server_log)))
        self._checkpoint()

    def _update_trial(self, connection: sqlite3.Connection, trial: int, outcome: Outcome) -> None:
        done = connection.execute(
            "UPDATE trial SET status = ?, reason = ?, ended_unix_s = ?, epoch_unix_s = ?, restore_s = ?, "
            "start_s = ?, server_cpu_s = ?, transactions = ?, committed_new_orders = ?, "
            "driver_memory_bytes = ?, driver = ?, settings = ?, tally = ? "
            "WHERE trial = ? AND status = 'running'",
            (
                outcome.status,
                mask_passwords(outcome.reason),
                outcome.ended_unix_s,
                outcome.epoch_unix_s,
                outcome.restore_s,
                outcome.start_s,
                outcome.server_cpu_s,
                outcome.transactions,
                outcome.committed_new_orders,
                outcome.driver_memory_bytes,
                masked_json(outcome.driver),
                masked_json(outcome.settings),
                None if outcome.tally is None else pack_json(outcome.tally),
                trial,
            ),
        )
        if done.rowcount != 1:
            raise ValueError(f"trial {trial} is not running")

    def add_caveat(self, caveat: Caveat) -> None:
        """A doubt; the same one twice is stored once."""
        row = (caveat.trial, caveat.code, masked_json(caveat.parameters))
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO caveat (trial, code, parameters) SELECT ?1, ?2, ?3 WHERE NOT EXISTS "
                "(SELECT 1 FROM caveat WHERE trial IS ?1 AND code = ?2 AND parameters = ?3)",
                row,
            )

    def finish_study(self, ending: Ending, ended_unix_s: float) -> None:
        """The study ended, for this reason."""
        with self._transaction() as connection:
            connection.execute("UPDATE study SET ended_unix_s = ?, ended_because = ?", (ended_unix_s, ending))

    def close(self) -> None:
        """Leave one file without companions, where no reader is in the way, and let the next writer in."""
        try:
            self._settle_in_one_file()
        finally:
            self._connection.close()
            self._lock.release()

    def __enter__(self) -> Self:
        """Close at the end of a with block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, whatever happened."""
        self.close()

    def _insert_study(self, study: Study, arms: Sequence[Arm]) -> None:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO study VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    mask_passwords(study.title),
                    study.created_unix_s,
                    study.ended_unix_s,
                    study.ended_because,
                    study.pgdyno_version,
                    masked_json(study.engine),
                    mask_passwords(study.command),
                    masked_json(asdict(study.plan)),
                    masked_json(study.host),
                ),
            )
            connection.executemany(
                "INSERT INTO arm VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        arm.arm,
                        mask_passwords(arm.name),
                        mask_passwords(arm.spec),
                        masked_json(arm.server),
                        masked_json(arm.settings_requested),
                        masked_json([asdict(badge) for badge in arm.safety]),
                        masked_json(arm.workload),
                        arm.clients,
                        masked_json(arm.dataset),
                    )
                    for arm in arms
                ],
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with file.translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _checkpoint(self) -> None:
        with file.translated(self._path):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _settle_in_one_file(self) -> None:
        try:
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            # A reader is following. It sees everything, and the file stays good in WAL mode.
            return


def _make(path: Path, study: Study, arms: Sequence[Arm], lock: WriterLock) -> None:
    file.create(path)
    writer = Writer(path, file.open_for_writing(path), lock)
    try:
        writer._insert_study(study, arms)
    finally:
        writer._settle_in_one_file()
        writer._connection.close()


def _insert_counts(
    connection: sqlite3.Connection,
    table: str,
    owner: tuple[int, float],
    kinds: Mapping[str, Counts],
) -> None:
    connection.executemany(
        f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(*owner, kind, c.ok, c.rolled_back, c.failed, c.skipped, c.retried) for kind, c in kinds.items()],
    )
