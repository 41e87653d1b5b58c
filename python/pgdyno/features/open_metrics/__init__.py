"""Metrics of running studies for monitoring systems: an address of ``pgdyno serve``."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, requires=("serve",), routes=("routes:metrics",))
