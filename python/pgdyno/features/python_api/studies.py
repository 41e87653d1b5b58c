"""Studies in Python: each function is a command of the command line, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from pgdyno.features.python_api.outcome import CrashResult, Result, ended, finished_blocks
from pgdyno.features.python_api.process import Command, document_of
from pgdyno.features.python_api.requests import Arm, Workload, option_words
from pgdyno.results.results_file import state_of

POLL_S = 1.0
"""Minimum time between two reads of the results file of a running study, on the machine under test."""

ArmLike = str | Arm | PathLike[str]


class Study:
    """A running study. Iteration gives a ``Result`` after each block; ``result`` waits for the end.

    As a context manager it ends with its block: nothing keeps running after an exception.
    """

    def __init__(self, words: Sequence[str], path: Path) -> None:
        self.path = path
        self._command = Command(words)

    def __iter__(self) -> Iterator[Result]:
        """Iterate over the blocks as they end; the results before the last one are provisional."""
        seen, is_running = 0, True
        before: Sequence[tuple[int, int]] | None = None
        try:
            while is_running:
                is_running = self._command.is_running(POLL_S)
                now = state_of(self.path)
                if now != before and (n := finished_blocks(self.path)) > seen:
                    seen = n
                    yield Result(self.path)
                before = now
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop it as Ctrl-C does: the blocks that have ended are kept. No error if it has ended."""
        self._command.stop()

    def result(self) -> Result:
        """Wait for the end. Raises PgdynoError, UsageError; KeyboardInterrupt stops the study."""
        return ended(self._command, self.path)


def start(
    *arms: ArmLike,
    workload: Workload | str | None = None,
    minutes: float | None = None,
    clients: int | None = None,
    results: str | PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> Study:
    """Start a comparison and return it: see ``compare``."""
    path = _path(results)
    chosen = Workload(workload) if isinstance(workload, str) else workload
    own = {"minutes": minutes, "clients": clients, "evidence": path, "quiet": not progress}
    words = ["compare", *map(_word, arms), *(chosen.words() if chosen else ()), *option_words(own | options)]
    return Study(words, path)


def compare(
    *arms: ArmLike,
    workload: Workload | str | None = None,
    minutes: float | None = None,
    clients: int | None = None,
    results: str | PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> Result:
    """Compare servers as ``pgdyno compare`` does, the first one is the baseline. Return the result.

    ``results``: results file to write (default: ``pgdyno-TIME.sqlite``). ``options`` of the command line by
    name: ``margin=1``, ``data="shop.dump"``, ``file=["a.sql", "b.sql@3"]``, ``schedule="duet"``.
    Raises UsageError for wrong ones; PgdynoError if a server, the load, every block or the study fails.
    """
    return start(
        *arms,
        workload=workload,
        minutes=minutes,
        clients=clients,
        results=results,
        progress=progress,
        **options,
    ).result()


def run(
    study: str | PathLike[str],
    *,
    results: str | PathLike[str] | None = None,
    progress: bool = True,
    **options: Any,
) -> Result:
    """Run a study file, or a bundled one, like ``pgdyno run``: ``run("postgres-versions", minutes=60)``."""
    path = _path(results)
    own = {"evidence": path, "quiet": not progress}
    return Study(["run", fspath(study), *option_words(own | options)], path).result()


def capacity(*arms: ArmLike, limit: str = "p99<20ms", by: str = "clients", **options: Any) -> Result:
    """Compare the highest load at which a latency stays within ``limit``, by ``clients`` or ``rate``.

    ``options`` of ``compare``.
    """
    return compare(*arms, capacity=limit, by=by, **options)


def crash(*arms: ArmLike, **options: Any) -> CrashResult:
    """Return what the arms lose in crashes, as ``pgdyno crash`` does. ``options``: ``cuts=10``, …"""
    return CrashResult(document_of(["crash", *map(_word, arms), *option_words(options)]))


def _word(arm: ArmLike) -> str:
    return fspath(arm) if isinstance(arm, PathLike) else str(arm)


def _path(results: str | PathLike[str] | None) -> Path:
    return Path(results or time.strftime("pgdyno-%Y%m%d-%H%M%S.sqlite"))
