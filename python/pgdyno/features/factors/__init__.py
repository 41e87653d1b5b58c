"""Factors of a study: main effects, interactions, scalability."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.analysis.study_findings import StudyFindings
    from pgdyno.report.document import Section
    from pgdyno.report.json_format import Result


def _results() -> Iterable[Result]:
    from pgdyno.features.factors.effects import Effects, effects_in
    from pgdyno.features.factors.scalability import Scalability, scalability_in
    from pgdyno.report.json_format import Result

    yield Result(
        "effects", Effects | None, "Of the factors, if several vary.", lambda of: effects_in(of.cases)
    )
    yield Result(
        "scalability",
        Scalability | None,
        "If the number of clients varies enough.",
        lambda of: scalability_in(of.cases),
    )


def _sections() -> Iterable[Callable[[StudyFindings], Iterable[Section]]]:
    from pgdyno.features.factors.scalability import sections

    yield sections


FEATURE = Feature("factors", results=_results, sections=_sections)
