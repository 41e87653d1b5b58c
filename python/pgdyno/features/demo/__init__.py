"""The demo: what synchronous_commit=off gains and loses, in about three minutes."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    commands={
        "demo": ("command", "Measure what synchronous_commit=off gains and loses, in about three minutes.")
    },
    requires=("crash", "crash_disk", "serve"),
)
