"""``pgdyno run``: run a study file, in full or scaled to this machine."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from pgdyno.cli import options
from pgdyno.cli.console import require_writable, require_writable_page, say
from pgdyno.cli.execution import READ, refuse_ignored_options, run_and_report
from pgdyno.cli.options import Added, FittedFile, Output, RunCall, complete_study, shortage
from pgdyno.errors import StudyFileError, UsageError, plain_message
from pgdyno.results.records import NOT_THE_QUESTION
from pgdyno.server.builds import is_version, parse_version_spec
from pgdyno.server.settings import profile_named, refuse_reserved
from pgdyno.study.arm_spec import is_settings_file
from pgdyno.study.cases import Case, Request, cases_of, own_settings_of, setting_of
from pgdyno.study.plan import Study
from pgdyno.study.study_file import Run, StudyFile
from pgdyno.study.study_file_reader import Path as Keys
from pgdyno.study.study_file_reader import examine_text, study_path, text_of, text_with_files
from pgdyno.study.values import Settings
from pgdyno.units import counted, format_duration


def run(
    context: typer.Context,
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="Study file, or name of a bundled study (see `pgdyno study list`).",
            autocompletion=complete_study,
        ),
    ] = None,
    *,
    minutes: Annotated[float | None, options.option_from(Run, "budget_s", "from the study file")] = None,
    nearest: Annotated[bool, options.option_from(Run, "nearest")] = False,
    no_aa: Annotated[bool, options.option_from(Run, "aa")] = False,
    into_existing: options.IntoExisting = False,
    evidence: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Results file to write. [default: STUDY-TIME.sqlite]")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Continue the interrupted study of this results file.")
    ] = None,
    output: Output,
    added: Added,
) -> int:
    """Run a study file: all cases, with telemetry, next to published results.

    A case is one combination of the study's factors, for example a scale and a number of clients. Examples:

    \b
      pgdyno run mine.toml
      pgdyno run edb-2020-tproc-c-12-vs-13 --fit --minutes 30
      pgdyno run --resume results.sqlite
      pgdyno run mine.toml --fleet
    """
    added.check_judging()
    if output.html is not None:
        require_writable_page(output.html, force=output.force)
    path: Path | None = None
    if resume is not None:
        if study is not None:
            raise UsageError(f"--resume takes the study from the results file: remove the study {study!r}")
        refuse_ignored_options(context, (*READ, *added.read_on_resume))
        results = resume
    else:
        if study is None:
            raise UsageError("missing study file: name one, for example mine.toml (see `pgdyno study list`)")
        path = study_path(study)
        results = evidence or Path(f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}.sqlite")
    command = shlex.join(["pgdyno", *sys.argv[1:]])
    call = RunCall(path, results, minutes, nearest, no_aa, into_existing, command, output, added)
    for one in added:
        if (status := one.run_elsewhere(call)) is not None:
            return status
    return run_here(call)


def run_here(call: RunCall) -> int:
    """Run or resume the study on this machine, and report it. Return the exit status."""
    execute = partial(
        run_and_report, call.results, resumed_by="pgdyno run --resume", output=call.output, added=call.added
    )
    if call.study is None:
        return execute(None, more_minutes=call.minutes)
    asked = requested_study(call)
    require_writable(call.results)
    machine, cases = options.machine_size(), asked.request.cases
    if short := next(filter(None, (shortage(case.study, machine, len(cases)) for case in cases)), ""):
        say(short, wrap=True)
    return execute(asked.request, heading=asked.heading)


@dataclass(frozen=True)
class RequestedStudy:
    """A study file with the options of the command: as fitted, and as the request that runs it."""

    fitted: FittedFile
    request: Request

    @property
    def heading(self) -> str:
        """The lines that announce the study."""
        fitted = self.fitted
        lost = [f"{NOT_THE_QUESTION}:", *(f"  {one}" for one in fitted.lost)] if fitted.lost else []
        described = describe_study(fitted.file, tuple(self.request.cases))
        return "\n".join([*lost, described, *(f"  {one}" for one in fitted.changed)])


def requested_study(call: RunCall, only: Sequence[str] = ()) -> RequestedStudy:
    """Return the study of a file with the options. ``only``: names of its cases; empty for all.

    Raises UsageError, StudyFileError.
    """
    assert call.study is not None
    file = read_study(str(call.study))
    for one in call.added:
        file = one.changed(file)
    if call.nearest:
        file = file.with_run(nearest=True)
    if call.no_aa:
        file = file.with_run(aa=False)
    fitted = call.added.fitted(file, call.minutes) or FittedFile(within(file, call.minutes))
    file, cases = fitted.file, cases_of(fitted.file, only)
    fields = call.added.study_fields(cases[0].study)
    if who := "--no-aa" if call.no_aa else fitted.aa_refused_by:
        fields["aa_refused_by"] = who
    if call.into_existing:
        fields["into_existing"] = True
    request = Request(
        title=file.title,
        cases=_with_fields(file, cases, fields),
        command=call.command,
        file=text_with_files(text_of(call.study), file),
        changes=fitted.changes,
        published=file.published,
        is_part=bool(only),
    )
    return RequestedStudy(fitted, request)


def within(file: StudyFile, minutes: float | None) -> StudyFile:
    """Return the study with this budget, if it is given. Raises UsageError for a sequential study."""
    if minutes is None:
        return file
    if file.run.schedule == "sequential":
        raise UsageError(
            f"--minutes {minutes:g} cannot limit a study with the schedule sequential, which measures all "
            "blocks of one arm before the next: change repeats in the study file, or add --fit"
        )
    return file.with_run(budget_s=60 * minutes)


def _with_fields(file: StudyFile, cases: tuple[Case, ...], fields: Mapping[str, Any]) -> tuple[Case, ...]:
    """Return the cases with fields that options set in their studies. Raises UsageError."""
    if not fields:
        return cases
    try:
        return tuple(
            replace(case, study=Study.model_validate({**dict(case.study), **fields})) for case in cases
        )
    except ValidationError as error:
        message = plain_message(error.errors()[0]["msg"])
        raise UsageError(file.as_keys(message, options=fields)) from None


def describe_study(file: StudyFile, cases: tuple[Case, ...]) -> str:
    """Return a summary of the study in one or two terminal lines."""
    budget_s, repeats = file.run.budget_s, file.run.repeats
    parts, most = [size_of(cases)], "at most " if cases[0].study.stops_on_verdict else ""
    if repeats is not None:
        parts.append(f"{most}{repeats} blocks of each" if repeats > 1 else "a block of each")
    if budget_s is not None:
        parts.append(f"{most}{format_duration(budget_s)} in all")
    return f"{file.title}: {'; '.join(parts)}"


def size_of(cases: tuple[Case, ...]) -> str:
    """Return the size of a study: ``16 cases of 2 arms``."""
    arms = sorted({len(case.arms) for case in cases})
    many = str(arms[0]) if len(arms) == 1 else f"{arms[0]} to {arms[-1]}"
    return f"{counted(len(cases), 'case')} of {many} arms"


def read_study(given: str) -> StudyFile:
    """Return the study of a path or name. Raises UsageError with the first error found."""
    path = study_path(given)
    file, problems = examined(path)
    if file is None or problems:
        raise UsageError(problems[0])
    return file


def examined(path: Path) -> tuple[StudyFile | None, list[str]]:
    """Return the study and one line per error, including versions, profiles and reserved settings."""
    file, problems = examine_text(text_of(path), str(path), path.parent)
    if file is not None and not problems:
        problems = [f"{path}: {error}" for error in _refused(file)]
    return file, problems


def _refused(file: StudyFile) -> Iterator[StudyFileError]:
    for keys, ask in _questions(file):
        try:
            ask()
        except UsageError as error:
            yield StudyFileError(keys, str(error))


def _questions(file: StudyFile) -> Iterator[tuple[Keys, Callable[[], object]]]:
    """Yield checks of versions, profiles and settings reserved for pgdyno, with their keys."""
    servers: list[tuple[Keys, object]] = [(("server",), file.server)]
    servers += [(("factors", "server", one.place), one.value) for one in file.factors.get("server", ())]
    for keys, server in servers:
        if isinstance(server, str) and is_version(server):
            yield keys, partial(parse_version_spec, server)
    levels = file.factors.get("settings", ())
    sets: list[tuple[Keys, Settings]] = [(("settings",), file.settings)]
    sets += [(("factors", "settings", one.place), own_settings_of({"settings": one})) for one in levels]
    for factor in file.factors:
        if setting := setting_of(factor):
            yield ("factors", factor), partial(refuse_reserved, {setting: ""})
    for keys, settings in sets:
        for name, value in settings.values.items():
            yield (*keys, name), partial(refuse_reserved, {name: value})
        for n, profile in enumerate(settings.profiles):
            if not is_settings_file(profile):
                yield (*keys, "profiles", n), partial(profile_named, profile)
