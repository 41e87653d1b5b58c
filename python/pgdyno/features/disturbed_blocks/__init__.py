"""Blocks that other programs or the hypervisor disturbed: they are repeated."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, probes=("programs:PROBE",), repetitions=("repetition:repeats",), caveats=("caveats.toml",)
)
