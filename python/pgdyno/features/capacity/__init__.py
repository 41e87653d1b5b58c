"""The highest rate, or the largest number of clients, at which an arm keeps a latency limit."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("factors",),
    study_errors=("search:errors_of",),
    before_drive=("run:search_capacities",),
    case_results=("clients:RESULT",),
    results=("section:RESULT",),
    case_sections=("clients:case_sections",),
    sections=("section:sections",),
)
