"""Runs a study before the user's eyes and reports it: what ``compare`` and ``run`` have in common."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pgdyno.cli.console import say
from pgdyno.cli.live import LiveView
from pgdyno.cli.report import print_report, write_html
from pgdyno.errors import UsageError
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import Ending, TrialStatus
from pgdyno.interruption import Interruption
from pgdyno.lab.study import Request, resume_study, start_study


def require_place(path: Path) -> None:
    """Before minutes go into loading data. Raises UsageError where a file could not be written."""
    try:
        # The answer that counts is the file system's: root may write everywhere, but not on a read-only disk.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}: name another file, or make the directory writable"
        ) from None
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")


def run_and_report(
    path: Path,
    request: Request | None,
    *,
    heading: str = "",
    resumed_by: str = "pgdyno compare --resume",
    more_minutes: float | None = None,
    html: Path | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Runs a new study, or (``request`` None) goes on with one; then reports. Gives the exit status.

    ``heading`` says what is going to happen; ``resumed_by`` how a stopped one goes on.
    """

    def watch_for(names: Sequence[str]) -> LiveView:
        return LiveView(names, quiet, heading)

    with Interruption() as interruption:
        if request is None:
            ending = resume_study(path, more_minutes, watch_for, interruption)
        else:
            ending = start_study(path, request, watch_for, interruption)
    html = html or path.with_suffix(".html")
    write_html(path, html)
    print_report(path, "json" if json else "terminal")
    if not quiet:
        say(f"evidence {path}   report {html}")
    if ending is Ending.INTERRUPTED:
        say(f"stopped at your request; go on with: {resumed_by} {path}")
        return 130
    if why := why_no_block_counts(path):
        say(f"pgdyno: no block counts, so there is no result: {why}")
        return 1
    return 1 if ending is Ending.FAILED else 0


def why_no_block_counts(path: Path) -> str:
    """The commonest reason; empty where some arm and the baseline have a block in common."""
    reasons: Counter[str] = Counter()
    with Evidence(path) as opened:
        for case in opened.cases():
            trials, arms = opened.trials(case), opened.arms(case)
            ok = {(trial.block, trial.arm) for trial in trials if trial.status is TrialStatus.OK}
            if any(arm != 0 and (block, 0) in ok for block, arm in ok):
                return ""
            reasons.update(f"{arms[trial.arm].name}: {trial.reason}" for trial in trials if trial.reason)
    return next((reason for reason, _ in reasons.most_common(1)), "none was run")
