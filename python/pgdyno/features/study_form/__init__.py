"""A form for a new study in the pages of ``pgdyno serve``."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, requires=("planning", "serve"), pages=("form:PAGES",), routes=("form:routes",))
