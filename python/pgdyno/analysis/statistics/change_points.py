"""Change points of a series: E-divisive means with a permutation test.

The series is cut at the place with the largest distance between the values before and after it. The distance
is the energy statistic of Székely and Rizzo, Q = mn/(m + n) · (2 E|X − Y| − E|X − X′| − E|Y − Y′|).
Permutations of the series give its p-value. Each part is then cut in the same way (Matteson and James, "A
nonparametric approach for multiple change point analysis of multivariate data", JASA 2014; used on nightly
benchmarks of a database by Daly et al., "The use of change point detection to identify software performance
regressions in a continuous integration system", ICPE 2020). The method assumes no distribution.

The p-value of a cut is exact if values are exchangeable, that is, without a change. It is the sequential
p-value of Besag and Clifford ("Sequential Monte Carlo p-values", Biometrika 1991), which stops permuting as
soon as a small p-value is impossible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SEGMENT_MIN = 3

POINTS_MIN = 2 * SEGMENT_MIN
"""Minimum length of a series with a cut: the distribution of fewer values on a side is unknown."""

EXCEEDED_MAX = 20
"""Permuted series with a statistic at least as large, after which the p-value is large and precise enough."""

BATCH = 64
"""Series permuted at once, which limits unnecessary permutations."""

BATCH_VALUES = 1 << 21
"""Maximum number of distances in a batch, which limits its memory."""

SEED = 20261122
"""Fixed, so that the same series has the same change points."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cut:
    """A cut. ``at`` is the index of the first value after it."""

    at: int
    p_value: float


def first_cut(values: Sequence[float], shuffles: int) -> Cut | None:
    """Return the first cut, also if it is not significant; None if the series is too short."""
    if len(values) < POINTS_MIN:
        return None
    distances = np.abs(np.subtract.outer(np.asarray(values), np.asarray(values)))
    q = _statistics(distances[np.newaxis])[0]
    at, _ = np.unravel_index(np.argmax(q), q.shape)
    return Cut(int(at), _p_value(distances, float(q.max()), shuffles))


def cuts(values: Sequence[float], level: float, shuffles: int) -> list[Cut]:
    """Return all significant cuts, sorted by place.

    The level of the first cut is ``level``. Each part that a cut creates has half of its level. So the
    probability of any false cut is at most ``level``.
    """
    return sorted(_within(values, 0, level, shuffles), key=lambda cut: cut.at)


def _within(values: Sequence[float], begin: int, level: float, shuffles: int) -> Iterator[Cut]:
    found = first_cut(values, shuffles)
    if found is None or found.p_value > level:
        return
    yield Cut(begin + found.at, found.p_value)
    yield from _within(values[: found.at], begin, level / 2, shuffles)
    yield from _within(values[found.at :], begin + found.at, level / 2, shuffles)


def _statistics(distances: Floats) -> Floats:
    """Return Q of the first ``at`` values against those from there to ``end``, for every pair.

    Shape: (series, at, end) for (series, n, n) distances. Minus infinity if a side has fewer than
    SEGMENT_MIN. ``end`` need not be the end of the series: after a level that fell and rose again, all values
    before and all values after a cut may hardly differ.
    """
    n = distances.shape[-1]
    block = np.zeros((len(distances), n + 1, n + 1))  # sums over the first rows and columns
    np.cumsum(np.cumsum(distances, axis=1), axis=2, out=block[:, 1:, 1:])
    whole = np.diagonal(block, axis1=1, axis2=2)
    before = whole[:, :, np.newaxis]
    between = block - before
    behind = whole[:, np.newaxis, :] - 2 * block + before
    place = np.arange(n + 1)
    m, k = place[:, np.newaxis], place[np.newaxis, :] - place[:, np.newaxis]
    allowed = (m >= SEGMENT_MIN) & (k >= SEGMENT_MIN)
    m, k = np.where(allowed, m, 2), np.where(allowed, k, 2)
    energy = 2 * between / (m * k) - before / (m * (m - 1)) - behind / (k * (k - 1))
    return np.where(allowed, m * k / (m + k) * energy, -np.inf)


def _p_value(distances: Floats, seen: float, shuffles: int) -> float:
    rng, n = np.random.default_rng(SEED), len(distances)
    limit = seen - 1e-12 * abs(seen)  # a permuted series may be the same, with another rounding of its sum
    exceeded = 0
    batch = max(1, min(BATCH, BATCH_VALUES // n**2))
    for done in range(0, shuffles, batch):
        size = min(batch, shuffles - done)
        orders = rng.permuted(np.tile(np.arange(n), (size, 1)), axis=1)
        shuffled = distances[orders[:, :, np.newaxis], orders[:, np.newaxis, :]]
        as_large = np.max(_statistics(shuffled), axis=(1, 2)) >= limit
        if exceeded + np.count_nonzero(as_large) >= EXCEEDED_MAX:
            last = int(np.flatnonzero(as_large)[EXCEEDED_MAX - exceeded - 1])
            return EXCEEDED_MAX / (done + last + 1)
        exceeded += int(np.count_nonzero(as_large))
    return (exceeded + 1) / (shuffles + 1)
