"""Wait events by statement: between the resources and the statements of the time breakdown."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, results=("section:RESULT",), case_sections=("section:sections",))
