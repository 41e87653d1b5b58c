"""Verdicts from an interval and a margin, and the blocks that an undecided one needs.

See docs/explanation/method.md.

The margin δ is a share of the baseline. On the log scale, where the arms are interchangeable, it is ±ln(1 +
δ). With δ = 2% the arms are the same if the ratio is within 1 / 1.02 … 1.02.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum

from pgdyno.analysis.statistics import distributions
from pgdyno.analysis.statistics.effect import LogRatioSummary, Method, critical_value, percent_of
from pgdyno.estimate import Better
from pgdyno.study.stopping_rule import FIRST_INTERIM_ANALYSIS

BLOCKS_MIN = FIRST_INTERIM_ANALYSIS
"""Minimum number of blocks for a verdict, and for an interval in a report."""

POWER = 0.80
"""1 − β: the probability that the number of blocks still needed suffices."""

BLOCKS_NEEDED_MAX = 10_000
"""Limit of the search. A study that needs more blocks requires a quieter machine."""


class Verdict(StrEnum):
    """Verdict on an arm against the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Decision:
    """A verdict with its basis. Percentages are of the baseline."""

    verdict: Verdict
    margin: float
    detectable_percent: float | None  # minimum detectable effect with the blocks so far; None below 2 blocks
    blocks_needed: int | None  # further blocks; None if decided


def decide(spread: LogRatioSummary, better: Better, margin: float) -> Decision:
    """Return the decision on a metric. A change in the better direction is ``faster``."""
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
    """Return the verdict of an interval of log ratios. Inside the margin: same, even if 0 is excluded."""
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


def detectable_percent(spread: LogRatioSummary) -> float | None:
    """Return the minimum detectable effect in percent: (t_{α/2} + t_β) · s · √(1/n), with power POWER.

    The critical value of the interval's method replaces t_{α/2}. None if so few blocks have no interval.
    """
    if spread.sd is None:
        return None
    reach = detectable_log_ratio(spread.sd, spread.n, spread.confidence, spread.method)
    return None if math.isinf(reach) else percent_of(reach)


def blocks_needed(spread: LogRatioSummary, margin: float) -> int:
    """Return the number of further blocks for a decision, if effect and SD are as estimated.

    An interval decides by excluding 0 or by fitting into the margin. It needs a reach of |d| or of the
    distance between |d| and the margin, whichever is larger.
    """
    least = max(1, BLOCKS_MIN - spread.n)
    if spread.sd is None:
        return least
    distance = abs(spread.mean)
    reach = max(distance, math.log1p(margin) - distance)
    sd, confidence, method = spread.sd, spread.confidence, spread.method
    candidates = range(spread.n + least, BLOCKS_NEEDED_MAX)
    # The reach shrinks with every block, so a binary search finds the first sufficient number.
    return least + bisect_left(
        candidates, True, key=lambda n: detectable_log_ratio(sd, n, confidence, method) <= reach
    )


def detectable_log_ratio(sd: float, n: int, confidence: float, method: Method) -> float:
    """Return the log ratio that ``n`` blocks with this SD detect with probability POWER.

    Infinite if so few blocks have no interval.
    """
    if n < 2:
        return math.inf
    t_alpha = critical_value(n, confidence, method)
    t_beta = distributions.t_quantile(POWER, n - 1)
    return (t_alpha + t_beta) * sd * math.sqrt(1 / n)
