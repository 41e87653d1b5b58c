"""From an interval and a margin to a verdict, from an undecided one to what it needs.

See docs/explanation/method.md.

The margin δ is a share of the baseline. On the log scale, on which arms can be swapped, it is ±ln(1 + δ):
with δ = 2 % the arms are the same where the ratio lies within 1 / 1.02 … 1.02.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum

from pgdyno.analysis.statistics import distributions
from pgdyno.analysis.statistics.effect import Method, Spread, critical, percent_of
from pgdyno.analysis.statistics.sequential import FIRST_LOOK
from pgdyno.estimate import Better

BLOCKS_MIN = FIRST_LOOK
"""With fewer, an interval rests on a spread that is hardly known."""

POWER = 0.80
"""1 − β: the chance with which the blocks still needed shall suffice."""

BLOCKS_NEEDED_MAX = 10_000
"""A search limit; who needs more blocks than this needs another machine."""


class Verdict(StrEnum):
    """Of an arm against the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Decision:
    """A verdict with what it rests on; percentages are of the baseline."""

    verdict: Verdict
    margin: float
    detectable_percent: (
        float | None
    )  # the minimum detectable effect with the blocks so far; None below 2 blocks
    blocks_needed: int | None  # beyond the blocks so far; None where decided


def decide(spread: Spread, better: Better, margin: float) -> Decision:
    """The verdict on a metric: faster is what is better."""
    if better is Better.LESS:
        spread = spread.mirrored()
    verdict = judge(spread.low, spread.high, spread.n, margin)
    return Decision(
        verdict=verdict,
        margin=margin,
        detectable_percent=detectable_percent(spread),
        blocks_needed=blocks_needed(spread, margin) if verdict is Verdict.UNDECIDED else None,
    )


def judge(low: float | None, high: float | None, n: int, margin: float) -> Verdict:
    """An interval of log ratios against the margin. Within it: same, even where 0 is left out."""
    if low is None or high is None or n < BLOCKS_MIN:
        return Verdict.UNDECIDED
    limit = math.log1p(margin)
    if -limit <= low and high <= limit:
        return Verdict.SAME
    if low > 0:
        return Verdict.FASTER
    if high < 0:
        return Verdict.SLOWER
    return Verdict.UNDECIDED


def detectable_percent(spread: Spread) -> float | None:
    """(t_{α/2} + t_β) · s · √(1/n): the effect that so many blocks find with a chance of POWER. Instead of
    t_{α/2} what the interval has; None where so few blocks have none.
    """
    if spread.sd is None:
        return None
    reach = reach_of(spread.sd, spread.n, spread.confidence, spread.method)
    return None if math.isinf(reach) else percent_of(reach)


def blocks_needed(spread: Spread, margin: float) -> int:
    """How many blocks more would decide it, were the effect as estimated and the spread as seen.

    An interval decides by leaving 0 out or by fitting into the margin, so it needs a reach of |d| or of
    what is left between |d| and the margin, whichever comes first.
    """
    least = max(1, BLOCKS_MIN - spread.n)
    if spread.sd is None:
        return least
    distance = abs(spread.mean)
    reach = max(distance, math.log1p(margin) - distance)
    sd, confidence, method = spread.sd, spread.confidence, spread.method
    candidates = range(spread.n + least, BLOCKS_NEEDED_MAX)
    # The reach shrinks with every block, so the first number that suffices is found by halving.
    return least + bisect_left(candidates, True, key=lambda n: reach_of(sd, n, confidence, method) <= reach)


def reach_of(sd: float, n: int, confidence: float, method: Method) -> float:
    """The log ratio that ``n`` blocks with this spread find with a chance of POWER; infinite where so few
    have no interval.
    """
    if n < 2:
        return math.inf
    t_alpha = critical(n, confidence, method)
    t_beta = distributions.t_quantile(POWER, n - 1)
    return (t_alpha + t_beta) * sd * math.sqrt(1 / n)
