"""The option ``--fit`` of ``run`` and ``study plan``: the study is scaled to this machine and to the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from pgdyno.cli import options
from pgdyno.cli.options import FittedFile, StudyOptions
from pgdyno.errors import UsageError
from pgdyno.server.directories import free_bytes
from pgdyno.study.study_file import Run, StudyFile

if TYPE_CHECKING:
    from pgdyno.features.fitting.fit import Need
    from pgdyno.features.fitting.rules import FitMachine

ANYWAY = "anyway"


def parse_fit(value: str) -> str:
    """Return the value of --fit: ANYWAY, or empty. Raises UsageError."""
    if value not in ("", ANYWAY):
        raise UsageError(f"--fit={value} is invalid: use --fit, or --fit={ANYWAY}")
    return value


@dataclass(frozen=True)
class FitOptions(StudyOptions):
    """Options of ``run``. ``fit``: ANYWAY, or empty; None without a fit."""

    COMMANDS: ClassVar = {"run": "minutes"}

    fit: Annotated[
        str | None,
        typer.Option(
            parser=parse_fit,
            metavar=f"[={ANYWAY}]",
            help="Scale the study to this machine and to --minutes, and report the changes. A fit that loses "
            "the question of the source is refused, except with --fit=anyway.",
        ),
    ] = None

    @classmethod
    def spelled(cls, args: list[str], _command: str) -> list[str]:
        """Return the arguments with an empty value after a ``--fit`` without one."""
        return ["--fit=" if arg == "--fit" else arg for arg in args]

    @property
    def is_fitted(self) -> bool:
        """True if --fit is given."""
        return self.fit is not None

    def fitted(self, file: StudyFile, minutes: float | None) -> FittedFile | None:
        """Return the fitted study. Raises UsageError: a disk that is too small, a question that is lost."""
        if not self.is_fitted:
            return None
        minutes = self.require_fittable(file, minutes)
        fitted, needs = fit_here(file, minutes)
        if fitted.lost and self.fit != ANYWAY:
            needed = ", or ".join(need.sentence for need in needs())
            raise UsageError(
                f"--fit --minutes {minutes:g} loses the question of the source: {'; '.join(fitted.lost)}: "
                f"{f'use {needed}, or ' if needed else ''}use --fit=anyway"
            )
        return fitted

    def require_fittable(self, file: StudyFile, minutes: float | None) -> float:
        """Return the minutes. Raises UsageError for a study that cannot be fitted to any machine."""
        if "workload" in file.factors:
            raise UsageError("--fit does not scale a study of several workloads: set sizes in their levels")
        if "data" in file.workload or "data" in file.factors:
            raise UsageError("--fit cannot scale data of your own: remove --fit")
        if file.workload.get("kind") == "load":
            raise UsageError("--fit cannot scale a study of loads: make its dataset smaller; remove --fit")
        if minutes is None:
            raise UsageError("--fit requires --minutes; for example: --fit --minutes 10")
        return minutes


FIT_MIN = 10.0
"""Time budget of ``pgdyno study plan --fit``, in minutes."""


@dataclass(frozen=True)
class PlanOptions(FitOptions):
    """Options of ``study plan``, which shows also a fit that loses the question."""

    COMMANDS: ClassVar = {"plan": "as_json"}

    fit: Annotated[
        str | None,
        typer.Option(
            parser=parse_fit,
            metavar=f"[={ANYWAY}]",
            help="Scale the study to this machine and to --minutes, and report the changes.",
        ),
    ] = None
    minutes: Annotated[
        float | None,
        options.option_from(
            Run,
            "budget_s",
            text="Time budget for measurement, in minutes or with a unit (300s), without loading. "
            f"[default: that of the study, with --fit {FIT_MIN:g}]",
        ),
    ] = None

    def fitted(self, file: StudyFile, minutes: float | None) -> FittedFile | None:  # noqa: ARG002
        """Return the fitted study; its losses include what would keep the question. Raises UsageError."""
        if not self.is_fitted:
            from pgdyno.cli.run import within  # noqa: PLC0415  # compare does not need study files

            return None if self.minutes is None else FittedFile(within(file, self.minutes))
        fitted, needs = fit_here(file, self.require_fittable(file, self.minutes or FIT_MIN))
        needed = needs() if fitted.lost else []
        also = [f"{'or ' if number else ''}needs {need.sentence}" for number, need in enumerate(needed)]
        return replace(fitted, lost=[*fitted.lost, *also])


def fit_here(file: StudyFile, minutes: float) -> tuple[FittedFile, Callable[[], list[Need]]]:
    """Return the study fitted to this machine, and a function that returns what would keep its question."""
    from pgdyno.features.fitting.fit import fit_study, needs_of  # noqa: PLC0415
    from pgdyno.features.fitting.levels import fit_of  # noqa: PLC0415
    from pgdyno.results.records import LOST  # noqa: PLC0415

    machine = fit_machine()
    limit_bytes = file.run.memory_limit_bytes or machine.memory_bytes
    machine = replace(machine, memory_bytes=min(machine.memory_bytes, limit_bytes))
    found = fit_study(file, machine, minutes)
    keyed = [(LOST + one.key, one) for one in found.lost] + [(one.key, one) for one in found.changes]
    changes = [{"key": key, "before": one.before, "after": one.after, "why": one.why} for key, one in keyed]
    notes = fit_of(found.file).notes if found.changes else ()
    changes += [{"key": "", "before": "", "after": "", "why": note} for note in notes]
    fitted = FittedFile(
        found.file,
        changes,
        [one.sentence for one in found.lost],
        [one.sentence for one in found.changes],
        "--fit" if any(one.key == "run.aa" for one in found.changes) else "",
    )
    return fitted, partial(needs_of, file, machine, minutes, found)


def fit_machine() -> FitMachine:
    """Return the machine to which studies are fitted."""
    from pgdyno.features.fitting.rules import FitMachine  # noqa: PLC0415
    from pgdyno.server.cache_directory import Cache  # noqa: PLC0415

    machine = options.machine_size()
    return FitMachine(machine.cores, machine.memory_bytes, free_bytes(Cache.open().root))
