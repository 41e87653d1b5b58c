"""Goodness-of-fit tests of counts against specified shares.

All of them must be accurate far in the tail, because they exclude a trial with a correct driver only about
once in a million trials. They use exact distributions if these are cheap. For many bins they use a chi-square
distribution, with bins pooled to a sufficient expected count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used: stats alone takes a second

from pgdyno.workload.interface import Check

FALSE_ALARMS_PER_TRIAL = 1e-6
"""Probability that all these tests together fail a trial with a correct driver. A long study has hundreds of
trials; at this rate one study in thousands loses one trial at random. So a failed check indicates a fault.
The loss of power is small, because the counts are large: 2% rollbacks instead of 1% are three standard
deviations in 1000 transactions, and ten in 10,000."""

EXPECTED_PER_BIN_MIN = 50.0
"""Minimum expected count per bin; others are pooled. Simulated at 1e-5
(tests/unit/test_workload_goodness.py): with 5, the usual rule of thumb for 5% tests, the tails of the
chi-square distribution are several times too thin; with 50 they are accurate within a factor of two."""


@dataclass(frozen=True)
class GoodnessOfFit:
    """Result of a test. ``p_value``: probability of counts at least as extreme if the shares are correct.
    ``detail``: text for output."""

    statistic: float | None
    p_value: float
    detail: str


def tests_of(fits: Mapping[str, GoodnessOfFit]) -> list[Check]:
    """Return the tests of one trial as checks, with FALSE_ALARMS_PER_TRIAL divided among them
    (Bonferroni)."""
    threshold = FALSE_ALARMS_PER_TRIAL / max(1, len(fits))
    return [
        Check(name, fit.p_value >= threshold, fit.statistic, fit.p_value, fit.detail)
        for name, fit in fits.items()
    ]


def fit_weights(drawn: Mapping[str, int], weights: Mapping[str, float]) -> GoodnessOfFit:
    """Return the chi-square test of the numbers of drawn transactions per kind against the weights."""
    total = sum(weights.values())
    kinds = list(weights)
    if any(n for kind, n in drawn.items() if kind not in weights):
        return GoodnessOfFit(None, 0.0, f"drawn kinds without a weight: {sorted(set(drawn) - set(kinds))}")
    return fit_distribution([drawn.get(kind, 0) for kind in kinds], [weights[kind] / total for kind in kinds])


def fit_share(successes: int, n: int, share: float) -> GoodnessOfFit:
    """Return the exact two-sided binomial test of ``successes`` in ``n`` against ``share``."""
    if n == 0:
        return GoodnessOfFit(None, 1.0, f"none drawn; {share:.1%} expected")
    p_value = float(scipy.stats.binomtest(successes, n, share).pvalue)
    return GoodnessOfFit(
        successes / n, p_value, f"{successes} of {n} ({successes / n:.3%}), {share:.1%} expected"
    )


def fit_distribution(observed: Sequence[int], probability: npt.ArrayLike) -> GoodnessOfFit:
    """Return Pearson's chi-square test of ``observed`` counts against ``probability``, both of equal length.

    The least likely bins are pooled until each pool has a sufficient expected count. Pooling depends on the
    number of draws and the probabilities only, so the test keeps its level. Bins of similar probability are
    pooled, which keeps the contrast of likely and unlikely values, the signature of NURand. Counts with the
    probability 0 give p = 0.
    """
    counts = np.asarray(observed, dtype=np.float64)
    p = np.asarray(probability, dtype=np.float64)
    if counts.shape != p.shape:
        raise ValueError(f"{counts.size} bins counted, {p.size} expected")
    n = counts.sum()
    if counts[p == 0].any():
        return GoodnessOfFit(
            None, 0.0, f"{int(counts[p == 0].sum())} of {int(n)} draws are impossible values"
        )
    pool = _pools(p, n)
    pools = pool.max() + 1
    if pools < 2:
        return GoodnessOfFit(None, 1.0, f"{int(n)} draws are too few for a test")
    expected = np.bincount(pool, weights=p * n, minlength=pools)
    found = np.bincount(pool, weights=counts, minlength=pools)
    statistic = float(((found - expected) ** 2 / expected).sum())
    p_value = float(scipy.stats.chi2.sf(statistic, pools - 1))
    return GoodnessOfFit(
        statistic, p_value, f"chi-square {statistic:.1f} on {pools - 1} degrees of freedom, {int(n)} draws"
    )


def _pools(p: npt.NDArray[np.float64], n: float) -> npt.NDArray[np.intp]:
    """Return the pool of every bin, numbered from 0, the least likely bins first. A last pool that is too
    small is merged with the one before."""
    order = np.argsort(p, kind="stable")
    pool = np.empty(p.size, dtype=np.intp)
    current, expected = 0, 0.0
    for index in order:
        pool[index] = current
        expected += p[index] * n
        if expected >= EXPECTED_PER_BIN_MIN:
            current, expected = current + 1, 0.0
    if expected > 0.0 and current > 0:
        pool[pool == current] = current - 1
    return pool
