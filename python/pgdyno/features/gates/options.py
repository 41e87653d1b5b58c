"""Options --fail-if and --summary for pipelines, and their evaluation against a report."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from pgdyno.cli.console import descriptor_of, require_regular, say, write_through
from pgdyno.cli.options import StudyOptions
from pgdyno.errors import PgdynoError, UsageError, naming

if TYPE_CHECKING:  # only --fail-if and --summary import the analysis before a study
    from pgdyno.features.gates.conditions import Gate, GateCondition
    from pgdyno.report.document import FileReport, Judgement
    from pgdyno.study.plan import Study

AUTO = "auto"
VARIABLE = "GITHUB_STEP_SUMMARY"
FAIL_IF = "--fail-if"


@dataclass(frozen=True)
class ConditionOptions(StudyOptions):
    """Values of --fail-if and --summary."""

    COMMANDS: ClassVar = {"compare": "", "run": "", "report": ""}
    READ_ON_RESUME = True
    JUDGING = (FAIL_IF, "--summary")

    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            FAIL_IF,
            metavar="CONDITION",
            help="Exit with status 3 if an arm meets the condition (slower, faster, not-same, undecided) and "
            "with 4 if the results neither meet it nor rule it out. slower:5%: by more than 5%; slower:p99: "
            "in another metric; slower:p99:5%: both. These measure for the whole budget. May be repeated.",
        ),
    ] = None
    summary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Append a summary in Markdown to FILE. auto: the file named by GITHUB_STEP_SUMMARY.",
        ),
    ] = None

    @property
    def measures_whole_budget(self) -> bool:
        """True if a condition has a metric or a limit, which the verdict on throughput does not decide."""
        return any(":" in text for text in self.fail_if or ())

    def check(self, studies: Callable[[], Sequence[Study]]) -> None:
        """Raise UsageError for a metric of the driver that no case of the study has."""
        if not self.fail_if:
            return
        from pgdyno.analysis.telemetry.metrics import (  # noqa: PLC0415
            MEDIAN_LATENCY,
            OF_DRIVER,
            TrialLatencies,
            of_plan,
        )

        known = {metric.key for study in studies() for metric in of_plan(study, TrialLatencies())}
        for condition in self.conditions:
            if condition.metric in {one.key for one in (*OF_DRIVER, MEDIAN_LATENCY)} - known:
                raise UsageError(
                    f"{FAIL_IF} {condition.text}: this load has no metric {condition.metric}: use one of "
                    f"{', '.join(sorted(known))}, or a key of telemetry"
                )

    def check_judging(self, results: Path | None = None) -> bool:
        """Return whether an option is given. Raises UsageError before a long measurement."""
        _ = self.conditions
        if self.summary_file is not None and descriptor_of(self.summary_file) is None:
            require_regular(self.summary_file, results)
        return bool(self.fail_if) or self.summary is not None

    @property
    def conditions(self) -> list[GateCondition]:
        """The conditions of --fail-if. Raises UsageError for an invalid one."""
        if not self.fail_if:
            return []
        from pgdyno.features.gates.conditions import parse_condition  # noqa: PLC0415

        with naming(FAIL_IF):
            return [parse_condition(text) for text in self.fail_if]

    @property
    def summary_file(self) -> Path | None:
        """The file of --summary. Raises UsageError if ``auto`` has no file."""
        if self.summary != AUTO:
            return None if self.summary is None else Path(self.summary)
        named = os.environ.get(VARIABLE)
        if not named:
            raise UsageError(
                f"--summary auto requires {VARIABLE}, which is not set: give a file name (./auto for one "
                "named auto)"
            )
        return Path(named)

    def judge(self, built: FileReport) -> Judgement | None:
        """Evaluate the conditions; without them, there may be a summary to write."""
        if built.findings is None or (not self.fail_if and self.summary is None):
            return None
        from pgdyno.features.gates.conditions import gate  # noqa: PLC0415
        from pgdyno.features.gates.section import GATE, outcome, reasons  # noqa: PLC0415
        from pgdyno.report.document import Judgement  # noqa: PLC0415

        found = gate(built.findings, self.conditions) if self.fail_if else None
        sentences = [outcome(found), *reasons(found)] if found else []
        return Judgement(
            GATE.name, found, sentences, partial(self._publish, built, found), partial(_status, found)
        )

    def _publish(self, built: FileReport, found: Gate | None, files: Sequence[Path]) -> None:
        """Append the summary if --summary is given. Raises PgdynoError."""
        from pgdyno.features.gates.section import to_summary  # noqa: PLC0415

        if self.summary_file is not None and built.findings is not None:
            verdicts = built.findings.verdicts_on()
            append_text(self.summary_file, to_summary(built, verdicts, found, [str(path) for path in files]))


def append_text(path: Path, text: str) -> None:
    """Append to a regular file or an open descriptor. Raises PgdynoError."""
    try:
        if (number := descriptor_of(path)) is not None:
            write_through(number, text)
            return
        # Without O_NONBLOCK, opening a pipe that replaced the file would block.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PgdynoError(f"cannot write the summary to {path}: it is not a regular file")
            file.write(text)
    except OSError as error:
        raise PgdynoError(f"cannot write the summary to {path}: {error.strerror}") from error


def _status(found: Gate | None, quiet: bool) -> int:
    """Return the exit status. Raises PgdynoError for conditions that cannot be evaluated."""
    if found is None:
        return 0
    from pgdyno.features.gates.conditions import EXIT_STATUSES, GateOutcome  # noqa: PLC0415
    from pgdyno.features.gates.section import outcome, reasons  # noqa: PLC0415

    is_not_evaluable = found.outcome is GateOutcome.NOT_EVALUABLE
    if found.outcome is not GateOutcome.PASSED or not quiet:
        for sentence in reasons(found) if is_not_evaluable else [*reasons(found), outcome(found)]:
            say(f"pgdyno: {sentence}", wrap=True)
    if is_not_evaluable:
        raise PgdynoError(outcome(found))
    return EXIT_STATUSES[found.outcome]
