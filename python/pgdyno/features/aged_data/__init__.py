from __future__ import annotations

from pgdyno.feature import Feature


def feature() -> Feature:
    """Return the hooks."""
    from pgdyno.features.aged_data import history
    from pgdyno.measure.dataset_loading import DataKind

    kind = DataKind(history.has_history, history.key, history.make, history.more_builds)
    return Feature("aged_data", data=(kind,))
