"""Many workloads on several servers: one page with an effect in each cell, and ``run --versions``."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("plans",),
    options=("options:Versions",),
    results=("section:RESULT",),
    sections=("section:sections",),
)
