"""Results files of the same question side by side, with the changes between them."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("history", "hosts"),
    reports=("report:read_files",),
    documents=("report:SideBySideDocument",),
    caveats=("caveats.toml",),
)
