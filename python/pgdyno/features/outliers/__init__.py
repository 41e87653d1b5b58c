"""Outlier trials, and the conditions that were unusual."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, case_results=("findings:RESULT",), case_sections=("section:sections",))
