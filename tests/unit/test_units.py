"""Sizes and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import UsageError
from pgdyno.units import (
    Better,
    Estimate,
    confidence_percent,
    format_duration,
    format_setting_size,
    format_size,
    parse_duration_s,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("1kB", 1024), ("1.5 GB", 1610612736), ("20971kB", 21474304), ("2TB", 2**41)],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_s"), [("90", 90.0), ("1.5min", 90.0), ("200ms", 0.2), ("1d", 86400.0), ("5us", 5e-6)]
)
def test_durations_are_read(text: str, duration_s: float) -> None:
    assert parse_duration_s(text) == pytest.approx(duration_s)
    assert parse_duration_s("200", bare="ms") == pytest.approx(0.2)


@pytest.mark.parametrize(
    "text", ["", "GB", "1 PB", "1GB 2MB", "-1GB", "nan", "1,5GB", "0x10", "1e400", "1e308GB"]
)
def test_an_invalid_size_is_rejected_with_the_units(text: str) -> None:
    with pytest.raises(UsageError, match="size"):
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (2**31, "2 GB"), (1_127_428_915, "1.05 GB"), (-2048, "-2 kB"), (10**14, "90.9 TB")],
)
def test_sizes_are_written_for_people(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0, "0 s"),
        (0.00085, "850 µs"),
        (0.0123, "12.3 ms"),
        (59.99, "1 min"),
        (200.4, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (-1.0, "-1 s"),
    ],
)
def test_durations_are_written_for_people(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text


@given(st.integers(min_value=0, max_value=2**50))
def test_a_size_written_for_a_configuration_file_is_read_back_exactly(size_bytes: int) -> None:
    assert parse_size_bytes(format_setting_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("confidence", "text"),
    [(0.95, "95"), (1 - 0.05 / 3, "98.3"), (0.975, "97.5"), (1 - 0.05 / 250, "99.98"), (0.99, "99")],
)
def test_a_confidence_has_one_decimal_and_is_never_all(confidence: float, text: str) -> None:
    assert confidence_percent(confidence) == f"{text}%"


@pytest.mark.parametrize("value", [4e-14, -4e-14])
def test_rounding_errors_are_zero(value: float) -> None:
    """They depend on the processor, and so would a report."""
    change = Estimate(value, "%", 5, Better.LESS, value - 1e-14, value + 1e-14)
    assert change.signed_interval_text == "[0%, 0%]"
    small = Estimate(4e-5, "s", 5, Better.LESS, 3.9e-5, 4.1e-5)
    assert small.interval_text == "[0.000039, 0.000041]"
