"""Published experiments: their tables with measured values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.analysis.study_findings import StudyFindings
    from pgdyno.report.document import Section
    from pgdyno.report.json_format import Result
    from pgdyno.study.study_file import FilePart


def _file_parts() -> Iterable[FilePart]:
    from pgdyno.features.published.plan import Published, errors_of
    from pgdyno.study.study_file import FilePart

    yield FilePart("published", Published, errors_of)


def _results() -> Iterable[Result]:
    from pgdyno.features.published.tables import PublishedFindings, published_in
    from pgdyno.report.json_format import Result

    about = "Source of the study beside the measured values."
    yield Result("published", PublishedFindings | None, about, lambda of: published_in(of.cases))


def _sections() -> Iterable[Callable[[StudyFindings], Iterable[Section]]]:
    from pgdyno.features.published.section import sections

    yield sections


FEATURE = Feature("published", file_parts=_file_parts, results=_results, sections=_sections)
