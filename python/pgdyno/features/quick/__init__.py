"""A quick estimate: option --quick of compare, and what its report says about a decision."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, requires=("noise_history",), options=("options:QuickOptions",), sections=("section:sections",)
)
