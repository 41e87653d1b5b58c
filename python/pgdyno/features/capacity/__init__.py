"""The highest rate of an open loop at which an arm keeps a latency limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.measure.drive import BeforeDrive


def _before_drive() -> Iterable[BeforeDrive]:
    from pgdyno.features.capacity import run

    yield run.search_capacities


FEATURE = Feature("capacity", before_drive=_before_drive)
