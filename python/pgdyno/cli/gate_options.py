"""Options --fail-if and --summary for pipelines, and their evaluation against a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgdyno.cli.console import say
from pgdyno.cli.output_files import append_text, require_summary
from pgdyno.errors import PgdynoError, UsageError

if TYPE_CHECKING:  # only --fail-if and --summary import the analysis before a study
    from pgdyno.analysis.gates import Gate, GateCondition
    from pgdyno.report.document import FileReport

GATE_FAILED = 3
"""Exit status if a condition is met."""

INCONCLUSIVE = 4
"""Exit status if a comparison neither meets its condition nor rules it out, or a search finds no commit."""

EXIT_STATUSES = {
    "failed": GATE_FAILED,
    "not-evaluable": PgdynoError.exit_status,
    "inconclusive": INCONCLUSIVE,
    "passed": 0,
}
"""Exit status of each ``GateOutcome``."""

AUTO = "auto"
VARIABLE = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True)
class GateOptions:
    """Values of --fail-if and --summary."""

    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with status 3 if an arm meets the condition (slower, faster, not-same, undecided) and "
            "with 4 if the results neither meet it nor rule it out. slower:5%: by more than 5%; slower:p99: "
            "in another metric; slower:p99:5%: both. May be repeated.",
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
    def is_wanted(self) -> bool:
        """Return True if any of the options is given."""
        return bool(self.fail_if) or self.summary is not None

    def check(self, evidence: Path | None = None) -> None:
        """Check the options before a long measurement writes ``evidence``. Raises UsageError."""
        _ = self.conditions
        if self.summary_file is not None:
            require_summary(self.summary_file, evidence)

    @property
    def conditions(self) -> list[GateCondition]:
        """The conditions of --fail-if. Raises UsageError for an invalid one."""
        if not self.fail_if:
            return []
        from pgdyno.analysis.gates import parse_condition  # noqa: PLC0415

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

    def gate(self, built: FileReport) -> Gate | None:
        """Evaluate the conditions; None without --fail-if."""
        if not self.fail_if or built.findings is None:
            return None
        from pgdyno.analysis.gates import gate  # noqa: PLC0415

        return gate(built.findings, self.conditions)

    def summarise(self, built: FileReport, found: Gate | None, files: Sequence[Path]) -> None:
        """Append the summary if --summary is given. Raises PgdynoError."""
        if self.summary_file is not None and built.findings is not None:
            from pgdyno.report.gate_section import to_summary  # noqa: PLC0415

            verdicts = built.findings.gate_comparisons()
            append_text(self.summary_file, to_summary(built, verdicts, found, [str(path) for path in files]))

    def status(self, found: Gate | None, *, quiet: bool = False) -> int:
        """Return the exit status. Raises PgdynoError for conditions that cannot be evaluated."""
        if found is None:
            return 0
        from pgdyno.analysis.gates import GateOutcome  # noqa: PLC0415
        from pgdyno.report import gate_section as wording  # noqa: PLC0415

        is_not_evaluable = found.outcome is GateOutcome.NOT_EVALUABLE
        if found.outcome is not GateOutcome.PASSED or not quiet:
            reasons = wording.reasons(found)
            for sentence in reasons if is_not_evaluable else [*reasons, wording.outcome(found)]:
                say(f"pgdyno: {sentence}")
        if is_not_evaluable:
            raise PgdynoError(wording.outcome(found))
        return EXIT_STATUSES[found.outcome]


NO_GATE = GateOptions()
