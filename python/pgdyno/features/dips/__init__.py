"""Variation of the throughput, its dips, and the events that coincide with them."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    case_results=("findings:RESULT", "variation:RESULT"),
    series_results=("findings:EVENTS",),
    case_sections=("section:sections",),
    timeline_marks=("section:MARKS",),
    trial_values=("section:VALUES",),
)
