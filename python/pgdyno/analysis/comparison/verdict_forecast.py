"""Probability of a verdict after further blocks, the change that makes one likely, and what can be resolved.

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

from pgdyno.analysis.comparison.verdict import POWER, Decision, detectable_log_ratio
from pgdyno.analysis.statistics.effect import (
    LogRatioSummary,
    critical_value,
    one_sided_critical_value,
    percent_of,
)
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule
from pgdyno.study.sizing import is_duet_sound
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

DRAWS = 2000
SEED = 20261123
"""Fixed, so that repeated forecasts are equal."""

DUET_TIME_SHARE = 0.55
"""Blocks that a duet needs, as a share of those of slices (docs/explanation/stopping.md)."""

BUDGET_FACTOR_MAX = 4.0
"""Maximum factor of the budget that is suggested. Beyond it, the noise must become less.

A larger margin is never suggested: it is what counts as equal, and no study may choose it by its result."""

CLIENTS_PER_CORE_MAX = 2
"""Clients per core above which fewer clients are suggested: they wait for each other and for a core."""


class Remedy(StrEnum):
    """A change that makes a verdict likely."""

    DUET = "duet"
    MINUTES = "minutes"
    LESS_NOISE = "less noise"


class LessNoise(StrEnum):
    """A change that can reduce the noise of the blocks."""

    DUET = "duet"
    SLICES = "slices"
    FEWER_CLIENTS = "fewer clients"
    QUIETER_MACHINE = "quieter machine"


@dataclass(frozen=True)
class VerdictForecast:
    """Forecast for an undecided comparison.

    ``probability`` is that of a verdict within the budget. ``remedy`` is None if a verdict is likely.
    ``minutes`` is a budget that makes one likely. ``resolved_percent`` is the change that the budget detects
    with probability POWER, and ``less_noise`` what can reduce it, if no acceptable budget is enough.
    """

    probability: float
    remedy: Remedy | None = None
    minutes: int | None = None
    resolved_percent: float | None = None
    less_noise: tuple[LessNoise, ...] = ()


@dataclass(frozen=True)
class RemainingBudget:
    """Number of blocks that still fit, duration of a block of every case, time spent and whole budget in s.

    ``less_noise``: what can reduce the noise (``less_noise_of``).
    """

    blocks: int
    block_s: float
    spent_s: float
    budget_s: float
    less_noise: tuple[LessNoise, ...]


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
    if LessNoise.DUET in remaining.less_noise and needed * DUET_TIME_SHARE <= summary.n + further:
        return VerdictForecast(probability, Remedy.DUET)
    needed_s = remaining.spent_s + decision.blocks_needed * remaining.block_s
    if needed_s <= BUDGET_FACTOR_MAX * remaining.budget_s:
        return VerdictForecast(probability, Remedy.MINUTES, math.ceil(needed_s / 60))
    reach = detectable_log_ratio(summary.sd, summary.n + further, summary.confidence, summary.method)
    resolved = None if math.isinf(reach) else percent_of(reach)
    return VerdictForecast(probability, Remedy.LESS_NOISE, None, resolved, remaining.less_noise)


def less_noise_of(study: Study, clients: int, cores: int) -> tuple[LessNoise, ...]:
    """Return what can reduce the noise of a study, by its conditions. ``clients``: the most of any arm."""
    alternates = study.schedule is Schedule.SLICES
    can_be_duet = alternates and not study.searches_capacity and is_duet_sound(study.arms) and cores > 1
    takes_turns = study.schedule in {Schedule.BLOCKS, Schedule.SEQUENTIAL} and not study.searches_capacity
    wanted = {
        LessNoise.DUET: can_be_duet,
        LessNoise.SLICES: takes_turns,
        LessNoise.FEWER_CLIENTS: clients > CLIENTS_PER_CORE_MAX * cores,
        LessNoise.QUIETER_MACHINE: True,
    }
    return tuple(one for one, is_possible in wanted.items() if is_possible)


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
