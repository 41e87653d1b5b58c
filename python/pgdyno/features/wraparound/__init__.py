"""Age of the oldest transaction ID over time, beside the autovacuum workers."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, series_results=("section:AGES",), case_sections=("section:sections",))
