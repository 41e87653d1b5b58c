"""Change of a quantile from the baseline over all values of all blocks, with an interval.

The quantile of an arm is that of its merged values, so an event in a few blocks counts by its share of them.

The interval is based on the Bayesian bootstrap (Rubin, Annals of Statistics 1981): each draw gives random
weights to the blocks, the same for both arms, and takes the ratio of the weighted quantiles. Resampling
assumes that the most extreme block was measured, which is false for rare events. So each end gives a further
weight to the block that is the most extreme in its direction. For values of 0 and 1 this would be the exact
interval of Clopper and Pearson, and for others that of Learned-Miller and Thomas ("A new confidence interval
for the mean of a bounded random variable", arXiv 1905.06208) if that block were the bound of all blocks.

A few blocks with an event show the mean size of such events badly, so the draws give an interval of 99% where
95% is needed (docs/explanation/tails.md has the coverage). Both sides divided by Student's critical value are
standard errors, from which an interval has any confidence and method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.intervals import CONFIDENCE, LogRatioSummary, Method, t_quantile, with_error

Floats = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]

BLOCKS_MIN = 40
"""Minimum number of blocks with an interval: they miss an event in 10% of the blocks in 1.5% of studies."""

DRAWS = 999
DRAWN_CONFIDENCE = 0.99
SEED = 20261127
"""Fixed, so that repeated reports of the same results file are equal."""


MISSED = 0.05
"""Probability with which all blocks may miss an event."""


def missed_share(blocks: int) -> float:
    """Return the share of blocks with an event that all ``blocks`` ≥ 1 miss with the probability MISSED.

    They miss an event of the share q with the probability (1 − q)^blocks.
    """
    return float(1 - MISSED ** (1 / blocks))


@dataclass(frozen=True)
class BlockCounts:
    """Values of one arm. ``cumulative``: (block, value), the number of values up to each of ``values``.

    ``values`` ascend and include the quantile of every block. ``totals``: number of all values of each block.
    """

    values: Floats
    cumulative: Floats
    totals: Floats

    def indexes(self, share: float, weights: Floats) -> Indexes:
        """Return the index of the quantile in ``values`` for each row of weights: (draw, block).

        The last one if the quantile is above all ``values``.
        """
        rank = share * (weights @ self.totals) * (1 - 1e-12)
        by_value = np.ascontiguousarray(self.cumulative.T)
        low, high = np.zeros(len(rank), np.intp), np.full(len(rank), len(self.values) - 1)
        while np.any(low < high):
            middle = (low + high) // 2
            is_reached = np.einsum("db,db->d", weights, by_value[middle]) >= rank
            low = np.where(is_reached, low, np.minimum(middle + 1, high))
            high = np.where(is_reached, middle, high)
        return low

    def log_quantiles(self, share: float, weights: Floats) -> Floats:
        """Return the logarithm of the quantile for each row of weights."""
        return np.asarray(np.log(self.values[self.indexes(share, weights)]))

    def with_again(self, block: int) -> BlockCounts:
        """Return the values with one block again."""
        every = [*range(len(self.totals)), block]
        return replace(self, cumulative=self.cumulative[every], totals=self.totals[every])

    def with_bound(self, block: int, index: int) -> BlockCounts:
        """Return the values with one block again, with its values above ``index`` above all ``values``."""
        again = self.with_again(block)
        again.cumulative[-1] = again.cumulative[-1].clip(max=again.cumulative[-1, index])
        return again

    def shares_above(self, index: int) -> Floats:
        """Return the number of values of each block above one of ``values``, divided by all values."""
        return np.asarray((self.totals - self.cumulative[:, index]) / self.totals.sum())


@dataclass(frozen=True)
class QuantileChange:
    """Log ratio of two quantiles over ``n`` blocks, with its standard error towards each side.

    The errors are None with fewer than BLOCKS_MIN blocks.
    """

    log_ratio: float
    n: int
    errors: tuple[float, float] | None

    def summary(self, confidence: float, method: Method) -> LogRatioSummary:
        """Return the interval and p-value. The SD is that of the longer side."""
        if self.errors is None:
            return with_error(self.log_ratio, None, self.n, confidence, method)
        below, above = (error * math.sqrt(self.n) for error in self.errors)
        towards_zero = below if self.log_ratio > 0 else above
        nearest, longest, down, up = (
            with_error(self.log_ratio, sd, self.n, confidence, method)
            for sd in (towards_zero, max(below, above), below, above)
        )
        return replace(longest, low=down.low, high=up.high, p_value=nearest.p_value)


def quantile_change(baseline: BlockCounts, arm: BlockCounts, share: float) -> QuantileChange:
    """Return the change of the quantile. Both arms have the same blocks, in the same order."""
    n = len(baseline.totals)
    equal = np.ones((1, n))
    (a,), (b,) = (of.indexes(share, equal) for of in (baseline, arm))
    log_ratio = float(np.log(arm.values[b]) - np.log(baseline.values[a]))
    if n < BLOCKS_MIN:
        return QuantileChange(log_ratio, n, None)
    worse = arm.shares_above(b) - baseline.shares_above(a)
    lowest, highest = int(worse.argmin()), int(worse.argmax())
    low = _drawn(baseline.with_bound(lowest, a), arm.with_again(lowest), share)
    high = _drawn(baseline.with_again(highest), arm.with_bound(highest, b), share)
    tail = (1 - DRAWN_CONFIDENCE) / 2
    reach = t_quantile((1 + CONFIDENCE) / 2, n - 1)
    below = (log_ratio - float(np.quantile(low, tail))) / reach
    above = (float(np.quantile(high, 1 - tail)) - log_ratio) / reach
    return QuantileChange(log_ratio, n, (max(0.0, below), max(0.0, above)))


def _drawn(baseline: BlockCounts, arm: BlockCounts, share: float) -> Floats:
    """Return the log ratios of all draws."""
    weights = _weights(len(arm.totals))
    return np.asarray(arm.log_quantiles(share, weights) - baseline.log_quantiles(share, weights))


@lru_cache(maxsize=16)
def _weights(n: int) -> Floats:
    """Return weights: (draw, block). Relative to their sum they have a uniform Dirichlet distribution."""
    return np.random.default_rng(SEED).exponential(size=(DRAWS, n))
