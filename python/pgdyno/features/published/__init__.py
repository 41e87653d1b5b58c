"""Published experiments: their tables with measured values."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    file_parts=("plan:FILE_PART",),
    results=("section:RESULT",),
    sections=("section:sections",),
)
