from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.measure.dataset_loading import DataKind


def _data() -> Iterable[DataKind]:
    from pgdyno.features.aged_data import history
    from pgdyno.measure.dataset_loading import DataKind

    yield DataKind(history.has_history, history.key, history.make, history.more_builds)


FEATURE = Feature("aged_data", requires=("own_data",), data=_data)
