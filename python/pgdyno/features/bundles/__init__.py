"""The commands ``bundle`` and ``verify``: results and reports in one archive, which anybody can recompute."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("hosts",),
    commands={
        "bundle": ("command", "Write results, reports and checksums to one archive."),
        "verify": ("command", "Recompute the figures of a bundle, and compare."),
    },
)
