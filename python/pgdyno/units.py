"""Numbers for people: sizes and durations as text, and estimates in the one format of all reports.

- Conversion of sizes and durations between text and numbers.
- An estimate for presentation, and the text of every measured number, in all formats.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pgdyno.errors import UsageError

# ----------------------------------------------------------------------
# Conversion of sizes and durations between text and numbers.
#
# A size is an ``int`` of bytes, a duration a ``float`` of seconds. The units are those of PostgreSQL (``kB``
# is 1024 bytes, see its ``guc.c``), so a value can be copied between a command line and ``postgresql.conf``.
# ----------------------------------------------------------------------

SIZE_UNITS_BYTES = {"B": 1, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
DURATION_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

US_PER_S = 1e6
US_PER_MS = 1e3
NS_PER_S = 1e9
NS_PER_MS = 1e6
S_PER_MS = 1e-3
S_PER_MIN = 60.0
S_PER_HOUR = 3600.0
PER_MIB = 2.0**-20
PERCENT = 100.0

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*\Z")


def split_quantity(text: str) -> tuple[float, str]:
    """Return a number and its unit (empty if none). Raises ValueError if the text is not a number."""
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"not a number with a unit: {text!r}")
    return float(match[1]), match[2]


def parse_size_bytes(text: str) -> int:
    """Convert ``1.5GB`` to bytes, the default unit. Units are case-insensitive. Raises UsageError."""
    units = {unit.lower(): factor for unit, factor in SIZE_UNITS_BYTES.items()}
    return round(_parse(text, units, "B", "size", "B, kB, MB, GB, TB"))


def parse_duration_s(text: str, *, bare: str = "s") -> float:
    """Convert ``90s``, ``1.5min`` or ``1.5m``, ``200ms`` to seconds. ``bare``: default unit. Raises
    UsageError."""
    return _parse(text, {**DURATION_UNITS_S, "m": 60.0}, bare, "duration", "us, ms, s, min, h, d")


def _parse(text: str, units: dict[str, float] | dict[str, int], bare: str, what: str, known: str) -> float:
    try:
        number, unit = split_quantity(text)
        factor = units[(unit or bare).lower()]
    except (ValueError, KeyError):
        raise UsageError(f"{text!r} is not a {what}: use a number with one of the units {known}") from None
    if number < 0:
        raise UsageError(f"{text!r} is negative: a {what} must be at least 0")
    if not math.isfinite(number * factor):
        raise UsageError(f"the {what} {text!r} is too large")
    return number * factor


def format_size(size_bytes: int) -> str:
    """Return a size with three significant digits, ``1.05 GB``, or without decimals, ``2 GB``."""
    sign, rest = ("-", -size_bytes) if size_bytes < 0 else ("", size_bytes)
    unit, factor = max(
        ((u, f) for u, f in SIZE_UNITS_BYTES.items() if f <= max(rest, 1)), key=lambda item: item[1]
    )
    return f"{sign}{_digits(rest / factor)} {unit}"


def format_setting_size(size_bytes: int) -> str:
    """Return a size for ``postgresql.conf``: an integer and its largest unit, ``2GB``, ``20971kB``."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size_bytes and size_bytes % SIZE_UNITS_BYTES[unit] == 0:
            return f"{size_bytes // SIZE_UNITS_BYTES[unit]}{unit}"
    return f"{size_bytes}B" if size_bytes else "0"


def format_duration(duration_s: float) -> str:
    """Return a duration as text: ``850 µs``, ``12.3 ms``, ``4.56 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if duration_s < 0:
        return f"-{format_duration(-duration_s)}"
    if not duration_s:
        return "0 s"
    for unit, factor in (("µs", 1e-6), ("ms", 1e-3)):
        if duration_s < factor * 999.5:
            return f"{_digits(duration_s / factor)} {unit}"
    if duration_s < 59.95:
        return f"{_digits(duration_s)} s"
    seconds = round(duration_s)
    if seconds < 3600:
        return f"{seconds // 60} min" + (f" {seconds % 60:02d} s" if seconds % 60 else "")
    minutes = round(duration_s / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60:02d} min" if minutes % 60 else "")


def format_duration_range(least_s: float | None, most_s: float) -> str:
    """Return ``2 s to 8 s``, or ``8 s`` without a minimum."""
    most = format_duration(most_s)
    return most if least_s is None else f"{format_duration(least_s)} to {most}"


def _digits(number: float) -> str:
    if number == int(number):
        return str(int(number))
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


# ----------------------------------------------------------------------
# An estimate for presentation, and the text of every measured number, in all formats.
#
# Digits are in groups of three by commas, and a measured number is never rounded to tens or hundreds: every
# digit shown is right. An interval is ``95% CI [3.4%, 12.8%]``. Its ends and its estimate have the same
# decimals, which give the half-width and each end at least two significant digits. In a table it is
# ``[+3.4, +12.8]`` below the unit in its head. Without an interval, a change has two significant digits, a
# level three to five. A bound is an end of the interval that is shown: ``at most 7.0% slower``.
# ----------------------------------------------------------------------

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


class _NullIfInfinite:
    """The type of a number in JSON that is null if it is infinite."""

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return {"type": ["number", "null"]}


Finite = Annotated[float, _NullIfInfinite()]
"""A number that may be infinite. JSON has null for it."""


@dataclass(frozen=True)
class Estimate:
    """A value in ``unit`` from ``n`` observations, with a confidence interval from ``low`` to ``high``.

    ``low`` and ``high`` are both None if n is too small for an interval. For relative effects the unit is
    ``%`` and the value is (B − A) / A in percent, where A is the baseline.
    """

    value: Finite
    unit: str
    n: int
    better: Better
    low: Finite | None = None
    high: Finite | None = None
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
        if max(abs(self.low), abs(self.high)) < 0.5 * 10**-_DECIMALS_MAX:
            return 0  # rounding errors, which depend on the processor
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
