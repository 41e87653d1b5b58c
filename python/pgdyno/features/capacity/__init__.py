"""The highest rate of an open loop at which an arm keeps a latency limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.analysis.study_findings import StudyFindings
    from pgdyno.cli.options import SearchTime
    from pgdyno.measure.drive import BeforeDrive
    from pgdyno.report.document import Section
    from pgdyno.report.json_format import Result


def _before_drive() -> Iterable[BeforeDrive]:
    from pgdyno.features.capacity import run

    yield run.search_capacities


def _search_time() -> Iterable[SearchTime]:
    from pgdyno.features.planning.cost import search_s

    yield search_s


def _results() -> Iterable[Result]:
    from pgdyno.features.capacity.section import Capacity, capacity_of
    from pgdyno.report.json_format import Result

    yield Result(
        "capacity", Capacity | None, "If the study limits the latency.", lambda of: capacity_of(of.cases)
    )


def _sections() -> Iterable[Callable[[StudyFindings], Iterable[Section]]]:
    from pgdyno.features.capacity.section import sections

    yield sections


FEATURE = Feature(
    "capacity",
    requires=("factors", "planning"),
    before_drive=_before_drive,
    search_time=_search_time,
    results=_results,
    sections=_sections,
)
