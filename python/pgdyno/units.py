"""Conversion of sizes and durations between text and numbers.

A size is an ``int`` of bytes, a duration a ``float`` of seconds. The units are those of PostgreSQL (``kB`` is
1024 bytes, see its ``guc.c``), so a value can be copied between a command line and ``postgresql.conf``.
"""

from __future__ import annotations

import math
import re

from pgdyno.errors import UsageError

SIZE_UNITS_BYTES = {"B": 1, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
DURATION_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

US_PER_S = 1e6
US_PER_MS = 1e3
NS_PER_S = 1e9
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
