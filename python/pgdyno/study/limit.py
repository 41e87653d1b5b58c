"""A limit of latency as a study file has it: ``p99 < 20ms``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgdyno.errors import UsageError
from pgdyno.units import parse_duration_s

_LIMIT = re.compile(r"p(\d{1,2}(?:\.\d+)?)\s*<\s*(.+)")

BEYOND_MIN = 10
"""So many transactions have to be beyond a quantile for it to be one, as everywhere."""

TRANSACTIONS_MAX = 20_000_000
"""That a step of a search would need; in the 30 s that it may last no server answers so many."""


@dataclass(frozen=True)
class LatencyLimit:
    """``quantile`` of the transactions take no longer than ``latency_s``."""

    quantile: float
    latency_s: float

    @property
    def transactions_min(self) -> int:
        """So many are needed to tell whether it is kept."""
        return round(BEYOND_MIN / (1 - self.quantile))


def parse_limit(text: str) -> LatencyLimit:
    """Raises UsageError."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a latency limit; for example: p99 < 20ms")
    limit = LatencyLimit(float(match[1]) / 100, parse_duration_s(match[2]))
    if not 0 < limit.quantile < 1 or limit.latency_s <= 0:
        raise UsageError(f"{text!r} is not a latency limit; for example: p99 < 20ms")
    if limit.transactions_min > TRANSACTIONS_MAX:
        raise UsageError(
            f"{text!r} needs {limit.transactions_min} transactions at every rate, too many for a step of the "
            "search: use a lower percentile, for example p99.99"
        )
    return limit
