"""The latency limit of a capacity study, and the search for an arm's capacity within a block. Pure.

The highest rate of an open loop up to which a limit of latency is kept lies between one that keeps it and one
that misses it. From START of the throughput of a closed loop the search goes up or down until it has both,
then halves what is between them on a log scale until they are RESOLUTION apart; there the latency is
interpolated, both logarithmic. A miss that may have been a stall of the machine would mislead the rest of the
search, so it is tried again, and the better of the two counts; for all arms alike. Not so where the rate is
beyond that of the closed loop and the latency infinite: no stall has to explain that. And each block searches
anew, on restored data: the blocks' spread holds what is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
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


START = 0.7
UP, DOWN = 1.25, 0.6
"""Of the rate before, while all keep the limit, or all miss it."""

RESOLUTION = 1.05
STEPS_MAX = 30
"""From START down to a hundredth and back into the middle, each miss twice; more find nothing."""

STEP_S_MAX = 30.0
"""A rate so low that this does not hold the transactions that its percentile needs is not tried."""

SPARE = 1.3
"""Times the transactions that a percentile needs: arrivals are random."""

LIMITS_PER_STEP_MIN = 20.0
"""A step is so many times as long as the limit: a queue that grows needs time to reach it."""

CLOSED_LOOP_S = 1.0
"""A slice of each arm to see how fast it is without a rate, and its mirror image."""

STEPS_USUAL = 9


@dataclass(frozen=True)
class Tried:
    """``latency_ms`` is the limited quantile, infinite where too many were not answered."""

    rate_per_s: float
    latency_ms: float


def next_rate(tried: Sequence[Tried], limit: LatencyLimit, closed_per_s: float) -> float | None:
    """None: it is found, or will not be."""
    if len(tried) >= STEPS_MAX:
        return None
    low, high = bracket(tried, limit)
    if not tried:
        rate = START * closed_per_s
    elif _is_doubtful(tried, limit, closed_per_s):
        rate = tried[-1].rate_per_s
    elif high is None:
        rate = UP * max(step.rate_per_s for step in tried)
    elif low is None:
        rate = DOWN * min(step.rate_per_s for step in tried)
    elif high.rate_per_s <= RESOLUTION * low.rate_per_s:
        return None
    else:
        rate = math.sqrt(low.rate_per_s * high.rate_per_s)
    return rate if rate >= rate_min(limit) else None


def _is_doubtful(tried: Sequence[Tried], limit: LatencyLimit, closed_per_s: float) -> bool:
    """Whether the last step is a first miss that may have been a stall. Beyond the rate of a closed loop most
    transactions cannot be answered, and an infinite latency is what there is.
    """
    last = tried[-1]
    times = sum(step.rate_per_s == last.rate_per_s for step in tried)
    beyond = math.isinf(last.latency_ms) and last.rate_per_s > closed_per_s
    return times == 1 and 1e3 * limit.latency_s <= last.latency_ms and not beyond


def bracket(tried: Sequence[Tried], limit: LatencyLimit) -> tuple[Tried | None, Tried | None]:
    """The highest rate that keeps the limit below the lowest that misses it, and that one."""
    limit_ms = 1e3 * limit.latency_s
    best: dict[float, Tried] = {}
    for step in tried:
        best[step.rate_per_s] = min(step, best.get(step.rate_per_s, step), key=lambda of: of.latency_ms)
    missed = [step for step in best.values() if step.latency_ms >= limit_ms]
    high = min(missed, key=lambda step: step.rate_per_s, default=None)
    kept = [
        step
        for step in best.values()
        if step.latency_ms < limit_ms and (high is None or step.rate_per_s < high.rate_per_s)
    ]
    return max(kept, key=lambda step: step.rate_per_s, default=None), high


def capacity(tried: Sequence[Tried], limit: LatencyLimit) -> float | None:
    """Transactions per second; None where nothing kept the limit, or everything did."""
    low, high = bracket(tried, limit)
    if low is None or high is None:
        return None
    logs = [math.log(step.latency_ms) for step in (low, high)]
    return crossing([low.rate_per_s, high.rate_per_s], logs, math.log(1e3 * limit.latency_s))


def crossing(rates: Sequence[float], logs: Sequence[float], aim: float) -> float:
    """Where ln latency first comes to ``aim``; 0 where it does at the first of the rates, infinite where at
    none. Rates ascend. Between a rate and one of infinite latency it is the geometric mean.
    """
    for i, latency in enumerate(logs):
        if latency >= aim:
            if i == 0:
                return 0.0
            share = 0.5 if math.isinf(latency) else (aim - logs[i - 1]) / (latency - logs[i - 1])
            return rates[i - 1] * math.pow(rates[i] / rates[i - 1], share)
    return math.inf


def step_s(rate_per_s: float, limit: LatencyLimit, slice_s: float, discard_s: float) -> float:
    """How long a step lasts: until it has the transactions that its percentile needs."""
    needed_s = SPARE * limit.transactions_min / rate_per_s + discard_s
    return max(slice_s, LIMITS_PER_STEP_MIN * limit.latency_s, needed_s)


def rate_min(limit: LatencyLimit) -> float:
    """The lowest rate that is tried."""
    return SPARE * limit.transactions_min / STEP_S_MAX


def likely_s(limit: LatencyLimit, slice_s: float, discard_s: float, closed_per_s: float) -> float:
    """Of one arm's search in a block, for a forecast; ``closed_per_s``: assumed of a closed loop."""
    rate_per_s = max(START * closed_per_s, rate_min(limit))
    return 2 * CLOSED_LOOP_S + STEPS_USUAL * step_s(rate_per_s, limit, slice_s, discard_s)
