"""Runs a study before the user's eyes and reports it: what ``compare`` and ``run`` have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pgdyno.cli.console import say
from pgdyno.cli.gating import NOTHING_ASKED, Gating
from pgdyno.cli.live import LiveView
from pgdyno.cli.place import require_place_of_text
from pgdyno.cli.report import print_report, read_report, write_html
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import STOPPED_BY, Ending, TrialStatus
from pgdyno.interruption import Interruption
from pgdyno.lab.study import Request, resume_study, start_study


def run_and_report(
    path: Path,
    request: Request | None,
    *,
    heading: str = "",
    resumed_by: str = "pgdyno compare --resume",
    more_minutes: float | None = None,
    html: Path | None = None,
    force: bool = False,
    json: bool = False,
    quiet: bool = False,
    gating: Gating = NOTHING_ASKED,
) -> int:
    """Runs a new study, or (``request`` None) goes on with one; then reports. Gives the exit status.

    ``heading`` says what is going to happen; ``resumed_by`` how a stopped one goes on.
    """

    html = html or path.with_suffix(".html")
    require_place_of_text(html, path, force=force)
    gating.check(path)

    with Interruption() as interruption:

        def watch_for(names: Sequence[str]) -> LiveView:
            return LiveView(names, quiet, heading, interruption)

        if request is None:
            ending = resume_study(path, more_minutes, watch_for, interruption)
        else:
            ending = start_study(path, request, watch_for, interruption)
    built = read_report(path)
    write_html(built, html, force=force)
    found = gating.gate(built)
    print_report(built, "json" if json else "terminal", found)
    if not quiet:
        say(f"evidence {path}   report {html}")
    gating.summarise(built, found, [path, html])
    if ending is Ending.INTERRUPTED:
        say(f"stopped at your request; go on with: {resumed_by} {path}")
        return interruption.exit_status
    if why := why_no_block_counts(path):
        say(f"pgdyno: no block counts, so there is no result: {why}")
        return 1
    return 1 if ending is Ending.FAILED else gating.status(found, quiet=quiet)


def why_no_block_counts(path: Path) -> str:
    """The commonest reason; empty where some arm and the baseline have a block in common."""
    reasons: Counter[str] = Counter()
    with Evidence(path, verify=False) as opened:  # it just was, for the report
        for case in opened.cases():
            trials, arms = opened.trials(case), opened.arms(case)
            ok = {(trial.block, trial.arm) for trial in trials if trial.status is TrialStatus.OK}
            if any(arm != 0 and (block, 0) in ok for block, arm in ok):
                return ""
            reasons.update(
                f"{arms[trial.arm].name}: {trial.reason}"
                for trial in trials
                if trial.reason and STOPPED_BY not in trial.driver
            )
    return next((reason for reason, _ in reasons.most_common(1)), "none was run")
