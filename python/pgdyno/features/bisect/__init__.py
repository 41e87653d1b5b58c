"""Search for the commit that changed the performance."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature("bisect", requires=("builds",))
