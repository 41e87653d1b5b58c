"""The command ``unpack``: a copy of a results file whose packed values are rows."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, commands={"unpack": ("command", "Copy a results file with series and histograms as rows.")}
)
