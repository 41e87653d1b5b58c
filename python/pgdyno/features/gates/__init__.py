"""Gates for pipelines: exit statuses by conditions on the verdicts, and a summary."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, options=("options:ConditionOptions",), judgements=("section:GATE",))
