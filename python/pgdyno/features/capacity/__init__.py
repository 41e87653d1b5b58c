"""The highest rate of an open loop at which an arm keeps a latency limit."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("factors",),
    study_errors=("search:errors_of",),
    before_drive=("run:search_capacities",),
    results=("section:RESULT",),
    sections=("section:sections",),
)
