"""Changes in the results of a repeated study."""

from __future__ import annotations

from collections.abc import Iterable

from pgdyno.feature import Feature


def _documents() -> Iterable[type]:
    from pgdyno.features.history.report import HistoryDocument

    yield HistoryDocument


FEATURE = Feature("history", requires=("hosts",), documents=_documents)
