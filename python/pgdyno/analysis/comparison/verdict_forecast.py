"""Probability of a verdict after further blocks, and the cheapest change that makes one likely.

The mean and the SD of the block ratios are drawn from their posterior under the reference prior 1 / σ. Given
n blocks with mean d and SD s, (n − 1) s² / σ² has the chi-squared distribution with n − 1 degrees of freedom,
and μ is N(d, σ² / n). Each draw gives further blocks and the verdict after them. Interim analyses on the way
are ignored, so the true probability is a little higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pgdyno.analysis.comparison.verdict import POWER, Decision
from pgdyno.analysis.statistics.effect import LogRatioSummary, critical_value, one_sided_critical_value
from pgdyno.study.plan import Study
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

DRAWS = 2000
SEED = 20261123
"""Fixed, so that repeated forecasts are equal."""

DUET_TIME_SHARE = 0.55
"""Blocks that a duet needs, as a share of those of slices (docs/explanation/stopping.md)."""

BUDGET_FACTOR_MAX = 4.0
"""Maximum factor of the budget that is suggested. Beyond it, a larger margin is suggested."""


class Remedy(StrEnum):
    """A change that makes a verdict likely."""

    DUET = "duet"
    MINUTES = "minutes"
    MARGIN = "margin"


@dataclass(frozen=True)
class VerdictForecast:
    """Forecast for an undecided comparison.

    ``probability`` is that of a verdict within the budget. ``remedy`` is None if a verdict is likely.
    ``value``: budget in minutes, or margin as a share.
    """

    probability: float
    remedy: Remedy | None = None
    value: float | None = None


@dataclass(frozen=True)
class RemainingBudget:
    """Number of blocks that still fit, duration of a block of every case, time spent and whole budget in s.

    ``can_be_duet``: the arms could run at the same time instead.
    """

    blocks: int
    block_s: float
    spent_s: float
    budget_s: float
    can_be_duet: bool


def forecast_verdict(
    summary: LogRatioSummary, decision: Decision, study: Study, remaining: RemainingBudget
) -> VerdictForecast | None:
    """Return the forecast.

    None if the comparison is decided or has too few blocks for an SD, and if its intervals decide it and only
    the noise floor does not.
    """
    further = remaining.blocks
    if decision.blocks_needed is None or summary.sd is None or summary.n < VERDICT_BLOCKS_MIN:
        return None
    if verdict_probability(summary, study.margin, study.confidence, 0):
        return None
    probability = verdict_probability(summary, study.margin, study.confidence, further)
    if probability >= POWER:
        return VerdictForecast(probability)
    needed = summary.n + decision.blocks_needed
    if remaining.can_be_duet and needed * DUET_TIME_SHARE <= summary.n + further:
        return VerdictForecast(probability, Remedy.DUET)
    needed_s = remaining.spent_s + decision.blocks_needed * remaining.block_s
    if needed_s <= BUDGET_FACTOR_MAX * remaining.budget_s:
        return VerdictForecast(probability, Remedy.MINUTES, math.ceil(needed_s / 60))
    margin = margin_for(summary, study.confidence, further)
    return VerdictForecast(probability, Remedy.MARGIN, math.ceil(100 * margin) / 100)


def verdict_probability(summary: LogRatioSummary, margin: float, confidence: float, further: int) -> float:
    """Return the probability of a verdict after ``further`` blocks. The summary must have an SD."""
    assert summary.sd is not None
    n, total = summary.n, summary.n + further
    rng = np.random.default_rng(SEED)
    sigma = summary.sd * np.sqrt((n - 1) / rng.chisquare(n - 1, DRAWS))
    mu = rng.normal(summary.mean, sigma / math.sqrt(n))
    mean, squares = np.full(DRAWS, summary.mean), np.full(DRAWS, (n - 1) * summary.sd**2)
    if further:
        later = rng.normal(mu, sigma / math.sqrt(further))
        squares += sigma**2 * rng.chisquare(further - 1, DRAWS) if further > 1 else 0.0
        squares += n * further / total * (later - mean) ** 2
        mean = (n * mean + further * later) / total
    error = np.sqrt(squares / (total - 1) / total)
    two_sided = critical_value(total, summary.confidence, summary.method)
    one_sided = one_sided_critical_value(total, confidence, summary.method)
    differs = np.abs(mean) > two_sided * error
    is_same = np.abs(mean) + one_sided * error <= math.log1p(margin)
    return float(np.mean(differs | is_same))


def margin_for(summary: LogRatioSummary, confidence: float, further: int) -> float:
    """Return the margin with which *same* is likely after ``further`` blocks, as a share."""
    assert summary.sd is not None
    low, high = 0.0, 10.0
    for _ in range(30):
        middle = (low + high) / 2
        is_enough = verdict_probability(summary, middle, confidence, further) >= POWER
        low, high = (low, middle) if is_enough else (middle, high)
    return high
