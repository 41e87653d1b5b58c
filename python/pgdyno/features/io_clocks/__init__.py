"""I/O times by the clock of the server, which take the place of wait-event samples of the same calls."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, requires=("doctor",), arm_requests=("timing:complete",), io_clocks=("clock:clocked_io",)
)
