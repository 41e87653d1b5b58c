"""``pgdyno bisect``: find the commit that changed the performance; its report.

- Sentences and JSON of a search for the commit that changed the performance.
- ``pgdyno bisect``: find the commit that changed the performance.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.analysis.telemetry.metrics import Metric, TrialLatencies, of_plan
from pgdyno.cli import options
from pgdyno.cli.compare import BlockOptions, DesignOptions, OtherOptions, study_of
from pgdyno.cli.console import out, print_json, say, write_text
from pgdyno.cli.execution import refuse_ignored_options
from pgdyno.cli.live_view import LiveView
from pgdyno.cli.options import ClientOptions
from pgdyno.cli.report import read_report
from pgdyno.cli.workload_options import WorkloadOptions
from pgdyno.errors import INCONCLUSIVE, Interrupted, UsageError, naming
from pgdyno.features.bisect.run import LOCK, LOST, StepEnded, StepStarted, read_commits, run_bisect
from pgdyno.features.bisect.search import (
    Commit,
    Confirmation,
    Ends,
    Measured,
    Outcome,
    SearchRecord,
    read_search,
    steps_needed,
    write_search,
)
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import InterimVerdicts, Noted, PreparationStep, Progress, Running, Warned
from pgdyno.report.html_format import to_html
from pgdyno.server.directories import locked_if_free
from pgdyno.study.arm_spec import ArmSpec, parse_arm, with_own_files
from pgdyno.study.study_file import Run
from pgdyno.units import Better, Estimate, ci_text, counted, format_duration, given_percent, share_text

# ----------------------------------------------------------------------
# Sentences and JSON of a search for the commit that changed the performance.
# ----------------------------------------------------------------------


def effect_of(measured: Measured | None) -> Estimate | None:
    """Return the change of the primary metric in percent of the baseline; None without a block."""
    if measured is None or measured.mean is None:
        return None
    return Estimate(
        value=percent_of(measured.mean),
        unit="%",
        n=measured.blocks,
        better=Better.NEITHER,  # the study knows it: see direction
        low=None if measured.low is None else percent_of(measured.low),
        high=None if measured.high is None else percent_of(measured.high),
        confidence=measured.confidence,
    )


def effect_text(measured: Measured | None) -> str:
    """Return ``−4.8% (99.3% CI [−6.0%, −3.6%], 8 blocks)``, or "no block" in words."""
    if (effect := effect_of(measured)) is None:
        return "no valid block"
    blocks = counted(effect.n, "block")
    if effect.low is None:
        return f"{effect.signed_text} ({blocks})"
    return f"{effect.signed_text} ({ci_text(effect.confidence)} {effect.signed_interval_text}, {blocks})"


def is_conclusive(record: SearchRecord) -> bool:
    """Return whether the search found one commit, and its effect was confirmed."""
    if record.ends is not Ends.DIFFERENT or not record.search.is_found:
        return False
    return record.last == 1 or record.confirmation is Confirmation.CONFIRMED


def sentences(record: SearchRecord, folder: str) -> list[str]:
    """Return the result of the search, one sentence or list item per line."""
    more = f"pgdyno bisect --resume {shlex.quote(folder)} --minutes 60"
    good, bad = record.commits[0], record.commits[-1]
    metric = primary_metric(record)
    named = "" if metric.better is Better.MORE else f", {metric.name}"
    ends = f"BAD {bad.short} vs. GOOD {good.short}{named}: {effect_text(record.ends_measured)}."
    if record.ends is not Ends.DIFFERENT:
        return [ends, _no_ends(record, more)]
    return [*_found(record, more), ends, *_confirmation(record, more), *_limits(record)]


def _no_ends(record: SearchRecord, more: str) -> str:
    if record.ends is Ends.SAME:
        return (
            f"GOOD and BAD are the same within ±{given_percent(record.study.margin)}, so there is no commit "
            "to find. To search for a smaller effect, start again with a smaller --margin."
        )
    return _undecided("whether GOOD and BAD differ", record.ends_reason, more)


def _undecided(what: str, reason: str, more: str) -> str:
    """Return what is undecided, why, and the remedy. A comparison with a lost block never has a decision."""
    remedy = "Start a new search." if reason.startswith(LOST) else f"To continue: {more}"
    return f"It is undecided {what}{f' ({reason})' if reason else ''}. {remedy}"


def _found(record: SearchRecord, more: str) -> list[str]:
    search, commits = record.search, record.commits
    if search.is_found:
        return [
            f"First {direction(record)} commit: {commits[search.bad].sha} {commits[search.bad].subject!r}"
        ]
    listed = [f"  {commits[number].title}" for number in range(search.good + 1, search.bad + 1)]
    if len(listed) > LISTED_MAX:
        listed[LISTED_MAX - 2 : -1] = [f"  … {len(listed) - LISTED_MAX + 1} more …"]
    number = counted(search.bad - search.good, "commit")
    lines = [f"The first {direction(record)} commit is one of {number}:", *listed]
    if (step := record.undecided) is not None:
        lines.append(f"Commit {commits[step.commit].title} is undecided: {effect_text(step.measured)}.")
        lines.append(f"Reason: {step.reason}. To continue: {more}")
    else:
        lines.append("The commits between them were skipped.")
    return lines


LISTED_MAX = 20
"""Maximum number of commits of a range that are listed. The range has its ends in any case."""


def primary_metric(record: SearchRecord) -> Metric:
    """Return the metric of the effects, such as the median latency under a fixed load."""
    return of_plan(record.study, TrialLatencies())[0]


def direction(record: SearchRecord) -> str:
    """Return ``slower`` or ``faster``: BAD against GOOD."""
    is_more = (record.reference or 0) > 0
    return "faster" if is_more == (primary_metric(record).better is Better.MORE) else "slower"


def _confirmation(record: SearchRecord, more: str) -> list[str]:
    search = record.search
    if not search.is_found or record.last == 1:
        return []
    if record.confirmation is None:
        return [f"It was not yet compared with its parent. To continue: {more}"]
    commit, parent = (record.commits[number].short for number in (search.bad, search.good))
    words = f"Confirmation, {commit} vs. its parent {parent}: {effect_text(record.confirmation_measured)}."
    if record.confirmation is Confirmation.CONFIRMED:
        return [words, *_part(record)]
    if record.confirmation is Confirmation.UNDECIDED:
        what = "whether this commit changes the performance"
        return [words, _undecided(what, record.confirmation_reason, more)]
    return [
        words,
        "The commit has less than half of the effect between the ends, or none. Several commits may have a "
        "part of it, or a step was wrong.",
    ]


def _part(record: SearchRecord) -> list[str]:
    """Say so if the commit has only a part of the effect between the ends."""
    found, ends = record.confirmation_measured, record.ends_measured
    if found is None or ends is None or found.mean is None or not ends.mean:
        return []
    limits = [end for end in (found.low, found.high) if end is not None]
    # The reference is the smallest effect between the ends that is not excluded.
    if record.reference is None or not limits or max(map(abs, limits)) >= abs(record.reference):
        return []
    share = share_text(found.mean / ends.mean)
    return [f"This is about {share} of the effect between the ends: other commits have a part of it."]


def _limits(record: SearchRecord) -> list[str]:
    skipped = [step for step in record.steps if step.outcome is Outcome.SKIPPED]
    tests = 1 + sum(step.level > 0 for step in record.steps)
    lines = [
        f"Error bound: the probability of a wrong step is at most {share_text(record.level_spent)} "
        f"({counted(tests, 'comparison')}), if the effect has one cause.",
        f"Time: {format_duration(record.spent_s)} of blocks.",
    ]
    if skipped:
        lines.append(f"Skipped: {counted(len(skipped), 'commit')}.")
        lines += [f"  {record.commits[step.commit].title}: {step.reason}" for step in skipped]
    return lines


def bisect_json(record: SearchRecord, folder: str) -> dict[str, Any]:
    """Return the document of ``--json``."""
    search = record.search
    is_different = record.ends is Ends.DIFFERENT

    def named(number: int) -> dict[str, str]:
        return record.commits[number].model_dump()

    return {
        "repository": record.repository,
        "directory": folder,
        "good": named(0),
        "bad": named(-1),
        "commits": record.last,
        "ends": {"result": record.ends, "effect": _effect_json(record.ends_measured)},
        "direction": direction(record) if is_different else None,
        "found": named(search.bad) if is_different and search.is_found else None,
        "range": [named(search.good), named(search.bad)] if is_different else None,
        "confirmation": {"result": record.confirmation, "effect": _effect_json(record.confirmation_measured)},
        "conclusive": is_conclusive(record),
        "wrong_step_probability_max": record.level_spent,
        "minutes": record.spent_s / 60,
        "steps": [
            {
                **named(step.commit),
                "outcome": step.outcome,
                "level": step.level,
                "effect": _effect_json(step.measured),
                "reason": step.reason or None,
            }
            for step in record.steps
        ],
    }


def _effect_json(measured: Measured | None) -> dict[str, Any] | None:
    """Return the effect in percent; None without a block."""
    effect = effect_of(measured)
    if measured is None or effect is None:
        return None
    return {
        "value": effect.value,
        "unit": "%",
        "low": effect.low,
        "high": effect.high,
        "confidence": effect.confidence,
        "blocks": measured.blocks,
        "minutes": measured.spent_s / 60,
        "file": measured.file,
    }


# ----------------------------------------------------------------------
# ``pgdyno bisect``: find the commit that changed the performance.
# ----------------------------------------------------------------------

MINUTES = 120.0
"""Default time of a search for 5% among 64 commits (README.md)."""

READ_ON_RESUME = ("resume", "minutes", "as_json", "quiet")


def bisect(
    context: typer.Context,
    good: Annotated[
        str | None, typer.Argument(metavar="GOOD", help="Commit, tag or branch before the change.")
    ] = None,
    bad: Annotated[
        str | None, typer.Argument(metavar="BAD", help="Commit, tag or branch with the change.")
    ] = None,
    *,
    repository: Annotated[
        Path, typer.Option("--repository", metavar="DIR", help="Clone of PostgreSQL's repository.")
    ] = Path(),
    build_script: Annotated[
        str | None,
        typer.Option(
            "--build-script",
            metavar="COMMAND",
            help="Shell command that builds the commit in its working directory and installs it to "
            "$PGDYNO_PREFIX. Exit status 125, or another failure, skips the commit. [default: pgdyno "
            "builds it]",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="@PROFILE|SETTING=VALUE,…", help="Settings of all servers, as in an ARM of `compare`."
        ),
    ] = None,
    clients: options.Clients = None,
    minutes: Annotated[
        float | None,
        options.option_from(
            Run,
            "budget_s",
            text="Time budget for the blocks of all steps, in minutes. Builds and loads are not included. "
            f"With --resume, time to add. [default: {MINUTES:g}]",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        options.option_from(
            Run,
            "confidence",
            text="Confidence level. The probability of a wrong step is at most 100% minus this, over all "
            "steps together.",
        ),
    ] = None,
    seed: Annotated[int | None, options.option_from(Run, "seed")] = None,
    design: BlockOptions,
    load: ClientOptions,
    workload: WorkloadOptions,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New directory of the results. [default: pgdyno-bisect-TIME]"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the search in this directory.")
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Find the commit that changed the performance, by binary search.

    First GOOD and BAD are compared. Then each commit in the middle is compared with GOOD, until its effect is
    like that of GOOD or of BAD. The commit found is compared with its parent at the end. Commits that do not
    build are skipped. Ctrl-C keeps the results for --resume. Exit status: 0 a confirmed commit, 4 none.
    Examples:

    \b
      pgdyno bisect REL_17_BETA1 master --repository ~/postgresql --workload pgbench -f query.sql
      pgdyno bisect v1 v2 --build-script './configure --prefix=$PGDYNO_PREFIX && make -sj4 install'
      pgdyno bisect --resume pgdyno-bisect-20261121-213000 --minutes 60
    """
    if resume is not None:
        refuse_ignored_options(context, READ_ON_RESUME, "the directory")
        folder, record = resume, read_search(resume)
        if minutes is not None:
            record = record.model_copy(update={"minutes": record.minutes + minutes})
    else:
        if good is None or bad is None:
            raise UsageError("bisect requires GOOD and BAD; for example: pgdyno bisect REL_17_BETA1 master")
        if build_script is not None and not build_script.strip():
            raise UsageError("--build-script requires a command: omit it to let pgdyno build the commits")
        commits = read_commits(repository, good, bad)
        total = MINUTES if minutes is None else minutes
        study = study_of(
            _placeholders(settings, commits),
            clients,
            total,
            DesignOptions(design, other=OtherOptions(confidence=confidence, seed=seed, aa=False)),
            load,
            workload,
        )
        record = SearchRecord(
            repository=str(repository.absolute()),
            commits=tuple(commits),
            study=study.model_copy(update={"aa_refused_by": "bisect"}),
            script=build_script or "",
            confidence=study.confidence,
            minutes=total,
        )
        folder = directory or Path(time.strftime("pgdyno-bisect-%Y%m%d-%H%M%S"))
        _create(folder)
    try:
        record = _run(folder, record, quiet=quiet)
    except Interrupted as error:
        message = f"interrupted; to continue: pgdyno bisect --resume {shlex.quote(str(folder))}"
        raise Interrupted(message, error.exit_status) from error
    return _report(folder, record, as_json=as_json, quiet=quiet)


def _run(folder: Path, record: SearchRecord, *, quiet: bool) -> SearchRecord:
    """Run or continue the search. Raises UsageError if another process runs it, and Interrupted."""
    with locked_if_free(folder / LOCK) as free, Interruption() as interruption:
        if not free:
            raise UsageError(f"another pgdyno continues the search in {folder}: wait for its end")
        write_search(folder, record)
        with BisectView(record, quiet=quiet, interruption=interruption) as view:
            return run_bisect(folder, record, view, interruption)


def _placeholders(settings: str | None, commits: list[Commit]) -> tuple[ArmSpec, ...]:
    """Return the arms GOOD and BAD, with the settings of all commits. Raises UsageError."""
    with naming("--settings"):
        arm = with_own_files(parse_arm(f"git:HEAD,{settings}" if settings else "git:HEAD"))
    if arm.load:
        raise UsageError(f"--settings has no {next(iter(arm.load))}: use the option of the workload")
    ends = {"GOOD": commits[0], "BAD": commits[-1]}
    return tuple(
        arm.model_copy(update={"name": name, "is_named": True, "server": commit.sha})
        for name, commit in ends.items()
    )


def _create(folder: Path) -> None:
    """Create the directory of a new search. Raises UsageError."""
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{folder} exists: name another, or continue it with --resume {folder}") from None
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}: name another --directory") from None


def _report(folder: Path, record: SearchRecord, *, as_json: bool, quiet: bool) -> int:
    """Print the result. Return the exit status."""
    if as_json:
        print_json(bisect_json(record, str(folder)))
    else:
        for line in sentences(record, str(folder)):
            # A command to copy must not have line breaks.
            out.print(Text(line), soft_wrap=not out.is_terminal or "pgdyno " in line)
    if record.confirmation_measured is not None and record.confirmation is not Confirmation.UNDECIDED:
        page = folder / "confirmation.html"
        write_text(page, to_html(read_report(folder / record.confirmation_measured.file)))
        if not quiet:
            say(f"report of the commit and its parent: {page}")
    if not quiet:
        say(f"results {folder}")
    return 0 if is_conclusive(record) else INCONCLUSIVE


class BisectView(LiveView):
    """Progress of a search on standard error: a line per step, and on a terminal its blocks."""

    def __init__(
        self, record: SearchRecord, *, quiet: bool, interruption: Interruption | None = None
    ) -> None:
        self._line = "preparing"
        self._spent_s = {one.file: one.spent_s for one in record.measured}
        self._left = 0
        self._warned: set[str] = set()
        super().__init__((), quiet, interruption)
        if not quiet:
            steps = steps_needed(record.last) + (2 if record.last > 1 else 1)
            say(
                f"{counted(record.last, 'commit')}, about {counted(steps, 'step')}; "
                f"at most {record.minutes:g} min of blocks"
            )

    def __call__(self, event: StepStarted | StepEnded | Progress) -> None:
        """Show an event."""
        match event:
            case StepStarted(number, expected, what):
                self._line = f"step {number} of about {expected}: {what}"
                self._left = expected - number
                self._block, self._results_of, self._standings = None, {}, {}  # other arms
                super().__call__(PreparationStep("preparing"))
            case StepEnded():
                self._end(event)
            case Warned(text):
                self._warn(text)
            case Noted():
                pass  # a step ends by a rule of the search, not by what its blocks can detect
            case InterimVerdicts():
                super().__call__(replace(event, notes=()))
            case _:
                super().__call__(event)

    def _warn(self, text: str) -> None:
        """Print a warning, unless an earlier step had it with other numbers."""
        kind = re.sub(r"[\d.,]+.*", "", text)
        if not self._quiet and kind not in self._warned:
            say(f"! {text}", wrap=True)
        self._warned.add(kind)

    def _headline(self) -> str:
        return f"{self._line}\n{super()._headline()}"

    def _write_line(self, progress: Progress) -> None:
        """Print errors only: a log has a line per step, and one per minute."""
        if isinstance(progress, Running):
            super()._write_line(progress)

    def _end(self, event: StepEnded) -> None:
        """Print the line of the step, with the likely time of those that are left."""
        spent, left = "", ""
        if event.measured is not None:
            self._spent_s[event.measured.file] = event.measured.spent_s
            spent = f", {effect_text(event.measured)}, {format_duration(event.measured.spent_s)}"
            if self._left > 0:
                left_s = self._left * sum(self._spent_s.values()) / len(self._spent_s)
                left = f"; about {max(1, math.ceil(left_s / 60))} min of blocks left"
        if not self._quiet:
            self._log(f"{self._line} … {event.result}{spent}{left}")
