"""The option ``--fit`` of ``run``: the study is scaled to this machine and to the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from pgdyno.cli import options
from pgdyno.cli.options import FittedFile, StudyOptions
from pgdyno.errors import UsageError
from pgdyno.server.directories import free_bytes
from pgdyno.study.study_file import StudyFile

if TYPE_CHECKING:
    from pgdyno.features.fitting.fit import FitMachine

ANYWAY = "anyway"


@dataclass(frozen=True)
class FitOptions(StudyOptions):
    """Options of the fit. ``fit_how``: the value of --fit, which the parser of options does not have."""

    COMMANDS: ClassVar = {"run": "minutes"}

    fit: Annotated[
        bool,
        typer.Option(
            "--fit",
            help="Scale the study to this machine and to --minutes, and report the changes. A fit that loses "
            "the question of the source is refused, except with --fit=anyway.",
        ),
    ] = False
    fit_how: Annotated[str | None, typer.Option("--fit-how", hidden=True)] = None

    @classmethod
    def spelled(cls, args: list[str]) -> list[str]:
        """Return ``--fit=VALUE`` as two options."""
        prefix = "--fit="
        split = (
            ["--fit", arg.replace(prefix, "--fit-how=", 1)] if arg.startswith(prefix) else [arg]
            for arg in args
        )
        return [word for words in split for word in words]

    def fitted(self, file: StudyFile, minutes: float | None) -> FittedFile | None:
        """Return the fitted study. Raises UsageError: a disk that is too small, a question that is lost."""
        if not self.fit:
            return None
        minutes = self.require_fittable(file, minutes)
        from pgdyno.features.fitting.fit import fit_study, needs_of  # noqa: PLC0415
        from pgdyno.results.records import LOST, NOT_THE_QUESTION  # noqa: PLC0415

        machine = fit_machine()
        found = fit_study(file, machine, minutes)
        if found.lost and self.fit_how != ANYWAY:
            lost = "; ".join(one.sentence for one in found.lost)
            needs = ", or ".join(need.sentence for need in needs_of(file, machine, minutes, found))
            raise UsageError(
                f"--fit --minutes {minutes:g} loses the question of the source: {lost}: "
                f"{f'use {needs}, or ' if needs else ''}use --fit=anyway"
            )
        keyed = [(LOST + one.key, one) for one in found.lost] + [(one.key, one) for one in found.changes]
        changes = [
            {"key": key, "before": one.before, "after": one.after, "why": one.why} for key, one in keyed
        ]
        notes = found.file.fit.notes if found.changes else ()
        changes += [{"key": "", "before": "", "after": "", "why": note} for note in notes]
        return FittedFile(
            found.file,
            changes,
            [f"{NOT_THE_QUESTION}:", *(f"  {one.sentence}" for one in found.lost)] if found.lost else (),
            [f"  {one.sentence}" for one in found.changes],
            "--fit" if any(one.key == "run.aa" for one in found.changes) else "",
        )

    def require_fittable(self, file: StudyFile, minutes: float | None) -> float:
        """Return the minutes. Raises UsageError for a study that cannot be fitted to any machine."""
        if self.fit_how not in (None, ANYWAY):
            raise UsageError(f"--fit={self.fit_how} is invalid: use --fit, or --fit={ANYWAY}")
        if "data" in file.workload or "data" in file.factors:
            raise UsageError("--fit cannot scale data of your own: remove --fit")
        if minutes is None:
            raise UsageError("--fit requires --minutes; for example: --fit --minutes 10")
        return minutes


def fit_machine() -> FitMachine:
    """Return the machine to which studies are fitted."""
    from pgdyno.features.fitting.fit import FitMachine  # noqa: PLC0415
    from pgdyno.server.cache_directory import Cache  # noqa: PLC0415

    machine = options.machine_size()
    return FitMachine(machine.cores, machine.memory_bytes, free_bytes(Cache.open().root))
