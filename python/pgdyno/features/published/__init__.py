"""Published experiments: their tables with measured values."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    study_tables=("plan:TABLE",),
    study_errors=("plan:errors_of",),
    results=("section:RESULT",),
    sections=("section:sections",),
)
