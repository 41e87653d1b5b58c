"""CPU profiles of the server, compared by function and stack, and hardware counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.analysis.case_findings import Findings
    from pgdyno.measure.telemetry_collection import ProbeKind
    from pgdyno.report.document import Section
    from pgdyno.report.json_format import Result


def _probes() -> Iterable[ProbeKind]:
    from pgdyno.features.profiles import hardware_counters, perf
    from pgdyno.measure.telemetry_collection import ProbeKind

    yield ProbeKind("profile", start=perf.start)
    yield ProbeKind("hardware", count=hardware_counters.count)


def _results() -> Iterable[Result]:
    from pgdyno.features.profiles.findings import ProfileComparison, profiles_of
    from pgdyno.report.json_format import Result

    yield Result(
        "profiles",
        dict[str, list[ProfileComparison]],
        "CPU profiles by case: one comparison per arm after the first that has profiles.",
        lambda of: {case.study.case: profiles_of(case) for case in of.cases},
    )


def _case_sections() -> Iterable[Callable[[Findings], Iterable[Section]]]:
    from pgdyno.features.profiles.section import sections

    yield sections


FEATURE = Feature("profiles", probes=_probes, results=_results, case_sections=_case_sections)
