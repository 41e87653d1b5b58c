"""One thing that the fit changed, in words for a person."""

from __future__ import annotations

from dataclasses import dataclass

RATIO_TOLERANCE = 0.1
"""A ratio that is off by less than a tenth is kept: warehouses, branches, seconds and megabytes are whole."""


@dataclass(frozen=True)
class Change:
    """``key``: the path in the study file, or what was derived from it (``data : memory``)."""

    key: str
    before: str
    after: str
    why: str

    @property
    def sentence(self) -> str:
        """``run.window: 1 h → 12 s (…)``."""
        return f"{self.key}: {self.before} → {self.after} ({self.why})"


def ratio(number: float) -> str:
    """Three significant digits, never as a power of ten: ``4.6``, ``0.012``, ``1300``."""
    if number >= 1000:
        return f"{round(number)}"
    return f"{number:.3g}" if number >= 0.001 else f"{number:.6f}".rstrip("0")
