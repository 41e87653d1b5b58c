"""An estimate for presentation, and the text of every measured number, in all formats.

Digits are in groups of three by commas, and a measured number is never rounded to tens or hundreds: every
digit shown is right. An interval is ``95% CI [3.4%, 12.8%]``. Its ends and its estimate have the same
decimals, which give each end at least two significant digits (CONTRIBUTING.md, Numbers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

NO_BREAK = "\u00a0"
"""No-break space between a number and its unit."""

ABSENT = "–"
"""Text for a missing number, instead of a zero or an empty cell."""

_DIGITS_ALONE = 4
"""Significant digits of a number without an interval."""

_DIGITS_OF_HALF_WIDTH = 2
"""Significant digits of the half-width of an interval: further digits of the estimate are noise."""

_DECIMALS_OF_PERCENT_MAX = 3
"""Digits of a percentage after the decimal point: smaller effects do not matter to anybody."""

_DECIMALS_MAX = 6

_DECIMALS_FOR_END_MAX = 2
"""Decimals more than the half-width needs, so that an end near zero has two significant digits."""

_ASYMMETRY_MAX = 12
"""Maximum width of an interval as a multiple of its shorter side, for digits by its half-width."""


class Better(StrEnum):
    """The better direction of a metric."""

    MORE = "more"
    LESS = "less"
    NEITHER = "neither"

    @property
    def word(self) -> str:
        """``higher`` or ``lower``, for titles."""
        return {Better.MORE: "higher", Better.LESS: "lower"}.get(self, str(self))


@dataclass(frozen=True)
class Estimate:
    """A value in ``unit`` from ``n`` observations, with a confidence interval from ``low`` to ``high``.

    ``low`` and ``high`` are both None if n is too small for an interval. For relative effects the unit is
    ``%`` and the value is (B − A) / A in percent, where A is the baseline.
    """

    value: float
    unit: str
    n: int
    better: Better
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Check the interval. Raises ValueError unless both ends are given, in ascending order."""
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval requires both ends")
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise ValueError(f"the interval from {self.low} to {self.high} is invalid")

    @property
    def decimals(self) -> int:
        """Digits after the decimal point, for the value and both ends.

        The half-width has two significant digits, and so has each end. The shorter side of a very asymmetric
        interval decides, or the value would lose all of its digits.
        """
        if self.low is None or self.high is None or self.high == self.low:
            return decimals_of(self.value, _DIGITS_ALONE)
        half_width = (self.high - self.low) / 2
        if not math.isfinite(half_width):
            return decimals_of(self.value, _DIGITS_ALONE)
        shorter = min(self.value - self.low, self.high - self.value)
        is_asymmetric = 0 < _ASYMMETRY_MAX * shorter < 2 * half_width
        width = 2 * shorter if is_asymmetric else half_width
        enough = decimals_of(width, _DIGITS_OF_HALF_WIDTH)
        of_ends = max(decimals_of(end, _DIGITS_OF_HALF_WIDTH) for end in (self.low, self.high))
        most = _DECIMALS_OF_PERCENT_MAX if self.unit == "%" else _DECIMALS_MAX
        return min(most, max(enough, min(of_ends, enough + _DECIMALS_FOR_END_MAX)))

    @property
    def value_text(self) -> str:
        """``12,345 NOPM``."""
        return with_unit(group_digits(self.value, self.decimals), self.unit)

    @property
    def interval_text(self) -> str:
        """``[12,100, 12,600]`` without the unit except for percentages; ``–`` without an interval."""
        if self.low is None or self.high is None:
            return ABSENT
        ends = (group_digits(end, self.decimals) for end in (self.low, self.high))
        return bracketed(*(with_unit(end, self.unit) if self.unit == "%" else end for end in ends))

    @property
    def signed_text(self) -> str:
        """``+4.2%``, for effects."""
        return signed(self.value, self.decimals, self.unit)

    @property
    def signed_interval_text(self) -> str:
        """``[+2.9%, +5.5%]``, for effects."""
        if self.low is None or self.high is None:
            return ABSENT
        return bracketed(*(signed(end, self.decimals, self.unit) for end in (self.low, self.high)))

    @property
    def unsigned_ends(self) -> tuple[str, str]:
        """The sizes of both ends: ``("2.9%", "5.5%")``. There must be an interval."""
        assert self.low is not None and self.high is not None
        low, high = (
            with_unit(group_digits(abs(end), self.decimals), self.unit) for end in (self.low, self.high)
        )
        return low, high


def decimals_of(value: float, digits: int) -> int:
    """Return the digits after the decimal point for ``digits`` significant ones: from 0 to 6."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(_DECIMALS_MAX, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def significant(value: float, digits: int) -> str:
    """Return a number with ``digits`` significant digits, and all of its digits before the decimal point."""
    return group_digits(value, decimals_of(value, digits))


def number_text(value: float | None) -> str:
    """Return a number with three significant digits; a dash if it is unknown."""
    return ABSENT if value is None else significant(value, 3)


def time_of_blocks(blocks: int, block_s: float | None) -> str:
    """Return the time of further blocks in parentheses after a space, rounded; empty if it is unknown.

    ``block_s``: duration of the last block.
    """
    if not block_s:
        return ""
    duration_s = blocks * block_s
    if duration_s < 90:
        return f" ({with_unit(f'{max(1, round(duration_s / 10)) * 10}', 's')})"
    minutes = duration_s / 60
    if minutes < 100:
        return f" ({with_unit(f'{round(minutes)}', 'min')})"
    return f" ({with_unit(group_digits(minutes / 60, decimals_of(minutes / 60, 2)), 'h')})"


def with_unit(text: str, unit: str) -> str:
    """Join a number and a unit: ``8.2%`` without a space, ``1.5 ms`` with a no-break space."""
    return f"{text}{NO_BREAK if unit and unit != '%' else ''}{unit}"


def bracketed(low: str, high: str) -> str:
    """Return ``[2.9, 5.5]``, the interval between two formatted ends."""
    return f"[{low}, {high}]"


def group_digits(value: float, decimals: int) -> str:
    """Return ``12,345.6``; with a minus sign, never −0."""
    text = f"{abs(value):,.{decimals}f}"
    negative = value < 0 and any(digit in text for digit in "123456789")
    return f"−{text}" if negative else text


def signed(value: float, decimals: int, unit: str) -> str:
    """Format like ``group_digits``, with a plus sign for positive numbers."""
    text = group_digits(value, decimals)
    if not text.startswith("−") and any(digit in text for digit in "123456789"):
        text = f"+{text}"
    return with_unit(text, unit)


def share_text(share: float) -> str:
    """Return ``4.2%`` for 0.042: two significant digits."""
    return percent_text(share, decimals_of(share * 100, 2))


def percent_text(share: float, decimals: int) -> str:
    """Return ``4.2%`` for 0.042 and one decimal."""
    return with_unit(group_digits(share * 100, decimals), "%")


def given_number(value: float) -> str:
    """Return ``1,000`` or ``2.5``: a configured number, with the digits it was given with."""
    return f"{value:,.15g}"


def given_percent(share: float) -> str:
    """Return ``2%`` for 0.02: a configured share, with the digits it was given with."""
    return f"{100 * share:.6g}%"


def confidence_percent(confidence: float) -> str:
    """Return ``98.3%`` for 1 − 0.05 / 3, with more decimals only if needed to show < 100%."""
    percent = 100 * confidence
    decimals = next((n for n in range(1, 6) if round(percent, n) < 100), 6)
    return f"{round(percent, decimals):g}%"


def ci_text(confidence: float) -> str:
    """Return ``95% CI``."""
    return f"{confidence_percent(confidence)} CI"


def counted(n: int, noun: str) -> str:
    """Return ``1 block``, ``2 blocks``, ``12,000 blocks``."""
    return f"{group_digits(n, 0)} {noun}{'' if n == 1 else 's'}"
