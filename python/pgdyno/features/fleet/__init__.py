"""Whole studies on the nodes of a Ray cluster."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, requires=("cluster", "fitting", "hosts", "own_data"), options=("options:FleetOptions",)
)
