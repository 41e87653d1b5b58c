"""Exact distributions of what the engine draws, for tests of its counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MULTIGET_MAX = 127
"""Maximum number of links of a multiget."""

MULTIGET_SHARE = 0.382
"""Parameter of the geometric distribution of the number of links of a multiget."""

TERMS = 10_000
"""Terms of a harmonic number that are added one by one; an asymptotic formula has the others."""


def harmonic(n: int, exponent: float) -> float:
    """Return the sum of k^-exponent over k = 1 … n, with a relative error below 1e-12.

    Source: Euler-Maclaurin formula for the terms after the first TERMS.
    """
    low, high = float(min(n, TERMS)), float(n)
    total = float((np.arange(1, low + 1) ** -exponent).sum())
    integral = (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
    slopes = -exponent * (high ** (-exponent - 1) - low ** (-exponent - 1))
    return float(total + integral + (high**-exponent - low**-exponent) / 2 + slopes / 12)


def rank_bins(nodes: int, exponent: float, bins: int) -> npt.NDArray[np.float64]:
    """Return the probabilities of bins of ranks: bin k has the ranks 2^k - 1 to 2^(k+1) - 2.

    Exponent 0: uniform. Source: Gray et al., Quickly generating billion-record synthetic databases (1994).
    Their approximation of the Zipf distribution is exact for the first two ranks.
    """
    ends = np.minimum(2.0 ** np.arange(bins + 1) - 1, nodes)
    if exponent == 0.0:
        return np.diff(ends / nodes)
    zeta, second = harmonic(nodes, exponent), 0.5**exponent
    eta = (1 - (2 / nodes) ** (1 - exponent)) / (1 - (1 + second) / zeta)
    below = 1 - (1 - (ends / nodes) ** (1 - exponent)) / eta
    below[0], below[1] = 0.0, 1 / zeta
    return np.diff(below)


def multiget_sizes(distributions: str) -> npt.NDArray[np.float64]:
    """Return the probabilities of 0 … MULTIGET_MAX links of a multiget.

    LinkBench adds the configured minimum, 1, to a geometric number that is at least 1.
    """
    drawn = np.arange(1, MULTIGET_MAX + 1)
    probability = MULTIGET_SHARE * (1 - MULTIGET_SHARE) ** (drawn - 1)
    size = np.minimum(drawn + (distributions == "executed"), MULTIGET_MAX)
    found = np.asarray(np.bincount(size, weights=probability, minlength=MULTIGET_MAX + 1), np.float64)
    found[MULTIGET_MAX] += 1 - found.sum()
    return found
