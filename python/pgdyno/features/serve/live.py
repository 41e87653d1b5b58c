"""A running study, followed by reading its results file: what is new since the last reading.

The file is opened for each reading and closed again. So its writer can merge the WAL at any time, and the end
of this process, in any way, has no effect on it.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pgdyno.analysis.comparison import Effect
from pgdyno.analysis.measurement_noise import interim_result
from pgdyno.analysis.statistics.intervals import Method, percent_of, summarize
from pgdyno.errors import EvidenceError
from pgdyno.features.serve.index import is_being_written
from pgdyno.features.serve.stop import request_of
from pgdyno.features.serve.studies import end_of_log
from pgdyno.report.document import ShownCaveat, by_rank
from pgdyno.report.result_tables import change_with_ci
from pgdyno.report.visible_text import visible
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd, StudyRecord
from pgdyno.results.results_file import open_for_reading, state_of, translated
from pgdyno.study.cases import UNLIMITED_S
from pgdyno.units import NS_PER_MS

PERIOD_S = 1.0
"""Time between two readings."""

CPU_SHARE_MAX = 0.001
"""Maximum CPU time of the comparisons of a study, as a share of a core: after many blocks they are rarer."""

TRIALS_MAX = 20
"""Maximum number of earlier trials with which a page begins."""


@dataclass(frozen=True)
class Reading:
    """An interval of the driver: ``at_s`` since 1970, ``p99_ms`` None without a transaction."""

    at_s: float
    arm: str
    measured: bool
    tps: float
    p99_ms: float | None


@dataclass(frozen=True)
class Standing:
    """A comparison after the last block, and after each of its blocks: block, percent, low, high."""

    case: str
    arm: str
    baseline: str
    verdict: str
    change: str
    blocks: int
    history: Sequence[tuple[int, float, float | None, float | None]] = ()


@dataclass(frozen=True)
class Update:
    """Values of a page. Lists that are None have not changed; ``readings`` are only the new ones.

    ``state``: waiting (no file yet), beginning (a process that has not yet written), running, stopping (it
    was requested), stopped (no process writes it), ended. ``ends_unix_s``: latest end by the budget, None
    without a known one. ``blocks_expected``: of all cases within the budget, None before the first block or
    without a limit. ``log``: the last messages of a study that a page has started.
    """

    state: str
    title: str = ""
    case: str = ""
    arms: Sequence[str] = ()
    readings: Sequence[Reading] = ()
    blocks_done: int = 0
    blocks_expected: int | None = None
    ends_unix_s: float | None = None
    standings: Sequence[Standing] | None = None
    caveats: Sequence[str] | None = None
    log: Sequence[str] = ()

    def json(self) -> str:
        """Return the data of an event. Hidden characters of names are shown, as in reports."""
        return json.dumps(_shown(self), ensure_ascii=False, allow_nan=False)


def _shown(value: Any) -> Any:
    match value:
        case str():
            return visible(value)
        case dict():
            return {key: _shown(one) for key, one in value.items()}
        case list() | tuple():
            return [_shown(one) for one in value]
        case Update() | Reading() | Standing():  # asdict takes three times as long
            return _shown(vars(value))
    return value


@dataclass
class _Shared:
    """The comparisons of a study after this number of ``blocks``, for all its pages."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    blocks: int = 0
    standings: Sequence[Standing] = ()
    due_s: float = 0.0  # monotonic time of the next comparisons

    def update(self, blocks: int, compare: Callable[[], Iterator[Standing]], *, is_last: bool) -> None:
        """Compare again after further blocks, if it is the last time or CPU_SHARE_MAX permits it."""
        is_due = is_last or blocks < self.blocks or time.monotonic() >= self.due_s  # fewer: another study
        if blocks != self.blocks and is_due:
            before_s = time.thread_time()
            self.blocks, self.standings = blocks, list(compare())
            self.due_s = time.monotonic() + (time.thread_time() - before_s) / CPU_SHARE_MAX


@cache
def _shared(_path: str, _inode: int) -> _Shared:
    return _Shared()


def state_after(end: StudyEnd | None) -> str:
    """Return the state of a study that no process runs."""
    return "stopped" if end in (None, StudyEnd.INTERRUPTED) else "ended"


@dataclass
class Follower:
    """Reads one results file again and again; its methods are called by one thread at a time."""

    path: Path
    is_beginning: Callable[[Path], bool] = lambda _: False
    _state: tuple[object, ...] | None = None
    _since: dict[int, float] = field(default_factory=dict)  # trial → begin of its last interval
    _first: int | None = None  # trials before it are complete
    _epochs: dict[int, float] = field(default_factory=dict)
    _studies: dict[int, StudyRecord] = field(default_factory=dict)
    _compared: int = 0  # blocks in the comparisons of the last update
    _again_s: float = math.inf  # monotonic time when later blocks are compared
    _caveats: tuple[int, int] | None = None  # case and number in the file

    def update(self) -> Update | None:
        """Return what is new; None if nothing has changed."""
        log, is_beginning = end_of_log(self.path), self.is_beginning(self.path)
        doing = "beginning" if is_beginning else "running" if is_being_written(self.path) else ""
        if doing and request_of(self.path).exists():
            doing = "stopping"
        state = state_of(self.path), doing, log
        if state == self._state and time.monotonic() < self._again_s:
            return None
        self._state = state
        with suppress(EvidenceError, OSError):  # not complete yet, or removed
            return replace(self._read(doing, is_beginning=is_beginning), log=log)
        return Update(doing or "waiting", log=log)

    def _read(self, doing: str, *, is_beginning: bool) -> Update:
        with translated(self.path), closing(open_for_reading(self.path, verify=False)) as connection:
            studies = connection.execute(query("study")).fetchall()
            if not studies:
                raise EvidenceError(f"{self.path} has no study")
            ((title, end, n_caveats, total_s),) = studies
            blocks = connection.execute(query("blocks")).fetchall()
            case, readings = self._new(connection)
        done = sum(n for _, is_own, n, *_ in blocks if is_own)
        study = self._study(case)
        standings = caveats = None
        shared = _shared(str(self.path), self.path.stat().st_ino)
        with shared.lock:
            shared.update(done, self._standings, is_last=bool(end or not doing))
            if shared.blocks != self._compared:
                self._compared, standings = shared.blocks, shared.standings
            self._again_s = shared.due_s if shared.blocks != done else math.inf
        if (case, n_caveats) != self._caveats:
            caveats = self._shown_caveats(case)
            self._caveats = case, n_caveats
        spent_s = sum(total or 0.0 for *_, total, _, _ in blocks)
        begun = [one for *_, one in blocks if one is not None]
        since = min(begun) if begun else max((at for *_, at, _ in blocks if at), default=study.created_unix_s)
        budget_s = total_s if total_s < UNLIMITED_S else None
        expected = None
        if done and spent_s and not end:
            most = study.plan.blocks_max
            limits = [] if most is None else [most * len(self._studies)]
            limits += [] if budget_s is None else [max(done, round(done * budget_s / spent_s))]
            expected = min(limits, default=None)
        return Update(
            doing if doing and (is_beginning or not end) else state_after(end),
            title,
            study.case,
            [arm.name for arm in study.plan.arms],
            readings,
            done,
            expected,
            None if end or budget_s is None else since + max(0.0, budget_s - spent_s),
            standings,
            caveats,
        )

    def _new(self, connection: sqlite3.Connection) -> tuple[int, list[Reading]]:
        """Return the case of the last trial, and the new intervals of its trials."""
        if self._first is None:
            ((self._first,),) = connection.execute(query("last_trials"), (TRIALS_MAX,))
        trials = connection.execute(query("trials"), (self._first,)).fetchall()
        if not trials:
            return 0, []
        last_case = trials[-1][2]
        new = {
            trial: connection.execute(query("intervals"), (trial, self._since.get(trial, -1.0))).fetchall()
            for trial, *_ in trials
        }
        self._since |= {trial: rows[-1][0] for trial, rows in new.items() if rows}
        readings = [
            one
            for trial, _, case, block, arm, epoch_unix_s in trials
            if new[trial] and case == last_case
            for one in _readings(arm, epoch_unix_s or self._epoch((case, block), trials, new), new[trial])
        ]
        running = [trial for trial, status, *_ in trials if status == "running"]
        self._first = min([*running, trials[-1][0]])
        return last_case, readings

    def _epoch(
        self, place: tuple[int, int], trials: Sequence[Sequence[Any]], new: Mapping[int, Sequence[Any]]
    ) -> float:
        """Return about when the driver of a block's running trials began: all of them have one driver.

        The file has the time from the end of the trials on.
        """
        running = [of[0] for of in trials if tuple(of[2:4]) == place and of[5] is None]
        last_s = max(row[1] for trial in running for row in new[trial])
        return self._epochs.setdefault(running[0], time.time() - last_s)

    def _study(self, case: int) -> StudyRecord:
        if case not in self._studies:
            with Evidence(self.path, verify=False) as evidence:
                self._studies = {of: evidence.study(of) for of in evidence.cases()}
        return self._studies[case]

    def _standings(self) -> Iterator[Standing]:
        """Yield the comparisons of the cases that have blocks."""
        with Evidence(self.path, verify=False) as evidence:
            for case, study in self._studies.items():
                if not evidence.blocks(case):
                    continue
                found = interim_result(evidence, case)
                for of in found.comparisons:
                    yield Standing(
                        study.case,
                        of.arm.name,
                        of.baseline.name,
                        str(of.verdict),
                        change_with_ci(of.primary.percent) if of.primary else "no valid block yet",
                        of.primary.summary.n if of.primary else 0,
                        list(_narrowing(of.primary, found.method)) if of.primary else [],
                    )

    def _shown_caveats(self, case: int) -> list[str]:
        with Evidence(self.path, verify=False) as evidence:
            newest = {one.code: one for one in evidence.caveats(case)}  # some are raised in each block
        shown = by_rank(ShownCaveat.of(one) for one in newest.values())
        return [f"{one.sentence} {one.remedy}".strip() for one in shown]


def _readings(
    arm: str, epoch_s: float, rows: Sequence[tuple[float, float, int, int | None, int]]
) -> Iterator[Reading]:
    for from_s, to_s, executed, p99_ns, measured in rows:
        if to_s > from_s:
            p99_ms = None if p99_ns is None else p99_ns / NS_PER_MS
            yield Reading(epoch_s + to_s, arm, bool(measured), executed / (to_s - from_s), p99_ms)


def _narrowing(of: Effect, method: Method) -> Iterator[tuple[int, float, float | None, float | None]]:
    """Yield the change after each block in percent, with its interval. The last is that of the verdict."""
    ratios = list(of.log_ratios.values())
    for n in range(1, len(ratios) + 1):
        found = summarize(ratios[:n], of.summary.confidence, method)
        low, high = (None if end is None else percent_of(end) for end in (found.low, found.high))
        yield n, percent_of(found.mean), low, high


@cache
def query(name: str) -> str:
    """Return a query of this package."""
    return files(__package__).joinpath("sql", f"{name}.sql").read_text("utf-8")
