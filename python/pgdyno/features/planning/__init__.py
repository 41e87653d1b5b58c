"""Check and explanation of study files before they run."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature("planning", requires=("builds", "capacity", "fitting", "own_data", "sysbench"))
