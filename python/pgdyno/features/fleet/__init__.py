"""Whole studies on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.cli.options import StudyOptions


def _options() -> Iterable[type[StudyOptions]]:
    from pgdyno.features.fleet.options import FleetOptions

    yield FleetOptions


FEATURE = Feature("fleet", requires=("cluster", "fitting", "hosts", "own_data"), options=_options)
