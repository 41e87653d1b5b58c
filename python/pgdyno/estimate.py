"""A number that reaches a person: interval, unit, n, direction of good, and the digits that it deserves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

NO_BREAK = "\u00a0"
"""Between a number and its unit, and between groups of three digits."""

ABSENT = "–"
"""Shown where there is no number: never a zero, never an empty cell."""

_DIGITS_ALONE = 4
"""Significant digits of a number without an interval."""

_DIGITS_OF_HALF_WIDTH = 2
"""An interval says how far a number can be trusted; digits below its second one are noise."""


class Better(StrEnum):
    """Which direction is good."""

    MORE = "more"
    LESS = "less"
    NEITHER = "neither"


@dataclass(frozen=True)
class Estimate:
    """``value`` in ``unit`` from ``n`` observations; ``low`` and ``high`` bound it with ``confidence``.

    ``low`` and ``high`` are None together, where n does not allow an interval. For relative effects the
    unit is ``%`` and the value is (B − A) / A in percent, A the baseline.
    """

    value: float
    unit: str
    n: int
    better: Better
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """An interval has two ends and holds its estimate, but for rounding."""
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has two ends")
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise ValueError(f"an interval from {self.low} to {self.high} is none")

    @property
    def decimals(self) -> int:
        """Digits after the point, for the value and both ends alike."""
        if self.low is None or self.high is None or self.high == self.low:
            return decimals_of(self.value, _DIGITS_ALONE)
        return decimals_of((self.high - self.low) / 2, _DIGITS_OF_HALF_WIDTH)

    @property
    def value_text(self) -> str:
        """``12 345 NOPM``."""
        return f"{grouped(self.value, self.decimals)}{NO_BREAK}{self.unit}"

    @property
    def interval_text(self) -> str:
        """``12 100 … 12 600``, or ``–`` where there is none."""
        if self.low is None or self.high is None:
            return ABSENT
        return f"{grouped(self.low, self.decimals)} … {grouped(self.high, self.decimals)}"

    @property
    def signed_text(self) -> str:
        """``+4.2 %``: for effects."""
        return signed(self.value, self.decimals, self.unit)

    @property
    def signed_interval_text(self) -> str:
        """``+2.9 … +5.5 %``: for effects."""
        if self.low is None or self.high is None:
            return ABSENT
        low, high = (signed(end, self.decimals, "") for end in (self.low, self.high))
        return f"{low} … {high}{NO_BREAK}{self.unit}"


def decimals_of(value: float, digits: int) -> int:
    """How many digits after the point show ``digits`` significant ones: none of a large number, 6 at most."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(6, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def grouped(value: float, decimals: int) -> str:
    """``12 345.6`` with no-break spaces; a true minus sign; never minus zero."""
    text = f"{abs(value):,.{decimals}f}".replace(",", NO_BREAK)
    negative = value < 0 and any(digit in text for digit in "123456789")
    return f"−{text}" if negative else text


def signed(value: float, decimals: int, unit: str) -> str:
    """As ``grouped``, with a plus sign where positive."""
    text = grouped(value, decimals)
    if not text.startswith("−") and any(digit in text for digit in "123456789"):
        text = f"+{text}"
    return f"{text}{NO_BREAK}{unit}" if unit else text


def duration_text(seconds: float) -> str:
    """``350 µs``, ``1.25 ms``, ``12.0 s``, ``14 min``, ``2.5 h``."""
    if seconds == 0:
        return f"0{NO_BREAK}s"
    size = abs(seconds)
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (100.0, 1.0, "s")):
        if size < limit:
            scaled = seconds * factor
            return f"{grouped(scaled, decimals_of(scaled, 3))}{NO_BREAK}{unit}"
    if size < 2 * 3600:
        return f"{grouped(seconds / 60, 0 if size >= 600 else 1)}{NO_BREAK}min"
    return f"{grouped(seconds / 3600, 1)}{NO_BREAK}h"


def share_text(share: float) -> str:
    """``4.2 %`` of 0.042: two significant digits."""
    percent = share * 100
    return f"{grouped(percent, decimals_of(percent, 2))}{NO_BREAK}%"


def size_text(size_bytes: float) -> str:
    """``24.1 MB`` in powers of 1000, as disks are sold and PEERS.md counts."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{grouped(size_bytes / factor, decimals_of(size_bytes / factor, 3))}{NO_BREAK}{unit}"
    return f"{grouped(size_bytes, 0)}{NO_BREAK}B"
