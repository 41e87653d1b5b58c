"""Goodness-of-fit tests of counts against the shares that a specification demands.

All of them must be right far out in the tail, because a trial is excluded only where a correct driver would
do it about once in a million trials: exact distributions where they are cheap, and for many bins a chi-square
distribution over bins that are full enough for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used: stats alone takes a second

from pgdyno.workload.interface import Check

FALSE_ALARMS_PER_TRIAL = 1e-6
"""How often all these tests together may fail a trial whose driver is correct. A long study has hundreds of
trials; at this rate one study in thousands loses one trial by chance, so a failed check is never "just bad
luck". What is lost is little: the counts are so large that a wrong driver misses by far more (2 % rollbacks
for 1 %, in a thousand transactions, are three standard deviations; in 10 000, ten)."""

EXPECTED_PER_BIN_MIN = 50.0
"""Bins that expect less are pooled. Simulated at 1e-5 (tests/unit/test_workload_goodness.py): with 5, the
usual rule of thumb for 5 % tests, the chi-square distribution gives tails that are several times too thin;
with 50 they are right within a factor of two."""


@dataclass(frozen=True)
class Fit:
    """How well counts fit. ``p_value``: of counts at least as odd, if the shares are true. ``detail``: in
    words."""

    statistic: float | None
    p_value: float
    detail: str


def tests_of(fits: Mapping[str, Fit]) -> list[Check]:
    """All tests of one trial, by name, as checks: together they raise FALSE_ALARMS_PER_TRIAL."""
    threshold = FALSE_ALARMS_PER_TRIAL / max(1, len(fits))
    return [
        Check(name, fit.p_value >= threshold, fit.statistic, fit.p_value, fit.detail)
        for name, fit in fits.items()
    ]


def fit_weights(drawn: Mapping[str, int], weights: Mapping[str, float]) -> Fit:
    """The chi-square test of how often each kind was drawn against the weights."""
    total = sum(weights.values())
    kinds = list(weights)
    if any(n for kind, n in drawn.items() if kind not in weights):
        return Fit(None, 0.0, f"kinds drawn that have no weight: {sorted(set(drawn) - set(kinds))}")
    return fit_distribution([drawn.get(kind, 0) for kind in kinds], [weights[kind] / total for kind in kinds])


def fit_share(successes: int, n: int, share: float) -> Fit:
    """The exact two-sided binomial test of ``successes`` in ``n`` against ``share``."""
    if n == 0:
        return Fit(None, 1.0, f"none drawn; {share:.1%} expected")
    p_value = float(scipy.stats.binomtest(successes, n, share).pvalue)
    return Fit(successes / n, p_value, f"{successes} of {n} ({successes / n:.3%}), {share:.1%} expected")


def fit_distribution(observed: Sequence[int], probability: npt.ArrayLike) -> Fit:
    """Pearson's chi-square test of ``observed`` counts against ``probability``, both of one length.

    The least likely bins are pooled until each pool expects enough. Which bins are pooled depends on the
    number of draws and the probabilities only, so the test keeps its level; and bins of like probability are
    pooled, so that the contrast of likely and unlikely values, NURand's signature, stays. Counts where the
    probability is 0 give p = 0.
    """
    counts = np.asarray(observed, dtype=np.float64)
    p = np.asarray(probability, dtype=np.float64)
    if counts.shape != p.shape:
        raise ValueError(f"{counts.size} bins counted, {p.size} expected")
    n = counts.sum()
    if counts[p == 0].any():
        return Fit(None, 0.0, f"{int(counts[p == 0].sum())} of {int(n)} draws are impossible values")
    pool = _pools(p, n)
    pools = pool.max() + 1
    if pools < 2:
        return Fit(None, 1.0, f"{int(n)} draws are too few to tell")
    expected = np.bincount(pool, weights=p * n, minlength=pools)
    found = np.bincount(pool, weights=counts, minlength=pools)
    statistic = float(((found - expected) ** 2 / expected).sum())
    p_value = float(scipy.stats.chi2.sf(statistic, pools - 1))
    return Fit(
        statistic, p_value, f"chi-square {statistic:.1f} on {pools - 1} degrees of freedom, {int(n)} draws"
    )


def _pools(p: npt.NDArray[np.float64], n: float) -> npt.NDArray[np.intp]:
    """The pool of every bin, numbered from 0, the least likely bins first; a last pool that is short joins
    its neighbour."""
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
