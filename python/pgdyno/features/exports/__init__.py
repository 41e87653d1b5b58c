"""Results for programs that track benchmarks over time: Bencher and github-action-benchmark."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, options=("options:ExportOptions",))
