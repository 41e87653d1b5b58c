"""Waterfall charts of the time per transaction, from the baseline to an arm, in HTML."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    case_sections=("section:sections",),
)
