"""Option --export of ``pgdyno report``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from pgdyno.cli.console import descriptor_of, require_regular, write_text
from pgdyno.cli.options import StudyOptions
from pgdyno.errors import UsageError

if TYPE_CHECKING:
    from pgdyno.report.document import FileReport, Judgement


@dataclass(frozen=True)
class ExportOptions(StudyOptions):
    """Values of --export."""

    COMMANDS: ClassVar = {"report": ""}
    JUDGING = ("--export",)

    export: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=FILE",
            help="Write the results for another program: bencher, customBiggerIsBetter or "
            "customSmallerIsBetter (github-action-benchmark). May be repeated.",
        ),
    ] = None

    def check_judging(self, results: Path | None = None) -> bool:
        """Return whether the option is given. Raises UsageError."""
        for _, path in self._wanted:
            if descriptor_of(path) is None:
                require_regular(path, results)
        return bool(self.export)

    @property
    def _wanted(self) -> list[tuple[str, Path]]:
        """Formats with their files. Raises UsageError."""
        if not self.export:
            return []
        from pgdyno.features.exports.formats import FORMATS  # noqa: PLC0415

        found = [one.partition("=") for one in self.export]
        for name, _, path in found:
            if name not in FORMATS or not path:
                given = f"{name}={path}" if path else name
                raise UsageError(f"--export must be FORMAT=FILE, with {', '.join(FORMATS)} (got {given})")
        return [(name, Path(path)) for name, _, path in found]

    def judge(self, built: FileReport) -> Judgement | None:
        """Return what writes the files after the report. Raises UsageError for files of several studies."""
        if not self.export:
            return None
        from pgdyno.analysis.study_findings import StudyFindings  # noqa: PLC0415
        from pgdyno.features.exports.formats import exported  # noqa: PLC0415
        from pgdyno.report.document import Judgement  # noqa: PLC0415

        findings = built.findings
        if not isinstance(findings, StudyFindings):
            raise UsageError("--export requires the results file of one study")

        def write(_: Sequence[Path]) -> None:
            for name, path in self._wanted:
                write_text(path, exported(findings, name), force=True)

        return Judgement("export", None, [], write, lambda _: 0)
