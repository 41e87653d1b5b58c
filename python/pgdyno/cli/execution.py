"""Execution and report of a study, shared by ``compare`` and ``run``, also with ``--resume``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import typer

from pgdyno.cli.console import say
from pgdyno.cli.gate_options import GATE_FAILED, NO_GATE, GateOptions
from pgdyno.cli.options import Output
from pgdyno.cli.output_files import require_writable_page
from pgdyno.errors import PgdynoError, UsageError, in_one_line
from pgdyno.features.crash.options import DurabilityOptions
from pgdyno.interruption import Interruption
from pgdyno.study.cases import Request
from pgdyno.study.plan import Study

if TYPE_CHECKING:
    from pgdyno.results.records import StudyEnd


OUTPUT = Output()
"""The HTML report beside the results file, and the verdict on the terminal."""

NO_CRASHES = DurabilityOptions()

READ = ("resume", "minutes", "html", "force", "json", "quiet", "fail_if", "summary", "durability", "cuts")
"""Parameters of ``compare`` and ``run`` that a resume reads."""


def refuse_ignored_options(
    context: typer.Context, read: Sequence[str] = READ, place: str = "the results file"
) -> None:
    """Raise UsageError if the command line has an option or argument that a resume does not ``read``."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in read or source is None or source.name != "COMMANDLINE":
            continue
        option = max(parameter.opts, key=len)
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
    gating: GateOptions = NO_GATE,
    durability: DurabilityOptions = NO_CRASHES,
) -> int:
    """Run a new study, or resume one (``request`` None); then report. Return the exit status.

    ``heading`` announces the study; ``resumed_by`` is the command that resumes it. The crash test of
    ``durability`` follows a study that was neither interrupted nor failed.

    The heading appears, and errors of the request are raised, before the modules of the lab are imported; the
    modules of the report are imported after the last block.
    """
    html, force, quiet = output.html or path.with_suffix(".html"), output.force, output.quiet
    require_writable_page(html, path, force=force)
    gating.check(path)
    if request is not None:
        durability.check([case.study for case in request.cases])
    else:
        durability.check(_studies(path) if durability.durability else ())
    if heading and not quiet:
        say(heading)
    from pgdyno.cli.live_view import LiveView  # noqa: PLC0415
    from pgdyno.measure.study_runner import resume_study, start_study  # noqa: PLC0415
    from pgdyno.results.records import StudyEnd  # noqa: PLC0415

    again = shlex.join([*resumed_by.split(), str(path), *durability.on_resume()])
    crash_failure = ""

    with Interruption() as interruption:

        def watch_for(names: Sequence[str]) -> LiveView:
            return LiveView(names, quiet, interruption)

        if request is None and durability.durability and more_minutes is None and (end := _complete(path)):
            ending = end
        elif request is None:
            ending = resume_study(path, more_minutes, watch_for, interruption)
        else:
            ending = start_study(path, request, watch_for, interruption)
        if durability.durability and ending not in (StudyEnd.INTERRUPTED, StudyEnd.FAILED):
            crash_failure = _crash_failure(durability, path, interruption, quiet=quiet)
            ending = StudyEnd.INTERRUPTED if interruption.requested else ending
    from pgdyno.cli.report import print_report, read_report, write_html  # noqa: PLC0415

    built = read_report(path)
    write_html(built, html, force=force)
    found = gating.gate(built)
    print_report(built, "json" if output.json else "full" if output.full else "terminal", [path], found)
    if not quiet:
        say(f"results {path}   report {html}")
    gating.summarise(built, found, [path, html])
    if ending is StudyEnd.INTERRUPTED:
        say(f"interrupted; to continue: {again}")
        return interruption.exit_status
    if why := why_no_valid_block(path):
        say(f"pgdyno: no result, because no block is valid: {why}")
        return 1
    if durability.durability and ending is StudyEnd.FAILED:
        say("pgdyno: no crash test, because the study failed")
    status = 1 if ending is StudyEnd.FAILED else gating.status(found, quiet=quiet)
    if crash_failure:
        say(f"pgdyno: the crash test ended early: {crash_failure}; to continue: {again}")
        return status if status == GATE_FAILED else 1
    return status


def _crash_failure(
    durability: DurabilityOptions, path: Path, interruption: Interruption, *, quiet: bool
) -> str:
    """Run the crash test. Return the reason if it failed, because the study is reported in any case."""
    try:
        durability.run(path, interruption, quiet=quiet)
    except (PgdynoError, OSError, psycopg.Error) as error:
        return in_one_line(error)
    return ""


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
    from pgdyno.results.records import (  # noqa: PLC0415
        ENGINE,
        TrialStatus,
    )

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
