"""What a probe read at one moment: raw, as the server counts. Differences and rates are the analysis's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, float | int | str | None]
"""One row by column. What is not known, or not of this version, is absent or None: never 0."""


@dataclass(frozen=True)
class Reading:
    """What one probe read at one moment. ``rows`` is None where there is nothing, and ``reason`` says why."""

    probe: str
    took_s: float
    rows: Sequence[Row] | None
    reason: str = ""
