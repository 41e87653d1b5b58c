"""Reader of a results file, also while it is being written: each method returns the current state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import EvidenceError, in_one_line
from pgdyno.results import results_file
from pgdyno.results.codec import unpack_json, unpack_pairs, unpack_points, unpack_text
from pgdyno.results.records import (
    Arm,
    Block,
    BlockStatus,
    Check,
    Counts,
    Executed,
    Failure,
    Guarantee,
    Histogram,
    Interval,
    Kept,
    Measure,
    Moment,
    Points,
    SampleSeries,
    Slice,
    StoredReading,
    StudyEnd,
    StudyRecord,
    Trial,
    TrialStatus,
    driver_facts_from_json,
)
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.study.sizing import Absence

OF_CASE = "WHERE trial IN (SELECT trial FROM trial WHERE case_id = ?)"


class Evidence:
    """An open results file of a study. Raises EvidenceError if it is damaged, has another version or is
    another file. Crash tests have a reader of their own.
    """

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        """Open and check the file. ``verify``: also compare the checksums, which reads the whole file."""
        self.path = path
        self._connection = results_file.open_for_reading(path, verify=verify)
        self._connection.row_factory = sqlite3.Row
        with results_file.translated(path):
            if self._connection.execute("SELECT 1 FROM study").fetchone() is None and self._has_crash_test():
                self.close()
                raise EvidenceError(
                    f"{path} has a crash test, not a study: show it with pgdyno report {path}"
                )

    def _has_crash_test(self) -> bool:
        return self._connection.execute("SELECT 1 FROM crash_test").fetchone() is not None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Close at the end of a with block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, also after an exception."""
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read within the block from one snapshot, so that the report of a running study is consistent."""
        with results_file.translated(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def cases(self) -> list[int]:
        """Return the numbers of the cases: 0, 1, … Cases of hidden A/A blocks are excluded."""
        rows = self._rows("SELECT case_id FROM study_case WHERE aa_of IS NULL ORDER BY case_id")
        return [row["case_id"] for row in rows]

    def aa_cases(self) -> dict[int, int]:
        """Return the case numbers of hidden A/A blocks, each with the case whose arm they duplicate.

        Every method accepts these numbers. Arm 1 is the duplicate of arm 0.
        """
        rows = self._rows("SELECT case_id, aa_of FROM study_case WHERE aa_of IS NOT NULL ORDER BY case_id")
        return {row["case_id"]: row["aa_of"] for row in rows}

    def study(self, case: int = 0) -> StudyRecord:
        """Return the study with the values of one of its cases."""
        rows = self._rows("SELECT * FROM study, study_case WHERE case_id = ?", case)
        if len(rows) != 1:
            raise EvidenceError(f"{self.path} contains no study: restore it from a copy")
        row = rows[0]
        with self._validated():
            return StudyRecord(
                title=row["title"],
                created_unix_s=row["created_unix_s"],
                pgdyno_version=row["pgdyno_version"],
                engine=self._json(row["engine"]),
                command=row["command"],
                plan=Study.model_validate_json(row["plan"]),
                host=self._json(row["host"]),
                ended_unix_s=row["ended_unix_s"],
                ended_because=None if row["ended_because"] is None else StudyEnd(row["ended_because"]),
                case=row["name"],
                levels=self._json(row["levels"]),
                file=row["file"],
                changes=self._json(row["changes"]),
                published=self._json(row["published"]),
                arm_levels=self._json(row["arm_levels"]),
                why_no_aa=row["why_no_aa"],
                aa_of=row["aa_of"],
                aa_arm=row["aa_arm"],
                aa_before=self._json(row["aa_before"]),
            )

    def arms(self, case: int = 0) -> list[Arm]:
        """Return the arms of a case, the baseline first."""
        with self._validated():
            return [
                Arm(
                    arm=row["arm"],
                    name=row["name"],
                    spec=row["spec"],
                    server=self._json(row["server"]),
                    settings_requested=self._json(row["settings_requested"]),
                    safety=[_badge(**facts) for facts in self._json(row["safety"])],
                    workload=self._json(row["workload"]),
                    clients=row["clients"],
                    dataset=self._json(row["dataset"]),
                )
                for row in self._rows("SELECT * FROM arm WHERE case_id = ? ORDER BY arm", case)
            ]

    def blocks(self, case: int = 0) -> list[Block]:
        """Return the blocks of a case that have started, in the order of the plan."""
        with self._validated():
            return [
                Block(
                    block=row["block"],
                    seed=row["seed"],
                    arm_order=self._json(row["arm_order"]),
                    started_unix_s=row["started_unix_s"],
                    status=BlockStatus(row["status"]),
                    ended_unix_s=row["ended_unix_s"],
                    case=case,
                )
                for row in self._rows("SELECT * FROM block WHERE case_id = ? ORDER BY block", case)
            ]

    def trials(self, case: int = 0, *, all_attempts: bool = False) -> list[Trial]:
        """Return the trials of a case, sorted by block, arm and attempt.

        Without ``all_attempts``, only the last attempt of each block and arm is returned.
        """
        slices, failures, checks = self._slices(case), self._failures(case), self._checks(case)
        with self._validated():
            every = [
                Trial(
                    trial=row["trial"],
                    block=row["block"],
                    arm=row["arm"],
                    attempt=row["attempt"],
                    status=TrialStatus(row["status"]),
                    reason=row["reason"],
                    log_error=row["log_error"],
                    started_unix_s=row["started_unix_s"],
                    ended_unix_s=row["ended_unix_s"],
                    epoch_unix_s=row["epoch_unix_s"],
                    restore_s=row["restore_s"],
                    start_s=row["start_s"],
                    server_cpu_s=row["server_cpu_s"],
                    transactions=row["transactions"],
                    counters=self._json(row["counters"]),
                    driver_memory_bytes=row["driver_memory_bytes"],
                    driver=driver_facts_from_json(row["driver"]),
                    settings=self._json(row["settings"]),
                    slices=slices.get(row["trial"], []),
                    failures=failures.get(row["trial"], []),
                    checks=checks.get(row["trial"], []),
                    recovery_s=row["recovery_s"],
                    restart_s=row["restart_s"],
                    probe_cpu_s=row["probe_cpu_s"],
                )
                for row in self._rows(
                    "SELECT * FROM trial WHERE case_id = ? ORDER BY block, arm, attempt", case
                )
            ]
        last = _without_superseded(list({(trial.block, trial.arm): trial for trial in every}.values()))
        if not all_attempts:
            return last
        by_id = {trial.trial: trial for trial in last}
        return [by_id.get(trial.trial, trial) for trial in every]

    def intervals(self, trial: int) -> list[Interval]:
        """Return the intervals that the driver streamed, sorted by time."""
        kinds = self._counts("interval_count", "from_s", "WHERE trial = ?", trial)
        with self._validated():
            return [
                Interval(
                    position=row["position"],
                    role=Role(row["role"]),
                    from_s=row["from_s"],
                    to_s=row["to_s"],
                    kinds=kinds.get((trial, row["from_s"]), {}),
                    latency_p50_ns=row["latency_p50_ns"],
                    latency_p95_ns=row["latency_p95_ns"],
                    latency_p99_ns=row["latency_p99_ns"],
                    latency_max_ns=row["latency_max_ns"],
                )
                for row in self._rows("SELECT * FROM interval WHERE trial = ? ORDER BY from_s", trial)
            ]

    def executed(self, trial: int) -> Executed:
        """Return the number of transactions of all kinds in each interval, sorted by time."""
        query = (
            "SELECT role = 'measure', from_s, to_s, executed FROM interval WHERE trial = ? ORDER BY from_s"
        )
        with self._validated(), self._tuples(query, trial) as rows:
            numbers = np.fromiter(chain.from_iterable(rows), dtype=np.float64)
        measured, from_s, to_s, n = numbers.reshape(-1, 4).T
        return Executed(measured > 0, from_s, to_s, n)

    def histograms(self, trial: int, measure: Measure) -> list[Histogram]:
        """Return one histogram per kind of transaction."""
        query = "SELECT kind, n, pairs FROM histogram WHERE trial = ? AND measure = ? ORDER BY kind"
        return [
            Histogram(row["kind"], measure, unpack_pairs(row["pairs"], row["n"]))
            for row in self._rows(query, trial, measure)
        ]

    def tally(self, trial: int) -> Mapping[str, Any] | None:
        """Return the counters of the workload, or None."""
        blobs = [row["tally"] for row in self._rows("SELECT tally FROM trial WHERE trial = ?", trial)]
        return unpack_json(blobs[0]) if blobs and blobs[0] is not None else None

    def server_log(self, trial: int) -> str:
        """Return the server log of the trial; empty if none was stored."""
        return "".join(
            unpack_text(row["text"]) for row in self._rows("SELECT text FROM log WHERE trial = ?", trial)
        )

    def readings(self, trial: int) -> list[StoredReading]:
        """Return the readings of the probes, sorted by probe and time."""
        query = "SELECT * FROM reading WHERE trial = ? ORDER BY probe, at_s"
        with self._validated():
            return [
                StoredReading(
                    probe=row["probe"],
                    moment=Moment(row["moment"]),
                    at_s=row["at_s"],
                    took_s=row["took_s"],
                    rows=None if row["found"] is None else unpack_json(row["found"]),
                    reason=row["reason"],
                    absence=None if row["absence"] is None else Absence(row["absence"]),
                )
                for row in self._rows(query, trial)
            ]

    def series(self, trial: int) -> dict[str, SampleSeries]:
        """Return the sampled series by probe."""
        query = "SELECT probe, columns, points FROM series WHERE trial = ? ORDER BY probe, from_s"
        with self._tuples(query, trial) as found:
            rows = list(found)
        with self._validated():
            columns = {text: self._json(text) for text in dict.fromkeys(text for _, text, _ in rows)}
            chunks = [
                (probe, columns[text], unpack_points([points for *_, points in group], len(columns[text])))
                for (probe, text), group in groupby(rows, key=lambda row: (str(row[0]), row[1]))
            ]
            return {
                probe: concatenate_chunks(probe, [(names, points) for _, names, points in group])
                for probe, group in groupby(chunks, key=lambda chunk: chunk[0])
            }

    def caveats(self, case: int = 0) -> list[Caveat]:
        """Return the stored caveats of a case. The analysis adds the caveats that it computes."""
        with self._validated():
            return [
                Caveat(Code(row["code"]), self._json(row["parameters"]), row["trial"])
                for row in self._rows("SELECT * FROM caveat WHERE case_id = ? ORDER BY caveat", case)
            ]

    def _slices(self, case: int) -> dict[int, list[Slice]]:
        kinds = self._counts("slice_count", "position", OF_CASE, case)
        rows = self._rows(f"SELECT * FROM slice {OF_CASE} ORDER BY trial, position", case)
        with self._validated():
            return {
                trial: [
                    Slice(
                        position=row["position"],
                        role=Role(row["role"]),
                        opened_s=row["opened_s"],
                        counted_from_s=row["counted_from_s"],
                        closed_s=row["closed_s"],
                        drained_s=row["drained_s"],
                        driver_cpu_user_s=row["driver_cpu_user_s"],
                        driver_cpu_system_s=row["driver_cpu_system_s"],
                        kinds=kinds.get((trial, row["position"]), {}),
                    )
                    for row in group
                ]
                for trial, group in groupby(rows, key=lambda row: int(row["trial"]))
            }

    def _failures(self, case: int) -> dict[int, list[Failure]]:
        rows = self._rows(f"SELECT * FROM failure {OF_CASE} ORDER BY trial, kind, sqlstate", case)
        return {
            trial: [Failure(row["kind"], row["sqlstate"], row["n"], row["sample"]) for row in group]
            for trial, group in groupby(rows, key=lambda row: int(row["trial"]))
        }

    def _checks(self, case: int) -> dict[int, list[Check]]:
        rows = self._rows(f"SELECT * FROM check_result {OF_CASE} ORDER BY trial, name", case)
        return {
            trial: [
                Check(
                    row["name"],
                    row["passed"] != 0,
                    row["statistic"],
                    row["p_value"],
                    row["detail"],
                    skipped=row["passed"] is None,
                )
                for row in group
            ]
            for trial, group in groupby(rows, key=lambda row: int(row["trial"]))
        }

    def _counts(
        self, table: str, owner: str, where: str = "", *values: object
    ) -> dict[tuple[int, float], dict[str, Counts]]:
        found: dict[tuple[int, float], dict[str, Counts]] = {}
        for row in self._rows(f"SELECT * FROM {table} {where} ORDER BY trial, {owner}, kind", *values):
            counts = Counts(row["ok"], row["rolled_back"], row["failed"], row["skipped"], row["retried"])
            found.setdefault((row["trial"], row[owner]), {})[row["kind"]] = counts
        return found

    @contextmanager
    def _tuples(self, query: str, *values: object) -> Iterator[Iterator[tuple[Any, ...]]]:
        """Yield the rows of a large result one by one, as tuples."""
        with results_file.translated(self.path):
            cursor = self._connection.cursor()
            cursor.row_factory = None
            yield cursor.execute(query, values)

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with results_file.translated(self.path):
            return self._connection.execute(query, values).fetchall()

    def _json(self, text: str) -> Any:
        with self._validated():
            return json.loads(text)

    @contextmanager
    def _validated(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise EvidenceError(
                f"{self.path} has an invalid value ({in_one_line(error)}): restore it from a copy"
            ) from error


def _without_superseded(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials of a case; those with a shorter warm-up than later ones do not count.

    A failed or interrupted trial supersedes nothing.
    """
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    most = max(map(_warm_up_times, ok), default=1)
    return [
        replace(trial, status=TrialStatus.SUPERSEDED)
        if trial.status is TrialStatus.OK and _warm_up_times(trial) < most
        else trial
        for trial in trials
    ]


def _warm_up_times(trial: Trial) -> int:
    return 1 if trial.driver.warm_up is None else trial.driver.warm_up.times


def concatenate_chunks(probe: str, chunks: Sequence[tuple[Sequence[str], Points]]) -> SampleSeries:
    """Concatenate chunks. A column that a chunk does not have is NaN there."""
    columns = list(dict.fromkeys(name for names, _ in chunks for name in names))
    if len(chunks) == 1:
        return SampleSeries(probe, columns, chunks[0][1])
    whole = np.full((sum(len(points) for _, points in chunks), len(columns)), np.nan)
    begin = 0
    for names, points in chunks:
        whole[begin : begin + len(points), [columns.index(name) for name in names]] = points
        begin += len(points)
    return SampleSeries(probe, columns, whole)


def _badge(name: str, kept: str, text: str) -> Guarantee:
    return Guarantee(name, Kept(kept), text)
