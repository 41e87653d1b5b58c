"""Published experiments: their tables with measured values."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    published_keys=("plan:KEYS",),
    results=("section:RESULT",),
    sections=("section:sections",),
)
