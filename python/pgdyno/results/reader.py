"""Reader of a results file, also while it is being written: each method returns the current state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Self

import numpy as np

from pgdyno.caveats import Caveat
from pgdyno.errors import EvidenceError
from pgdyno.results import results_file
from pgdyno.results.codec import R, select
from pgdyno.results.records import (
    Arm,
    Block,
    CaseRow,
    Executed,
    Histogram,
    Interval,
    Measure,
    SampleSeries,
    ServerLog,
    StoredCaveat,
    StoredReading,
    StudyRecord,
    StudyRow,
    Trial,
    TrialStatus,
)


class Evidence:
    """An open results file of a study. Raises EvidenceError if it is damaged, has another version or is
    another file. Crash tests have a reader of their own.
    """

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        """Open and check the file. ``verify``: also compare the checksums, which reads the whole file."""
        self.path = path
        self._connection = results_file.open_for_reading(path, verify=verify)
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

    def __exit__(self, *_: object) -> None:
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
        return [case for (case,) in rows]

    def aa_cases(self) -> dict[int, int]:
        """Return the case numbers of hidden A/A blocks, each with the case whose arm they duplicate.

        Every method accepts these numbers. Arm 1 is the duplicate of arm 0.
        """
        return dict(
            self._rows("SELECT case_id, aa_of FROM study_case WHERE aa_of IS NOT NULL ORDER BY case_id")
        )

    def study(self, case: int = 0) -> StudyRecord:
        """Return the study with the values of one of its cases."""
        studies, cases = self._select(StudyRow), self._select(CaseRow, "case_id = ?", case)
        if len(studies) != 1 or len(cases) != 1:
            raise EvidenceError(f"{self.path} contains no study: restore it from a copy")
        return StudyRecord(**vars(studies[0]), **vars(cases[0]))

    def arms(self, case: int = 0) -> list[Arm]:
        """Return the arms of a case, the baseline first."""
        return self._select(Arm, "case_id = ?", case)

    def blocks(self, case: int = 0) -> list[Block]:
        """Return the blocks of a case that have started, in the order of the plan."""
        return self._select(Block, "case_id = ?", case)

    def trials(self, case: int = 0, *, all_attempts: bool = False) -> list[Trial]:
        """Return the trials of a case, sorted by block, arm and attempt.

        Without ``all_attempts``, only the last attempt of each block and arm is returned.
        """
        every = self._select(Trial, "case_id = ?", case)
        last = without_superseded(list({(trial.block, trial.arm): trial for trial in every}.values()))
        if not all_attempts:
            return last
        by_id = {trial.trial: trial for trial in last}
        return [by_id.get(trial.trial, trial) for trial in every]

    def intervals(self, trial: int) -> list[Interval]:
        """Return the intervals that the driver streamed, sorted by time."""
        return self._select(Interval, "trial = ?", trial)

    def executed(self, trial: int) -> Executed:
        """Return the number of transactions of all kinds in each interval, sorted by time."""
        query = (
            "SELECT role = 'measure', from_s, to_s, executed FROM interval WHERE trial = ? ORDER BY from_s"
        )
        with results_file.validated(self.path):
            rows = self._connection.execute(query, (trial,))
            numbers = np.fromiter(chain.from_iterable(rows), dtype=np.float64)
        measured, from_s, to_s, n = numbers.reshape(-1, 4).T
        return Executed(measured > 0, from_s, to_s, n)

    def histograms(self, trial: int, measure: Measure) -> list[Histogram]:
        """Return one histogram per kind of transaction."""
        return self._select(Histogram, "trial = ? AND measure = ?", trial, measure)

    def server_log(self, trial: int) -> str:
        """Return the server log of the trial; empty if none was stored."""
        return "".join(log.text for log in self._select(ServerLog, "trial = ?", trial))

    def readings(self, trial: int) -> list[StoredReading]:
        """Return the readings of the probes, sorted by probe and time."""
        return self._select(StoredReading, "trial = ?", trial, order="probe, at_s")

    def series(self, trial: int) -> dict[str, SampleSeries]:
        """Return the sampled series by probe."""
        chunks = self._select(SampleSeries, "trial = ?", trial)
        return {
            probe: concatenated(probe, list(of)) for probe, of in groupby(chunks, key=lambda one: one.probe)
        }

    def caveats(self, case: int = 0) -> list[Caveat]:
        """Return the stored caveats of a case. The analysis adds the caveats that it computes."""
        stored = self._select(StoredCaveat, "case_id = ?", case)
        with results_file.validated(self.path):
            return [Caveat.of(one.code, one.trial, **one.parameters) for one in stored]

    def _select(self, kind: type[R], where: str = "TRUE", *of: object, order: str = "") -> list[R]:
        with results_file.validated(self.path):
            return select(self._connection, kind, where, *of, order=order)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with results_file.validated(self.path):
            return self._connection.execute(query).fetchall()


def without_superseded(trials: Sequence[Trial]) -> list[Trial]:
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


def concatenated(probe: str, chunks: Sequence[SampleSeries]) -> SampleSeries:
    """Concatenate chunks. A column that a chunk does not have is NaN there.

    The columns are contiguous in memory, because the analysis reads them one by one.
    """
    first = chunks[0].columns
    if all(chunk.columns == first for chunk in chunks):
        return SampleSeries(probe, first, np.concatenate([chunk.points.T for chunk in chunks], axis=1).T)
    columns = list(dict.fromkeys(name for chunk in chunks for name in chunk.columns))
    whole = np.full((len(columns), sum(len(chunk.points) for chunk in chunks)), np.nan)
    begin = 0
    for chunk in chunks:
        end = begin + len(chunk.points)
        whole[[columns.index(name) for name in chunk.columns], begin:end] = chunk.points.T
        begin = end
    return SampleSeries(probe, columns, whole.T)
