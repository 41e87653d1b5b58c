"""Factors of a study: main effects, interactions, scalability."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    options=("sweep:SweepOptions",),
    results=("effects:RESULT", "scalability:RESULT"),
    sections=("scalability:sections",),
)
