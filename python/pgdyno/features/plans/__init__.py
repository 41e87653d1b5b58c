"""Plans of the statements in each arm, and the statements whose plan changed."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, probes=("explain:PROBE",), results=("section:RESULT",), case_sections=("section:sections",)
)
