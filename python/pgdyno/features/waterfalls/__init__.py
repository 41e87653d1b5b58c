"""Waterfall charts of the time per transaction in HTML: bars lead to wait events, statements and plans."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, requires=("plans", "statement_waits"), case_sections=("section:sections",))
