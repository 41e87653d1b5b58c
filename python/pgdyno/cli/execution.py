"""Execution and report of a study, shared by ``compare`` and ``run``, also with ``--resume``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import typer

from pgdyno.cli.console import require_writable_page, say
from pgdyno.cli.options import NOTHING_ADDED, Added, Output, StudyOptions
from pgdyno.errors import CONDITION_MET, PgdynoError, UsageError, in_one_line
from pgdyno.interruption import Interruption
from pgdyno.study.cases import Request
from pgdyno.study.plan import Study

if TYPE_CHECKING:
    from pgdyno.results.records import StudyEnd


OUTPUT = Output()
"""The HTML report beside the results file, and the verdict on the terminal."""

READ = ("resume", "minutes", "html", "force", "json", "quiet")
"""Parameters of ``compare`` and ``run`` that a resume reads, without those of features."""


def refuse_ignored_options(
    context: typer.Context, read: Sequence[str], place: str = "the results file"
) -> None:
    """Raise UsageError if the command line has an option or argument that a resume does not ``read``."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in read or source is None or source.name != "COMMANDLINE":
            continue
        option = max(parameter.opts, key=len) if parameter.opts[0].startswith("-") else name.upper()
        raise UsageError(
            f"{option} cannot be combined with --resume, which takes it from {place}: "
            f"remove {option}, or start a new study"
        )


def run_and_report(
    path: Path,
    request: Request | None,
    *,
    heading: str = "",
    resumed_by: str = "pgdyno compare --resume",
    more_minutes: float | None = None,
    output: Output = OUTPUT,
    added: Added = NOTHING_ADDED,
) -> int:
    """Run a new study, or resume one (``request`` None); then report. Return the exit status.

    ``heading`` announces the study; ``resumed_by`` is the command that resumes it. The follow-up of an option
    in ``added`` follows a study that was neither interrupted nor failed.

    The heading appears, and errors of the request are raised, before the modules of the lab are imported; the
    modules of the report are imported after the last block.
    """
    if request is None:
        from pgdyno.results.results_file import require_file  # noqa: PLC0415

        require_file(path)
    html, force, quiet = output.html or path.with_suffix(".html"), output.force, output.quiet
    require_writable_page(html, path, force=force)
    added.check_judging(path)
    for one in added:
        one.check(lambda: [case.study for case in request.cases] if request else _studies(path))
    follow_ups = [one for one in added if one.follow_up]
    if heading and not quiet:
        say(heading, wrap=True)
    for one in added:
        one.begin(path)
    from pgdyno.cli.live_view import LiveView, showing  # noqa: PLC0415
    from pgdyno.measure.study_runner import resume_study, start_study  # noqa: PLC0415
    from pgdyno.results.records import StudyEnd  # noqa: PLC0415

    again = shlex.join([*resumed_by.split(), str(path), *(word for one in added for word in one.on_resume())])
    failures: list[str] = []

    with Interruption() as interruption:

        def watch_for(names: Sequence[str]) -> LiveView:
            return LiveView(names, quiet, interruption)

        if request is None and follow_ups and more_minutes is None and (end := _complete(path)):
            ending = end
        elif request is None:
            ending = resume_study(path, more_minutes, watch_for, interruption)
        else:
            ending = start_study(path, request, watch_for, interruption)
        if follow_ups and ending not in (StudyEnd.INTERRUPTED, StudyEnd.FAILED):
            failures = _followed(follow_ups, path, interruption, quiet=quiet)
            ending = StudyEnd.INTERRUPTED if interruption.requested else ending
    from pgdyno.cli.report import publish, read_report, status_of  # noqa: PLC0415

    with showing(f"analyzing {path}", [path], quiet):
        built = read_report(path)
    judgements = publish(built, path, html, output, added)
    if ending is StudyEnd.INTERRUPTED:
        say(f"interrupted; to continue: {again}")
        return interruption.exit_status
    if why := why_no_valid_block(path):
        say(f"pgdyno: no result, because no block is valid: {why}")
        return 1
    for one in follow_ups if ending is StudyEnd.FAILED else ():
        say(f"pgdyno: no {one.follow_up}, because the study failed")
    status = 1 if ending is StudyEnd.FAILED else status_of(judgements, quiet=quiet)
    for failure in failures:
        say(f"pgdyno: {failure}; to continue: {again}")
    return 1 if failures and status != CONDITION_MET else status


def _followed(
    options: Sequence[StudyOptions], path: Path, interruption: Interruption, *, quiet: bool
) -> list[str]:
    """Let each option follow the study. Return failures, because the study is reported in any case."""
    failures = []
    for one in options:
        try:
            one.follow(path, interruption, quiet=quiet)
        except (PgdynoError, OSError, psycopg.Error) as error:
            failures.append(f"the {one.follow_up} ended early: {in_one_line(error)}")
    return failures


def _studies(path: Path) -> Sequence[Study]:
    from pgdyno.results.reader import Evidence  # noqa: PLC0415

    with Evidence(path, verify=False) as evidence:
        return [evidence.study(case).plan for case in evidence.cases()]


def _complete(path: Path) -> StudyEnd | None:
    """Return the end of a study that is complete; None if it can be continued."""
    from pgdyno.results.reader import Evidence  # noqa: PLC0415
    from pgdyno.results.records import StudyEnd  # noqa: PLC0415

    with Evidence(path, verify=False) as evidence:
        end = evidence.study().ended_because
    return end if end in (StudyEnd.VERDICT, StudyEnd.BUDGET, StudyEnd.BLOCKS) else None


def why_no_valid_block(path: Path) -> str:
    """Return the most common reason; empty if an arm and the baseline have a valid block in common."""
    from pgdyno.results.reader import Evidence  # noqa: PLC0415
    from pgdyno.results.records import ENGINE, TrialStatus  # noqa: PLC0415

    reasons: Counter[str] = Counter()
    with Evidence(path, verify=False) as opened:  # the report has just verified it
        for case in opened.cases():
            trials, arms = opened.trials(case), opened.arms(case)
            ok = {(trial.block, trial.arm) for trial in trials if trial.status is TrialStatus.OK}
            if any(arm != 0 and (block, 0) in ok for block, arm in ok):
                return ""
            reasons.update(
                f"{arms[trial.arm].name}: {trial.full_reason}"
                for trial in trials
                if trial.reason and trial.driver.stopped_by in {None, ENGINE}
            )
    return next((reason for reason, _ in reasons.most_common(1)), "no block was run")
