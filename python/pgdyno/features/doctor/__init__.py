"""Sources of measurement noise on this machine: the command doctor, and examinations around a study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.measure.study_runner import Examine


def _examinations() -> Iterable[Examine]:
    from pgdyno.features.doctor.checks import examine

    yield examine


FEATURE = Feature("doctor", examinations=_examinations)
