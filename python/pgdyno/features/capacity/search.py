"""The search for the capacity of an arm within a block, and the checks of study files that ask for one. Pure.

By rate, the capacity is the highest rate of an open loop that meets the latency limit. It lies between a rate
that meets the limit and one that exceeds it. The search starts at START of the throughput of a closed loop
and goes up or down until it has both rates. Bisection on a log scale then narrows the bracket to a ratio of
RESOLUTION, in which the latency is interpolated (both scales logarithmic).

A failed step may be a stall of the machine and would mislead the rest of the search. It is therefore
repeated, and so are both ends of the last bracket. If two results at a rate disagree, a third one decides:
the median of the latencies counts. To repeat only failed steps and to keep the better result would favor the
arm with more variable latency, by up to 5% in a simulation (``test_study_search.py``). A step with infinite
latency at a rate above that of the closed loop is not repeated, because it needs no stall as an explanation.
Each block searches anew, on restored data: the between-block SD includes the remaining error.

By clients, it is the largest number of clients of a closed loop that meets the limit. The search doubles the
clients, from the fewest that complete enough transactions in a step, so that all blocks and arms have these
numbers in common: their throughput and latency are the curve of the report. Bisection narrows the bracket
to one client, or to RESOLUTION, with the same repetitions. The latency is interpolated between both numbers.
The first transactions of a connection fill its caches: each step begins with WARM_UP_TRANSACTIONS per client
that do not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgdyno.errors import StudyFileError
from pgdyno.study.defaults import SLICE_S, TOGETHER
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import Errors
from pgdyno.study.values import RESOLUTION, LatencyLimit, SearchStep, bracket, parse_limit

START = 0.7
UP, DOWN = 1.25, 0.6
"""Factors of the rate while all steps meet the limit, or all exceed it."""

TRIES_MAX = 3
"""Maximum number of steps at one rate."""

STEPS_MAX = 30
"""Maximum number of steps: from START down to a hundredth, back to the middle, with repetitions."""

STEP_S_MAX = 30.0
"""Maximum length of a step. Rates too low for the transactions of the percentile in this time are not
tried."""

SPARE = 1.3
"""Safety factor for the number of transactions of a percentile, because arrivals are random."""

LIMITS_PER_STEP_MIN = 20
"""Minimum length of a step or a slice as a multiple of the limit, which a growing queue must reach."""

CLOSED_LOOP_S = 1.0
"""Length of a closed-loop slice of each arm; a mirrored one follows."""

STEPS_USUAL = 11

WARM_UP_TRANSACTIONS = 10
"""Transactions of each client before a step of a search by clients."""

STEPS_AFTER_DOUBLING = 7
"""Usual number of steps by clients after the doubling: bisection of a factor of two, repetitions."""

CLIENTS_OF_THROUGHPUT = 8
"""Clients that reach the assumed throughput in a forecast; fewer reach a share of it."""


def next_rate(tried: Sequence[SearchStep], limit: LatencyLimit, closed_per_s: float) -> float | None:
    """Return the rate of the next step, or None if the search has ended, with or without a result."""
    if len(tried) >= STEPS_MAX:
        return None
    low, high = bracket(tried, limit)
    if not tried:
        rate = START * closed_per_s
    elif _is_open(tried, tried[-1].load, limit, closed_per_s):
        rate = tried[-1].rate_per_s
    elif high is None:
        rate = UP * max(step.rate_per_s for step in tried)
    elif low is None:
        rate = DOWN * min(step.rate_per_s for step in tried)
    elif high.rate_per_s <= RESOLUTION * low.rate_per_s:
        ends = (low.rate_per_s, high.rate_per_s)
        return next((end for end in ends if _is_open(tried, end, limit, closed_per_s, results=2)), None)
    else:
        rate = math.sqrt(low.rate_per_s * high.rate_per_s)
    return rate if rate >= rate_min(limit) else None


def next_clients(
    tried: Sequence[SearchStep], limit: LatencyLimit, one_per_s: float, clients_max: int
) -> int | None:
    """Return the clients of the next step, or None if the search has ended, with or without a result.

    ``one_per_s``: throughput of one client.
    """
    if len(tried) >= STEPS_MAX:
        return None
    low, high = bracket(tried, limit)
    if not tried:
        fewest = 2 ** max(0, math.ceil(math.log2(rate_min(limit) / one_per_s)))
        return fewest if fewest <= clients_max else None
    if _is_open(tried, tried[-1].load, limit, math.inf):
        return tried[-1].clients
    if low is None:
        return None
    if high is None:
        more = min(2 * int(low.load), clients_max)
        return more if more > low.load else None
    if high.load > max(low.load + 1, RESOLUTION * low.load):
        return min(max(round(math.sqrt(low.load * high.load)), int(low.load) + 1), int(high.load) - 1)
    return next(
        (of.clients for of in (low, high) if _is_open(tried, of.load, limit, math.inf, results=2)), None
    )


def expected_per_s(tried: Sequence[SearchStep], clients: int, one_per_s: float) -> float:
    """Return the throughput that a step with so many clients is expected to reach at least.

    From the latest step with the nearest number. More clients are assumed to have its throughput, fewer a
    proportional one.
    """
    if not tried:
        return clients * one_per_s
    nearest = min(reversed(tried), key=lambda step: abs(math.log(step.load / clients)))
    return nearest.rate_per_s * min(1.0, clients / nearest.load)


def warm_up_s(clients: int, rate_per_s: float, discard_s: float) -> float:
    """Return the length of the warm-up of a step by clients."""
    return min(STEP_S_MAX, discard_s + WARM_UP_TRANSACTIONS * clients / rate_per_s)


def _is_open(
    tried: Sequence[SearchStep], load: float, limit: LatencyLimit, closed_per_s: float, results: int = 1
) -> bool:
    """Return True if a load needs another step: two results disagree, one failed, or there are too few.

    Above the rate of a closed loop, infinite latency is expected: the server cannot answer most transactions.
    """
    found = [step.latency_ms for step in tried if step.load == load]
    if load > closed_per_s and math.isinf(found[-1]):
        return False
    failed = sum(latency_ms >= 1e3 * limit.latency_s for latency_ms in found)
    return len(found) < TRIES_MAX and (failed == 1 or len(found) < results)


def step_s(rate_per_s: float, limit: LatencyLimit, slice_s: float, discard_s: float) -> float:
    """Return the length of a step, which must have enough transactions for the percentile.

    Below ``rate_min`` it has too few of them, which counts as a missed limit.
    """
    needed_s = SPARE * limit.transactions_min / max(rate_per_s, rate_min(limit)) + discard_s
    return max(slice_s, LIMITS_PER_STEP_MIN * limit.latency_s, needed_s)


def rate_min(limit: LatencyLimit) -> float:
    """Return the minimum rate of a step."""
    return SPARE * limit.transactions_min / STEP_S_MAX


def expected_search_s(
    limit: LatencyLimit, slice_s: float, discard_s: float, closed_per_s: float, clients_max: int | None = None
) -> float:
    """Return the expected time of the search of one arm in a block; ``closed_per_s`` is an assumed rate.

    With ``clients_max`` the search is by clients, and its last steps are assumed to be near this number.
    """
    if clients_max is not None:
        doubled = [2**power for power in range(math.ceil(math.log2(clients_max)))]
        numbers = [*doubled, *[clients_max] * (1 + STEPS_AFTER_DOUBLING)]
        rates = [max(closed_per_s * min(1.0, n / CLIENTS_OF_THROUGHPUT), rate_min(limit)) for n in numbers]
        return 2 * CLOSED_LOOP_S + sum(
            step_s(rate, limit, slice_s, discard_s) + warm_up_s(n, rate, discard_s)
            for n, rate in zip(numbers, rates, strict=True)
        )
    rate_per_s = max(START * closed_per_s, rate_min(limit))
    return 2 * CLOSED_LOOP_S + STEPS_USUAL * step_s(rate_per_s, limit, slice_s, discard_s)


RATES_MIN = 3
"""Minimum number of rates of a capacity study: with fewer, the interpolation is too coarse."""


def errors_of(file: StudyFile) -> Errors:
    """Yield the errors of a study file with a latency limit."""
    run, place = file.run, ("run", "capacity")
    if run.capacity is None:
        return
    if "rate" not in file.factors:
        if file.drive.rate is not None:
            message = "requires several rates: make rate a factor, or remove it to search for the capacity"
            yield StudyFileError(place, message)
        return
    limit, rates = parse_limit(run.capacity), file.factors["rate"]
    numbers = [float(level.value) for level in rates if isinstance(level.value, int | float)]
    if len(numbers) < RATES_MIN or "rate" in file.compare:
        message = f"requires at least {RATES_MIN} levels of rate, as a factor that is not compared"
        yield StudyFileError(place, message)
        return
    slice_s = run.slice_s or SLICE_S
    if run.schedule in TOGETHER and slice_s < LIMITS_PER_STEP_MIN * limit.latency_s:
        message = f"requires slices of at least {LIMITS_PER_STEP_MIN} times the limit: increase slice"
        yield StudyFileError(place, message)
    window_s = run.window_s or (run.rounds * slice_s if run.rounds else None)
    if window_s is not None and window_s * min(numbers) < limit.transactions_min:
        message = (
            f"requires {limit.transactions_min} transactions in a window at every rate: increase window or "
            "the lowest rate"
        )
        yield StudyFileError(place, message)
