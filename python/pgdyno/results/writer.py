"""Writer of a results file. Every method is one transaction, so the file stays valid after a kill.

The order of calls::

    writer = Writer.create(path, study, arms)        # or Writer.resume(path)
    writer.begin_block(block)
        trial = writer.begin_trial(block, arm, started_unix_s)      # one for each arm
        writer.add_interval(trial, interval) …  writer.add_slice(trial, piece) …
        writer.finish_trial(trial, outcome)
    writer.finish_block(block, status, ended_unix_s)
    writer.finish_study(ending, ended_unix_s)
    writer.close()

A trial that has started and not finished is ``running``. ``resume`` sets it to ``interrupted``, and
``measure`` repeats its block.
"""

from __future__ import annotations

import glob
import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from pgdyno.caveats import Caveat
from pgdyno.errors import EvidenceError, EvidenceExistsError
from pgdyno.results import results_file
from pgdyno.results.codec import Record, insert, select, update
from pgdyno.results.password_masking import masked_json
from pgdyno.results.records import (
    Arm,
    Block,
    BlockStatus,
    CaseRow,
    Guarantee,
    Interval,
    Json,
    SampleSeries,
    ServerLog,
    Slice,
    StoredCaveat,
    StudyEnd,
    StudyRecord,
    StudyRow,
    Trial,
    TrialOutcome,
    TrialStatus,
)
from pgdyno.results.results_file import ChecksumUpdater, WriterLock
from pgdyno.study.plan import Study

_TEMPORARY_SUFFIX = re.compile(r"\.[0-9a-f]{16}\.new(-journal|-wal|-shm)?")
"""Suffix of the temporary name of a results file during its creation. It cannot be guessed."""


class Writer:
    """The only writer of a results file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock) -> None:
        """Use ``create`` or ``resume``."""
        self.path = path
        self._connection = connection
        self._lock = lock
        with results_file.translated(path):
            self._checksums = ChecksumUpdater(connection)

    @classmethod
    def create(
        cls, path: Path, study: StudyRecord, arms: Sequence[Arm], *further: tuple[StudyRecord, Sequence[Arm]]
    ) -> Self:
        """Create a file with a study and its arms. Raises EvidenceExistsError if the path exists.

        The file appears under its name only after the study and its arms are written. ``further`` are the
        cases after the first: the study with the values of each case, and its arms.
        """
        cases = [(study, arms), *further]
        for _, of_case in cases:
            if [arm.arm for arm in of_case] != list(range(len(of_case))) or not of_case:
                raise ValueError("arms must be numbered 0, 1, … from the baseline")
        return cls._create(path, lambda writer: writer._insert_study(cases))

    @classmethod
    def _create(cls, path: Path, fill: Callable[[Self], None]) -> Self:
        lock = WriterLock(path)
        try:
            if path.exists():
                raise EvidenceExistsError(path)
            _remove_abandoned(path)
            # A unique name: another file at this path would not be pgdyno's to remove.
            temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
            try:
                cls._make(temporary, fill, lock)
                _take_name(temporary, path)
            finally:
                _remove_temporary(temporary)
            return cls(path, results_file.open_for_writing(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _make(cls, path: Path, fill: Callable[[Self], None], lock: WriterLock) -> None:
        results_file.create(path)
        writer = cls(path, results_file.open_for_writing(path), lock)
        try:
            fill(writer)
        finally:
            writer._settle_in_one_file()
            writer._connection.close()

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Open an existing file to continue its study. Running trials and blocks are set to interrupted."""

        def reopen(writer: Self) -> None:
            with writer._transaction() as connection:
                reason = "pgdyno ended during the trial"
                connection.execute(
                    "UPDATE trial SET status = 'interrupted', reason = ? WHERE status = 'running'", (reason,)
                )
                connection.execute("UPDATE block SET status = 'interrupted' WHERE status = 'running'")
                connection.execute("UPDATE study SET ended_unix_s = NULL, ended_because = NULL")

        return cls._open(path, reopen)

    @classmethod
    def _open(cls, path: Path, change: Callable[[Self], None]) -> Self:
        """Open an existing file and change it."""
        results_file.require_file(path)
        lock = WriterLock(path)
        try:
            writer = cls(path, results_file.open_for_writing(path), lock)
            change(writer)
            return writer
        except BaseException:
            lock.release()
            raise

    def describe_arm(self, arm: int, *, safety: Sequence[Guarantee], case: int = 0) -> None:
        """Replace the guarantees of an arm, which are unknown before its first start."""
        self._update(Arm, {"safety": safety}, "case_id = ? AND arm = ?", case, arm)

    def note_more_time(self, budget_s: float, *, may_go_on: bool = True) -> None:
        """Store the budget of every case and its A/A blocks, and if blocks may follow, that it was added."""
        changes = "'$.budget_s', ?" + (", '$.resumed_for_more', json('true')" if may_go_on else "")
        with self._transaction() as connection:
            connection.execute(f"UPDATE study_case SET plan = json_set(plan, {changes})", (budget_s,))

    def repeat_with(self, plan: Study, case: int) -> None:
        """Replace the plan of a case, whose blocks so far are to be repeated with it.

        A/A blocks of earlier studies had another load and no longer apply.
        """
        with self._transaction() as connection:
            values = {"plan": plan.without_passwords(), "aa_before": ()}
            update(connection, CaseRow, values, "case_id = ?", case)
            for table in ("block", "trial"):
                connection.execute(f"UPDATE {table} SET status = 'interrupted' WHERE case_id = ?", (case,))

    def add_machine_state(self, state: Json) -> None:
        """Append the state of the machine before or after the study to ``states`` of its host."""
        with self._transaction() as connection:
            (study,) = select(connection, StudyRow)
            states = [*study.host.get("states", ()), state]
            update(connection, StudyRow, {"host": {**study.host, "states": states}}, "TRUE")

    def begin_block(self, block: Block) -> None:
        """Store the start of a block, also its repetition after an interruption."""
        with self._transaction() as connection:
            key = ("case_id = ? AND block = ?", block.case, block.block)
            if not update(connection, Block, vars(block), *key):
                insert(connection, block)

    def finish_block(self, block: int, status: BlockStatus, ended_unix_s: float, case: int = 0) -> None:
        """Store the end of a block."""
        values = {"status": status, "ended_unix_s": ended_unix_s}
        self._update(Block, values, "case_id = ? AND block = ?", case, block)

    def begin_trial(self, block: int, arm: int, started_unix_s: float, case: int = 0) -> int:
        """Store the start of one arm's part of a block, at its restore. Return the ID of the trial."""
        with self._transaction() as connection:
            row = connection.execute(
                "INSERT INTO trial (case_id, block, arm, attempt, status, started_unix_s) SELECT ?1, ?2, ?3, "
                "1 + coalesce(max(attempt), 0), 'running', ?4 FROM trial "
                "WHERE case_id = ?1 AND block = ?2 AND arm = ?3 RETURNING trial",
                (case, block, arm, started_unix_s),
            ).fetchone()
        return int(row[0])

    def add_slice(self, trial: int, piece: Slice) -> None:
        """Store a drained slice."""
        with self._transaction() as connection:
            insert(connection, piece, trial)

    def add_interval(self, trial: int, interval: Interval) -> None:
        """Store an interval from the driver."""
        with self._transaction() as connection:
            insert(connection, interval, trial)

    def add_series(self, trial: int, series: SampleSeries) -> None:
        """Store samples of a probe, about ten minutes of them."""
        with self._transaction() as connection:
            insert(connection, series, trial)

    def finish_trial(self, trial: int, outcome: TrialOutcome) -> None:
        """Store the results of a trial in one transaction, then flush them to disk.

        Raises ValueError if the trial is not running.
        """
        if outcome.status is TrialStatus.RUNNING:
            raise ValueError("the status of a finished trial must not be running")
        with self._transaction() as connection:
            running = "trial = ? AND status = 'running'"
            if update(connection, Trial, vars(outcome), running, trial) != 1:
                raise ValueError(f"trial {trial} is not running")
            for record in (*outcome.failures, *outcome.histograms, *outcome.checks, *outcome.readings):
                insert(connection, record, trial)
            if outcome.server_log:
                insert(connection, ServerLog(outcome.server_log), trial)
        self._checkpoint()

    def add_caveat(self, caveat: Caveat, case: int = 0) -> None:
        """Store a caveat. Duplicates are ignored."""
        parameters = json.loads(masked_json(caveat.parameters))
        stored = StoredCaveat(caveat.trial, caveat.code, parameters)
        alike = "case_id = ? AND trial IS ? AND code = ?"
        with self._transaction() as connection:
            if stored not in select(connection, StoredCaveat, alike, case, caveat.trial, caveat.code):
                insert(connection, stored, None, case)

    def finish_study(self, ending: StudyEnd, ended_unix_s: float) -> None:
        """Store the end of the study and its reason."""
        self._update(StudyRow, {"ended_unix_s": ended_unix_s, "ended_because": ending})

    def close(self) -> None:
        """Merge the WAL into the file if no reader prevents it, close it, and release the lock."""
        try:
            if self._settle_in_one_file():
                self._connection.close()
                with suppress(EvidenceError):  # a file that was damaged meanwhile gets no digest
                    results_file.open_for_reading(self.path).close()
                    results_file.store_bytes_digest(self.path)
        finally:
            self._connection.close()
            self._lock.release()

    def __enter__(self) -> Self:
        """Close at the end of a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close, also after an exception."""
        self.close()

    def _insert_study(self, cases: Sequence[tuple[StudyRecord, Sequence[Arm]]]) -> None:
        with self._transaction() as connection:
            insert(connection, cases[0][0], 1, kind=StudyRow)
            for case, (study, arms) in enumerate(cases):
                insert(connection, study, case, kind=CaseRow)
                for arm in arms:
                    insert(connection, arm, case)

    def _update(
        self, kind: type[Record], values: Mapping[str, object], where: str = "TRUE", *of: object
    ) -> None:
        with self._transaction() as connection:
            update(connection, kind, values, where, *of)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with results_file.translated(self.path), self._checksums.kept():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._checksums.store()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _checkpoint(self) -> None:
        with results_file.translated(self.path):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _settle_in_one_file(self) -> bool:
        """Return whether it succeeded. Else a reader is active: it sees everything, and the file stays valid
        in WAL mode.
        """
        try:
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            return False
        return True


def _remove_temporary(path: Path) -> None:
    """Remove the file and SQLite's companion files."""
    for companion in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + companion).unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of killed writers of this file. The lock is held, so no writer is active."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.new*"):
        if _TEMPORARY_SUFFIX.fullmatch(left.name.removeprefix(path.name)):
            left.unlink(missing_ok=True)


def _take_name(temporary: Path, path: Path) -> None:
    """Rename without replacing a file that another process has created: a hard link never replaces one."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError as error:
        raise EvidenceExistsError(path) from error
    except OSError:  # the file system has no hard links
        temporary.rename(path)
