"""Recorded series, latencies and crashes of a results file in a browser, to explore."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, requires=("crash_disk", "serve"), pages=("pages:EXPLORE",))
