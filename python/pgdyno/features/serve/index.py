"""The results files below a directory: read once, and again when they change; analyzed in a thread.

- Entries: what is known of a file at once, and its analysis, which takes from 0.1 s to seconds.
- The index: files by an identifier, which is a part of addresses.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from os import fsencode
from pathlib import Path

import psutil

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.study_findings import MetricVerdict, StudyFindings
from pgdyno.caveats import Rank
from pgdyno.cli.report import REPORTS, read_report
from pgdyno.errors import EvidenceError
from pgdyno.features.python_api.outcome import finished_blocks, read_run
from pgdyno.report.document import FileReport
from pgdyno.results.results_file import open_for_reading, state_of

# ----------------------------------------------------------------------
# Entries: what is known of a file at once, and its analysis, which takes from 0.1 s to seconds.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The analysis of a file in a row. ``answer``: of a file without a comparison, or the error."""

    verdicts: Sequence[MetricVerdict] = ()
    margin: float = 0.0
    caveats: int = 0
    serious: int = 0
    answer: str = ""

    @property
    def counts(self) -> list[tuple[Verdict, int]]:
        """Number of comparisons by verdict."""
        return Counter(one.verdict for one in self.verdicts).most_common()

    @property
    def largest_percent(self) -> float:
        """The largest change of any comparison, without its sign; −1 without any."""
        return max((abs(one.percent.value) for one in self.verdicts if one.percent), default=-1.0)


@dataclass(frozen=True)
class Entry:
    """A results file. ``summary``: None until it is analyzed. ``state``: finished, running, unfinished."""

    id: str
    path: Path
    name: str
    title: str
    created: datetime
    machine: str
    state: str
    summary: Summary | None = None


State = tuple[tuple[int, int], ...]
"""Time of change and size of a file and of its WAL."""

CLOCK_STEP_S = 1.0
"""Resolution of the times of processes and files, with a margin."""


def writer_of(path: Path) -> int | None:
    """Return the process that writes the file, by the process ID in its lock file; None if none does.

    Without taking the lock: a study that starts meanwhile would be refused.
    """
    try:
        with path.with_name(f"{path.name}.lock").open() as file:
            pid, locked_unix_s = int(file.read(20)), os.fstat(file.fileno()).st_mtime
        # After a crash, a later process may have the number.
        return pid if psutil.Process(pid).create_time() <= locked_unix_s + CLOCK_STEP_S else None
    except (OSError, ValueError, psutil.Error):
        return None


def is_being_written(path: Path) -> bool:
    """Return whether a process of pgdyno writes the file."""
    return writer_of(path) is not None


def identifier(directory: Path, path: Path) -> str:
    """Return the identifier of a file, by its place below the directory."""
    return blake2b(fsencode(path.relative_to(directory)), digest_size=8).hexdigest()


# ----------------------------------------------------------------------
# The index: files by an identifier, which is a part of addresses.
# ----------------------------------------------------------------------

SCAN_S = 1.0
"""Minimum time between two searches of the directory."""

FILES_MAX = 10_000
"""Maximum number of files; a directory with more is a mistake, such as ``/``."""

REPORTS_MAX = 4
"""Maximum number of reports kept in memory. That of a large study has 100 MB."""


class Index:
    """The results files below a directory. All methods may be called from any thread.

    ``expected``: a file that a study is about to write.
    """

    def __init__(self, directory: Path, expected: Path | None = None) -> None:
        self.directory = directory.absolute()
        self._expected = dict[str, Path]()
        if expected is not None:
            self.expect(expected)
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._entries: dict[Path, Entry] = {}
        self._states: dict[Path, State | int] = {}
        self._analyzed: dict[Path, State | int] = {}
        self._reports: dict[Path, tuple[State, FileReport]] = {}
        self._scanned_s = -SCAN_S
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def entries(self) -> list[Entry]:
        """Return all files; those that were changed are analyzed afterwards, the newest first."""
        with self._lock:
            if time.monotonic() - self._scanned_s >= SCAN_S:
                self._scan()
                self._scanned_s = time.monotonic()
            if self._next() is not None and self._thread is None:
                self._thread = threading.Thread(target=self._analyze, name="pgdyno-index", daemon=True)
                self._thread.start()
            return list(self._entries.values())

    def entry(self, of: str) -> Entry | None:
        """Return the file with an identifier."""
        return next((one for one in self.entries() if one.id == of), None)

    def path_of(self, of: str) -> Path | None:
        """Return the path of a file that exists or is expected."""
        return entry.path if (entry := self.entry(of)) else self._expected.get(of)

    def expect(self, path: Path) -> str:
        """Expect a file that a study is about to write. Return its identifier."""
        of = identifier(self.directory, path)
        self._expected[of] = path
        return of

    def refresh(self) -> None:
        """Search the directory again, because files were changed."""
        with self._lock:
            self._scanned_s = -SCAN_S

    def report(self, path: Path, *, is_shown: bool = True) -> FileReport:
        """Return the report of a file, from memory if it has not changed. Raises PgdynoError.

        ``is_shown``: it may take the place of another one in memory.
        """
        state = state_of(path)
        found = self._kept(path, state)
        if found is None:
            with self._reading:  # together, two analyses would take as long as one after the other
                found = self._kept(path, state) or read_document(path)
            with self._lock:
                self._reports.pop(path, None)
                if is_shown or len(self._reports) < REPORTS_MAX:
                    self._reports[path] = state, found
                while len(self._reports) > REPORTS_MAX:
                    del self._reports[next(iter(self._reports))]
        return found

    def _kept(self, path: Path, state: State) -> FileReport | None:
        with self._lock:
            before, found = self._reports.get(path, (None, None))
            return found if before == state else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until every file is analyzed. Return whether it was within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    def close(self) -> None:
        """Analyze no further file, and wait for the current one: C++ libraries abort if a thread is cut."""
        with self._lock:
            self._entries.clear()
        self.wait(timeout_s=60)

    def _scan(self) -> None:
        found = set()
        for path in self._files():
            found.add(path)
            state = state_of(path)
            entry = self._entries.get(path)
            if entry is not None and entry.state != "finished" and not is_being_written(path):
                state = (*state, (0, 0))  # its writer has ended, even if the file did not change
            if entry is None or self._states[path] != state:
                self._states[path] = state
                if (entry := self._read(path, entry)) is not None:
                    self._entries[path] = entry
        for path in self._entries.keys() - found:
            del self._entries[path]

    def _files(self) -> Iterator[Path]:
        root = self.directory.resolve()
        for path in islice(self.directory.rglob("*.sqlite"), FILES_MAX):
            if path.is_file() and path.resolve().is_relative_to(root):
                yield path

    def _read(self, path: Path, before: Entry | None) -> Entry | None:
        name = str(path.relative_to(self.directory))
        of = identifier(self.directory, path)
        with suppress(EvidenceError, OSError):
            run = read_run(path)
            if run is None:  # a crash test, unless it is a file of another program
                open_for_reading(path, verify=False).close()
                changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                return Entry(of, path, name, path.stem, changed, "", "finished")
            state = "finished" if run.is_finished else "unfinished"
            state = "running" if is_being_written(path) else state
            summary = before.summary if before else None
            return Entry(of, path, name, run.title, run.created, run.machine, state, summary)
        return None

    def _next(self) -> Path | None:
        stale = [one for one in self._entries.values() if self._analyzed.get(one.path) != self._version(one)]
        return max(stale, key=lambda one: one.created).path if stale else None

    def _version(self, entry: Entry) -> State | int:
        """Return what an analysis depends on: of a running study the finished blocks only."""
        return self._states[entry.path] if entry.state != "running" else finished_blocks(entry.path)

    def _analyze(self) -> None:
        """Analyze files until none is left."""
        while True:
            with self._lock:
                path = self._next()
                if path is None:
                    self._thread = None
                    self._changed.notify_all()
                    return
                version = self._version(self._entries[path])
            found = summary_of(partial(self.report, path, is_shown=False))
            with self._lock:
                self._analyzed[path] = version
                if path in self._entries:
                    self._entries[path] = replace(self._entries[path], summary=found)


def read_document(path: Path) -> FileReport:
    """Read and analyze a file: by the first feature that knows it, else as a study. Raises PgdynoError."""
    found = (read([path], "whole") for read in REPORTS)
    return next((one for one in found if one is not None), None) or read_report(path)


def summary_of(read: Callable[[], FileReport]) -> Summary:
    """Return the analysis of a file for its row; the text of an error if there is none."""
    try:
        found = read()
    except Exception as error:  # noqa: BLE001  # one damaged file must not end the analysis of the others
        return Summary(answer=str(error))
    serious = sum(one.rank is Rank.CHANGES_ANSWER for one in found.caveats)
    if not isinstance(found.findings, StudyFindings):
        answer = " ".join(of.claim for of in found.headlines)
        return Summary(caveats=len(found.caveats), serious=serious, answer=answer)
    verdicts, margin = found.findings.verdicts_on(), found.findings.first.study.plan.margin
    return Summary(verdicts, margin, len(found.caveats), serious)
