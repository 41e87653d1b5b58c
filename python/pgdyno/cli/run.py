"""``pgdyno run``: run a study file, in full or scaled to this machine."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from pgdyno.cli import options
from pgdyno.cli.completion import complete_study
from pgdyno.cli.console import say
from pgdyno.cli.execution import READ, refuse_ignored_options, run_and_report
from pgdyno.cli.gate_options import GateOptions
from pgdyno.cli.options import Output, shortage
from pgdyno.cli.output_files import require_writable, require_writable_page
from pgdyno.errors import StudyFileError, UsageError
from pgdyno.features.crash.options import DurabilityOptions
from pgdyno.features.drivers.options import DriverOptions
from pgdyno.features.fitting.fit import ANYWAY, FitCommand, FitMachine, Fitted, needs_of
from pgdyno.features.fitting.fit import fit_study as fit_to
from pgdyno.features.fitting.levels import FitChange
from pgdyno.features.fleet.command import FLEET_READ, FleetOptions, resume_on_fleet, run_on_fleet
from pgdyno.features.fleet.records import StudyChoices
from pgdyno.features.own_data.options import PG_UPGRADE
from pgdyno.results.records import LOST, NOT_THE_QUESTION
from pgdyno.server.builds import is_version, parse_version_spec
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import free_bytes
from pgdyno.server.settings import profile_named, refuse_reserved
from pgdyno.study.cases import Case, Request, cases_of, own_settings_of, setting_of
from pgdyno.study.plan import Study
from pgdyno.study.settings_file import is_settings_file
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import Path as Keys
from pgdyno.study.study_file_reader import examine_text, study_path, text_of, text_with_files
from pgdyno.study.values import Settings, plain_message
from pgdyno.units import counted, format_duration

AS_COMMAND = {"run": {"cls": FitCommand}}


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
    fit: Annotated[
        bool,
        typer.Option(
            "--fit",
            help="Scale the study to this machine and to --minutes, and report the changes. A fit that loses "
            "the question of the source is refused, except with --fit=anyway.",
        ),
    ] = False,
    fit_anyway: Annotated[bool, typer.Option(ANYWAY, hidden=True)] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            parser=options.parse_minutes,
            metavar="N|DURATION",
            help="Time budget for measurement, in minutes or with a unit (300s), without loading. "
            "[default: from the study file]",
        ),
    ] = None,
    nearest: options.Nearest = False,
    no_aa: options.NoAa = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE|pg_upgrade:OLD",
            help="Data of your own instead of those of the study (pgbench only), or data that the server OLD "
            "loads and pg_upgrade upgrades.",
        ),
    ] = None,
    drivers: DriverOptions,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Results file to write. [default: STUDY-TIME.sqlite]"),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Continue the interrupted study of this results file."),
    ] = None,
    output: Output,
    gating: GateOptions,
    durability: DurabilityOptions,
    fleet: FleetOptions,
) -> int:
    """Run a study file: all cases, with telemetry, next to published results.

    A case is one combination of the study's factors, for example a scale and a number of clients. Examples:

    \b
      pgdyno run mine.toml
      pgdyno run edb-2020-tproc-c-12-vs-13 --fit --minutes 30
      pgdyno run --resume results.sqlite
      pgdyno run mine.toml --fleet
    """
    options.require_minutes(minutes)
    gating.check()
    fleet.check()
    if fleet.fleet is not None and durability.durability:
        raise UsageError("--durability cannot be combined with --fleet: run pgdyno crash on a host instead")
    if output.html is not None:
        require_writable_page(output.html, force=output.force)
    fit = fit or fit_anyway
    if resume is not None:
        if study is not None or fit:
            raise UsageError(
                "--resume takes the study from the results file: remove "
                + ("--fit" if study is None else f"the study {study!r}")
            )
        if fleet.fleet is not None:
            refuse_ignored_options(context, (*READ, *FLEET_READ))
            return resume_on_fleet(fleet, resume, minutes, output, gating)
        refuse_ignored_options(context)
        return run_and_report(
            resume,
            None,
            more_minutes=minutes,
            output=output,
            resumed_by=RESUMED_BY,
            gating=gating,
            durability=durability,
        )
    if study is None:
        raise UsageError("missing study file: name one, for example mine.toml (see `pgdyno study list`)")
    path = study_path(study)
    choices = StudyChoices(
        fit=fit, anyway=fit_anyway, minutes=minutes, nearest=nearest, no_aa=no_aa, data=data
    )
    command = shlex.join(["pgdyno", *sys.argv[1:]])
    target = evidence or Path(f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}.sqlite")
    if fleet.fleet is not None:
        # Each host fits the study to itself.
        plain = choices.model_copy(update={"fit": False, "minutes": None}) if fit else choices
        requested = requested_study(path, plain, command)
        if fit:
            _require_fittable(requested.fitted.file, minutes)
        request = requested.driven_by(drivers).request
        return run_on_fleet(
            fleet,
            study=path,
            text=request.file,
            title=request.title,
            cases=request.cases,
            choices=choices,
            command=command,
            evidence=target,
            output=output,
            gating=gating,
        )
    requested = requested_study(path, choices, command).driven_by(drivers)
    file, cases = requested.fitted.file, requested.request.cases
    require_writable(target)
    machine = options.machine_size()
    if short := next(filter(None, (shortage(case.study, machine, len(cases)) for case in cases)), ""):
        say(short, wrap=True)
    fitted = requested.fitted
    lost = [f"{NOT_THE_QUESTION}:", *(f"  {one.sentence}" for one in fitted.lost)] if fitted.lost else []
    changed = (f"  {change.sentence}" for change in fitted.changes)
    heading = "\n".join([*lost, describe_study(file, tuple(cases)), *changed])
    return run_and_report(
        target,
        requested.request,
        heading=heading,
        output=output,
        resumed_by=RESUMED_BY,
        gating=gating,
        durability=durability,
    )


RESUMED_BY = "pgdyno run --resume"


@dataclass(frozen=True)
class RequestedStudy:
    """A study file with the options of the command: as fitted, and as the request that runs it."""

    fitted: Fitted
    request: Request

    def driven_by(self, options: DriverOptions) -> RequestedStudy:
        """Return the study with the load generators of the command. Raises UsageError."""
        cases, file = self.request.cases, self.fitted.file
        plan = options.plan(cases[0].study.drivers)
        if plan == cases[0].study.drivers:
            return self
        try:
            driven = [
                replace(case, study=Study.model_validate({**dict(case.study), "drivers": plan}))
                for case in cases
            ]
        except ValidationError as error:
            message = plain_message(error.errors()[0]["msg"])
            raise UsageError(file.as_keys(message, options=("drivers",))) from None
        return replace(self, request=replace(self.request, cases=driven))


def requested_study(
    path: Path, choices: StudyChoices, command: str, only: Sequence[str] = ()
) -> RequestedStudy:
    """Return the study of a file with these options. ``only``: names of its cases; empty for all.

    Raises UsageError, StudyFileError.
    """
    fitted = _as_requested(
        _with_data(read_study(str(path)), choices.data),
        fit=choices.fit,
        anyway=choices.anyway,
        minutes=choices.minutes,
        nearest=choices.nearest,
        no_aa=choices.no_aa,
    )
    file, changes = fitted.file, fitted.changes
    cases = _naming_who_refused_aa(cases_of(file, only), changes, no_aa=choices.no_aa)
    lost = [replace(one, key=LOST + one.key) for one in fitted.lost]
    described = [
        {"key": change.key, "before": change.before, "after": change.after, "why": change.why}
        for change in [*lost, *changes]
    ]
    notes = file.fit.notes if changes else ()
    described += [{"key": "", "before": "", "after": "", "why": note} for note in notes]
    request = Request(
        title=file.title,
        cases=cases,
        command=command,
        file=text_with_files(text_of(path), file),
        changes=described,
        published=file.published,
        is_part=bool(only),
    )
    return RequestedStudy(fitted, request)


def _with_data(file: StudyFile, source: str | None) -> StudyFile:
    """Return the study with other data of its workload. Raises UsageError."""
    if source is None:
        return file
    if source.startswith(PG_UPGRADE):
        if "upgrade_from" in file.factors:
            raise UsageError(
                f"--data {source} requires a study in which upgrade_from is no factor: remove it"
            )
        return _changed(file, upgrade_from=source.removeprefix(PG_UPGRADE))
    if file.workload["kind"] != "pgbench" or "data" in file.factors:
        raise UsageError("--data requires a study of pgbench scripts in which data is no factor: remove it")
    return _changed(file, data=source)


def _changed(file: StudyFile, **parameters: str) -> StudyFile:
    changed = file.model_copy(update={"workload": {**file.workload, **parameters}})
    cases_of(changed)  # reports what does not fit the data
    return changed


def _naming_who_refused_aa(
    cases: tuple[Case, ...], changes: Sequence[FitChange], *, no_aa: bool
) -> tuple[Case, ...]:
    """Record which option disabled A/A blocks, if it was not the study file."""
    who = "--no-aa" if no_aa else "--fit" if any(change.key == "run.aa" for change in changes) else ""
    if not who:
        return cases
    return tuple(replace(case, study=case.study.model_copy(update={"aa_refused_by": who})) for case in cases)


def _as_requested(
    file: StudyFile, *, fit: bool, anyway: bool = False, minutes: float | None, nearest: bool, no_aa: bool
) -> Fitted:
    """Raises UsageError: --fit without --minutes, a disk that is too small, a question that is lost."""
    if nearest:
        file = file.model_copy(update={"run": file.run.model_copy(update={"nearest": True})})
    if no_aa:
        file = file.model_copy(update={"run": file.run.model_copy(update={"aa": False})})
    if fit:
        minutes = _require_fittable(file, minutes)
        machine = fit_machine(Cache.open())
        fitted = fit_to(file, machine, minutes)
        if fitted.lost and not anyway:
            lost = "; ".join(one.sentence for one in fitted.lost)
            needs = ", or ".join(need.sentence for need in needs_of(file, machine, minutes, fitted))
            raise UsageError(
                f"--fit --minutes {minutes:g} loses the question of the source: {lost}: "
                f"{f'use {needs}, or ' if needs else ''}use --fit=anyway"
            )
        return fitted
    if minutes is not None:
        if file.run.schedule == "sequential":
            raise UsageError(
                f"--minutes {minutes:g} cannot limit a study with the schedule sequential, which measures "
                "all "
                "blocks of one arm before the next: change repeats in the study file, or add --fit"
            )
        file = file.model_copy(update={"run": file.run.model_copy(update={"budget_s": 60 * minutes})})
    return Fitted(file, ())


def _require_fittable(file: StudyFile, minutes: float | None) -> float:
    """Return the minutes. Raises UsageError for a study that cannot be fitted to any machine."""
    if "data" in file.workload or "data" in file.factors:
        raise UsageError("--fit cannot scale data of your own: remove --fit")
    if minutes is None:
        raise UsageError("--fit requires --minutes; for example: --fit --minutes 10")
    return minutes


def fit_machine(cache: Cache) -> FitMachine:
    """Return the machine to which studies are fitted."""
    machine = options.machine_size()
    return FitMachine(machine.cores, machine.memory_bytes, free_bytes(cache.root))


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
        for name in settings.values:
            yield (*keys, name), partial(refuse_reserved, {name: ""})
        for n, profile in enumerate(settings.profiles):
            if not is_settings_file(profile):
                yield (*keys, "profiles", n), partial(profile_named, profile)
