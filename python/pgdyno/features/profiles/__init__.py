"""CPU profiles of the server, compared by function and stack, and hardware counters."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    probes=("perf:PROBE", "hardware_counters:PROBE"),
    results=("section:RESULT",),
    case_sections=("section:sections",),
)
