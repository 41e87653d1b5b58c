"""Fit of a study to a machine and a time budget, which keeps the question of its source."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("planning", "published"),
    study_tables=("levels:TABLE",),
    study_errors=("levels:errors_of",),
    options=("options:FitOptions", "options:PlanOptions"),
)
