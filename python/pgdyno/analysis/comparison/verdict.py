"""Verdicts from intervals and a margin, and the blocks that an undecided one needs.

See docs/explanation/method.md.

The margin δ is a share of the baseline. On the log scale, where the arms are interchangeable, it is ±ln(1 +
δ). With δ = 2% the arms are the same if the ratio is within 1 / 1.02 … 1.02.

*Faster* and *slower*: the two-sided interval excludes 0. All arms share its level (Holm). *Same*: two
one-sided tests reject an effect of −δ or less and one of +δ or more. Each has the full level, so the
probability that an arm with a larger effect is called the same is at most the level, for each arm by itself.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum

from pgdyno.analysis.statistics import distributions
from pgdyno.analysis.statistics.effect import (
    LogRatioSummary,
    Method,
    critical_value,
    one_sided_critical_value,
    percent_of,
)
from pgdyno.estimate import Better
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

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


def decide(summary: LogRatioSummary, better: Better, margin: float, confidence: float) -> Decision:
    """Return the decision on a metric. A change in the better direction is ``faster``.

    ``confidence`` is that of the study, without Holm's correction.
    """
    verdict = judge(summary, summary.equivalence(confidence), margin, better)
    return Decision(
        verdict=verdict,
        margin=margin,
        detectable_percent=detectable_percent(summary),
        blocks_needed=blocks_needed(summary, margin, confidence) if verdict is Verdict.UNDECIDED else None,
    )


def judge(
    summary: LogRatioSummary,
    equivalence: LogRatioSummary,
    margin: float,
    better: Better = Better.MORE,
    blocks: int | None = None,
) -> Verdict:
    """Return the verdict of a two-sided interval and of one for equivalence.

    Within the margin: same, even if the two-sided interval excludes 0. ``blocks`` is the number of blocks if
    ``summary.n`` is that of hosts.
    """
    if (summary.n if blocks is None else blocks) < VERDICT_BLOCKS_MIN:
        return Verdict.UNDECIDED
    limit = math.log1p(margin)
    low, high = equivalence.low, equivalence.high
    if low is not None and high is not None and -limit <= low and high <= limit:
        return Verdict.SAME
    if summary.low is None or summary.high is None or summary.low <= 0 <= summary.high:
        return Verdict.UNDECIDED
    return Verdict.FASTER if (summary.low > 0) == (better is not Better.LESS) else Verdict.SLOWER


def detectable_percent(summary: LogRatioSummary) -> float | None:
    """Return the minimum detectable effect in percent: (t_{α/2} + t_β) · s · √(1/n), with power POWER.

    The critical value of the interval's method replaces t_{α/2}. None if so few blocks have no interval.
    """
    if summary.sd is None:
        return None
    reach = detectable_log_ratio(summary.sd, summary.n, summary.confidence, summary.method)
    return None if math.isinf(reach) else percent_of(reach)


def blocks_needed(summary: LogRatioSummary, margin: float, confidence: float) -> int:
    """Return the number of further blocks for a decision, if effect and SD are as estimated.

    Either the two-sided interval excludes 0, or that for equivalence fits into the margin.
    """
    least = max(1, VERDICT_BLOCKS_MIN - summary.n)
    if summary.sd is None:
        return least
    sd, method = summary.sd, summary.method

    def suffices(n: int) -> bool:
        return (
            detectable_log_ratio(sd, n, summary.confidence, method) <= abs(summary.mean)
            or _same_probability(summary.mean, sd, n, margin, confidence, method) >= POWER
        )

    # Both improve with every block, so a binary search finds the first sufficient number.
    return least + bisect_left(range(summary.n + least, BLOCKS_NEEDED_MAX), True, key=suffices)


def detectable_log_ratio(sd: float, n: int, confidence: float, method: Method) -> float:
    """Return the log ratio that ``n`` blocks with this SD detect with probability POWER.

    Infinite if so few blocks have no interval.
    """
    if n < 2:
        return math.inf
    t_alpha = critical_value(n, confidence, method)
    t_beta = distributions.t_quantile(POWER, n - 1)
    return (t_alpha + t_beta) * sd * math.sqrt(1 / n)


def _same_probability(
    mean: float, sd: float, n: int, margin: float, confidence: float, method: Method
) -> float:
    """Return the probability that ``n`` ≥ 2 blocks reject both one-sided hypotheses."""
    t_alpha = one_sided_critical_value(n, confidence, method)
    if sd == 0 or math.isinf(t_alpha):
        return float(abs(mean) < math.log1p(margin) and not math.isinf(t_alpha))
    distances = ((math.log1p(margin) + sign * mean) / sd * math.sqrt(n) for sign in (-1, 1))
    return 1 - sum(distributions.t_beyond(distance - t_alpha, n - 1) for distance in distances)
