"""Crash tests: servers are crashed on purpose, and the acknowledged commits that are gone are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.analysis.study_findings import StudyFindings
    from pgdyno.cli.options import StudyOptions
    from pgdyno.report.document import FileReport, Section
    from pgdyno.report.json_format import Result
    from pgdyno.results.reader import Evidence


def _findings() -> Iterable[Callable[[Evidence], Any]]:
    from pgdyno.features.crash.findings import crash_test_of_study

    yield crash_test_of_study


def _results() -> Iterable[Result]:
    from pgdyno.features.crash.findings import CrashTest, crash_test_of_study
    from pgdyno.report.json_format import Result

    about = "Crash test of the arms."
    yield Result("durability", CrashTest | None, about, lambda of: of.found_by(crash_test_of_study))


def _sections() -> Iterable[Callable[[StudyFindings], Iterable[Section]]]:
    from pgdyno.features.crash.sections import durability_sections

    yield durability_sections


def _reports() -> Iterable[Callable[[Sequence[Path]], FileReport | None]]:
    from pgdyno.features.crash.sections import read_files

    yield read_files


def _documents() -> Iterable[type]:
    from pgdyno.features.crash.sections import CrashDocument

    yield CrashDocument


def _options() -> Iterable[type[StudyOptions]]:
    from pgdyno.features.crash.options import DurabilityOptions

    yield DurabilityOptions


FEATURE = Feature(
    "crash",
    requires=("crash_disk",),
    options=_options,
    findings=_findings,
    results=_results,
    sections=_sections,
    reports=_reports,
    documents=_documents,
)
