"""Single runs without a comparison: load, check, drive, pgbench."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature("runs")
