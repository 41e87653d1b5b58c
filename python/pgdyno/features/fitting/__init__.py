"""Fit of a study to a machine and a time budget, which keeps the question of its source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.cli.options import StudyOptions


def _options() -> Iterable[type[StudyOptions]]:
    from pgdyno.features.fitting.options import FitOptions

    yield FitOptions


FEATURE = Feature("fitting", requires=("planning", "published"), options=_options)
