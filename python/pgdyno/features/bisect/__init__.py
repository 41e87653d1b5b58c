"""Search for the commit that changed the performance."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("builds",),
    commands={"bisect": ("command", "Find the commit that changed the performance, by binary search.")},
)
