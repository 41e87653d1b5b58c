"""Load generators on other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.analysis.case_findings import Findings
    from pgdyno.cli.options import StudyOptions
    from pgdyno.measure.trial import OpenSession
    from pgdyno.report.document import Section
    from pgdyno.report.json_format import Result


def _options() -> Iterable[type[StudyOptions]]:
    from pgdyno.features.drivers.options import DriverOptions

    yield DriverOptions


def _session() -> Iterable[OpenSession]:
    from pgdyno.features.drivers import loss

    yield loss.open_session


def _results() -> Iterable[Result]:
    from pgdyno.features.drivers.section import DriverNodeSummary, driver_node_summaries
    from pgdyno.report.json_format import Result

    yield Result(
        "driver_nodes",
        dict[str, list[DriverNodeSummary]],
        "Load generators by case; empty if this machine generated the load.",
        lambda of: {case.study.case: driver_node_summaries(case.trials) for case in of.cases},
    )


def _case_sections() -> Iterable[Callable[[Findings], Iterable[Section]]]:
    from pgdyno.features.drivers.section import sections

    yield sections


FEATURE = Feature(
    "drivers",
    requires=("cluster",),
    options=_options,
    session=_session,
    results=_results,
    case_sections=_case_sections,
)
