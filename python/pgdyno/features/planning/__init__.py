"""Check and explanation of study files before they run."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("builds", "capacity", "load_time"),
    commands={"study": ("command", "Check, explain and list study files.")},
    search_time=("cost:search_s",),
)
