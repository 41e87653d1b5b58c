"""The demo: the effect of synchronous_commit in about two minutes."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    commands={
        "demo": ("command", "Measure the effect of synchronous_commit in about two minutes."),
    },
)
