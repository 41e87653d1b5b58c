"""Tests and fits of series: warm-up, slopes, autocorrelation, symmetry.

- Test whether block ratios are autocorrelated. Intervals assume that they are independent.
- Test whether block ratios are skewed. Intervals assume that their distribution is nearly symmetric.
- End of the warm-up of a series by MSER, and a rule for whether the warm-up is over.
- Exponential approach of series to their final level.
- Slope per hour of a quantity over a long window, with an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.intervals import beta_below, student, t_beyond
from pgdyno.units import S_PER_HOUR, Better, Estimate

# ----------------------------------------------------------------------
# Test whether block ratios are autocorrelated. Intervals assume that they are independent.
#
# The test is the rank version of von Neumann's ratio (Bartels, "The rank version of von Neumann's ratio test
# for randomness", JASA 1982). For the ranks R_1 … R_n of the blocks' log ratios in the order of execution::
#
#     RVN = Σ (R_i − R_{i+1})² / Σ (R_i − R̄)²
#
# If blocks are independent and identically distributed, every order of ranks has the same probability. This
# holds for any distribution, including heavy tails. RVN is then about 2, and smaller if a block resembles the
# previous one. RVN / 4 has nearly a symmetric beta distribution, as Bartels found, from BLOCKS_MIN blocks on.
# The variance of RVN is 4 (n − 2) (5n² − 2n − 9) / (5 n (n + 1) (n − 1)²).
#
# The test is one-sided: negatively correlated blocks make an interval too wide, not too narrow.
# ----------------------------------------------------------------------

BLOCKS_MIN = 10
"""Minimum for the beta approximation. Fewer blocks hardly ever show a relevant autocorrelation."""


def rank_ratio(d: Sequence[float]) -> float | None:
    """Return RVN; None if all values are equal or there are too few."""
    if len(d) < BLOCKS_MIN:
        return None
    ranks = _ranks(d)
    squares = float(np.sum((ranks - ranks.mean()) ** 2))
    return float(np.sum(np.diff(ranks) ** 2)) / squares if squares else None


def von_neumann_p_value(ratio: float, n: int) -> float:
    """Return the probability that n independent blocks have this ratio or a smaller one."""
    shape = 5 * n * (n + 1) * (n - 1) ** 2 / (2 * (n - 2) * (5 * n**2 - 2 * n - 9)) - 0.5
    return beta_below(ratio / 4, shape, shape)


def _ranks(d: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the ranks. Equal values share the mean of their ranks."""
    _, which, count = np.unique(d, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[which])


def is_autocorrelated(d: Sequence[float], alarm: float) -> bool:
    """Return whether ``d``, in block order, is autocorrelated, with false alarm probability ``alarm``."""
    ratio = rank_ratio(d)
    return ratio is not None and von_neumann_p_value(ratio, len(d)) <= alarm


def autocorrelation(d: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation of the values."""
    off = np.asarray(d) - np.mean(d)
    return float(np.sum(off[1:] * off[:-1]) / np.sum(off**2))


# ----------------------------------------------------------------------
# Test whether block ratios are skewed. Intervals assume that their distribution is nearly symmetric.
#
# The triples test (Randles, Fligner, Policello and Wolfe, "An asymptotically distribution-free test for
# symmetry versus asymmetry", JASA 1980). Of three blocks, the middle one is closer to the smaller or to the
# larger one::
#
#     T = mean over all triples of the sign of (smallest + largest − 2 · middle) / 3
#
# T is about 0 for every symmetric distribution, including heavy tails, where an estimated skewness would be
# far from 0. Its variance is that of a U-statistic, estimated from the same blocks. T divided by its standard
# error is compared with Student's distribution, which is slightly conservative with ten blocks.
# ----------------------------------------------------------------------

BLOCKS_MAX = 100
"""Maximum number of blocks tested, the last ones: 161,700 triples take 0.1 s."""

ROUNDING = 1e-12
"""Variance of T that is rounding only. The smallest other one is larger by far: T is a mean of thirds."""


def is_skewed(d: Sequence[float], alarm: float) -> bool:
    """Return whether the values are skewed, with false alarm probability ``alarm``. The test is two-sided.

    No interval is corrected for skewness: Johnson's correction did not keep the 5%.
    """
    score = triples_score(d)
    return score is not None and 2 * t_beyond(abs(score), len(tested(d))) <= alarm


def tested(d: Sequence[float]) -> Sequence[float]:
    """Return the values that are tested."""
    return d[-BLOCKS_MAX:]


@lru_cache(maxsize=8)
def _triples_of(n: int) -> npt.NDArray[np.int64]:
    """Return the positions of all triples of n values. It takes longer than their score."""
    return np.array(list(combinations(range(n), 3)))


def triples_score(d: Sequence[float]) -> float | None:
    """Return T in standard errors, positive for a long right tail; None for too few or equal values.

    Infinite if all triples have the same direction, as with extreme skewness.
    """
    values = np.asarray(tested(d), dtype=float)
    n = len(values)
    if n < BLOCKS_MIN:
        return None
    of = _triples_of(n)
    triples = np.sort(values[of], axis=1)
    signs = np.sign(triples[:, 0] + triples[:, 2] - 2 * triples[:, 1]) / 3
    t = float(signs.mean())
    pairs = [of[:, i] * n + of[:, k] for i, k in combinations(range(3), 2)]
    thrice = np.tile(signs, 3)
    by_one = np.bincount(of.T.ravel(), thrice, n) / math.comb(n - 1, 2)
    every_two = np.bincount(np.concatenate(pairs), thrice, n * n).reshape(n, n) / (n - 2)
    by_two = every_two[np.triu_indices(n, 1)]
    variance = (
        3 * math.comb(n - 3, 2) * float(np.mean((by_one - t) ** 2))
        + 3 * (n - 3) * float(np.mean((by_two - t) ** 2))
        + float(np.mean(signs**2))
        - t * t
    ) / math.comb(n, 3)
    if variance <= ROUNDING:
        return math.copysign(math.inf, t) if t else None
    return t / math.sqrt(variance)


def skewness(d: Sequence[float]) -> float:
    """Return the third standardized moment of the values."""
    off = np.asarray(d) - np.mean(d)
    return float(np.mean(off**3) / np.mean(off**2) ** 1.5)


# ----------------------------------------------------------------------
# End of the warm-up of a series by MSER, and a rule for whether the warm-up is over.
#
# MSER (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
# 1997) truncates the beginning so that the standard error of the mean of the rest is smallest. For n values
# it is the d that minimizes sum((y_i − mean)²) / (n − d)² over the values i > d. MSER-5 (White, Cobb and
# Spratt, "A comparison of five steady-state truncation heuristics for simulation", Winter Simulation
# Conference 2000) uses the means of batches of five, because single observations of a simulation depend on
# each other. The values here are rates of a second or a slice, which are already means of hundreds of
# transactions.
#
# A minimum outside the first half is rejected: the series is too short, or has no steady state.
# ----------------------------------------------------------------------

Floats = npt.NDArray[np.float64]

BATCH = 5


VALUES_MIN = 5
"""Minimum number of values to estimate a trend and an SD."""

CUT_SHARE_MAX = 1 / 3
"""Maximum share of a steady series that MSER cuts off. The rest is then twice as long as the cut."""

TREND_SHARE = 3 / 4
"""Share of the series, at its end, in which a trend must not exceed ``TREND_ERRORS_MAX`` standard errors."""

TREND_ERRORS_MAX = 1.0


def batches(values: Sequence[float] | Floats, batch: int = BATCH) -> Floats:
    """Return the means of batches. An incomplete batch at the end is omitted."""
    known = np.asarray(values, dtype=np.float64)
    whole = len(known) // batch
    means: Floats = known[: whole * batch].reshape(whole, batch).mean(axis=1)
    return means


def mser(values: Sequence[float] | Floats) -> int | None:
    """Return the number of values to cut off at the beginning.

    None if it is half of the values or more, or for fewer than ``VALUES_MIN`` values.
    """
    known = np.asarray(values, dtype=np.float64)
    n = len(known)
    if n < VALUES_MIN:
        return None
    known = known - known.mean()  # reduces the cancellation in the difference of squares
    left = n - np.arange(n - 1)  # cutting all but one would leave no variance
    sums, squares = (np.cumsum(of[::-1])[::-1][: n - 1] for of in (known, known**2))
    marginal = np.maximum(squares - sums**2 / left, 0.0) / left**2
    marginal[marginal < ROUNDING * marginal[0]] = 0.0
    searched = max(n // 2 + 1, n - VALUES_MIN)  # a few values at the end may be equal at random
    cut = int(np.argmin(marginal[:searched]))
    return cut if 2 * cut < n - 1 else None


def mser_of_mean(trials: Sequence[Sequence[float] | Floats]) -> int | None:
    """Return the number of values that MSER cuts off the mean of several trials.

    Each trial is normalized by its second half (Welch, "The statistical analysis of simulation results", in
    Lavenberg's handbook, 1983). The mean keeps their common course and reduces their noise. Batches of five
    are used if there are enough values.
    """
    n = min(map(len, trials), default=0)
    if n < VALUES_MIN:
        return None
    shares = [np.asarray(values[:n], dtype=np.float64) for values in trials]
    levels = [float(values[n // 2 :].mean()) for values in shares]
    known = [values / level for values, level in zip(shares, levels, strict=True) if level > 0]
    batch = BATCH if n >= 2 * BATCH * VALUES_MIN else 1
    cut = mser(batches(np.mean(known, axis=0), batch)) if known else None
    return None if cut is None else cut * batch


def is_steady(values: Sequence[float] | Floats) -> bool:
    """Return whether a series is in steady state.

    True if MSER cuts off at most a third, and the series after its first quarter has no significant trend.
    The rule can be applied again after each new value. It does not detect a rise that is hidden in the noise;
    docs/explanation/steady-state.md quantifies the remaining rise.
    """
    known = np.asarray(values, dtype=np.float64)
    cut = mser(known)
    if cut is None or cut > CUT_SHARE_MAX * len(known):
        return False
    return abs(trend_errors(known[len(known) - round(TREND_SHARE * len(known)) :])) <= TREND_ERRORS_MAX


def trend_errors(values: Sequence[float] | Floats) -> float:
    """Return the slope of the least-squares line in its standard errors; 0 if all values are equal."""
    known = np.asarray(values, dtype=np.float64)
    at = np.arange(len(known)) - (len(known) - 1) / 2
    slope = float(at @ known) / float(at @ at)
    rest = known - known.mean() - slope * at
    error = float(np.sqrt(rest @ rest / (len(known) - 2) / (at @ at)))
    if error <= 1e-12 * abs(float(known.mean())):
        return 0.0 if abs(slope) <= 1e-9 * abs(float(known.mean())) else float(np.copysign(np.inf, slope))
    return slope / error


# ----------------------------------------------------------------------
# Exponential approach of series to their final level: y = level · (1 − share · exp(−t / constant)).
#
# All series have the same share and constant: that of a grid with the smallest sum of squares. For least
# squares, ``moments`` of x = exp(−t / constant) and z = y / mean − 1 suffice, so that a fit without one of
# the series (jackknife) costs little.
# ----------------------------------------------------------------------

CONSTANTS = 64
CONSTANT_SPANS_MAX = 4.0
"""Number of time constants in the grid, and the largest one as a multiple of the observed time. A slower rise
is a line, and does not show how far it goes."""

SHORTFALL_MAX = 0.99
"""Limit of an extrapolated shortfall, so that it has a logarithm."""


def time_constants(step_s: float, span_s: float) -> Floats:
    """Return the grid of time constants for values every ``step_s`` over ``span_s``."""
    grid: Floats = np.geomspace(step_s, CONSTANT_SPANS_MAX * span_s, CONSTANTS)
    return grid


def moments(at_s: Floats, values: Floats, in_window: npt.NDArray[np.bool_], constants_s: Floats) -> Floats:
    """Return Σx², Σxz, Σz² about the means, the mean x, and that in the window, for each time constant."""
    x = np.exp(-at_s[:, None] / constants_s)
    z = values / values.mean() - 1
    centered = x - x.mean(axis=0)
    squares = (centered**2).sum(axis=0), z @ centered, np.full(len(constants_s), z @ z)
    found: Floats = np.array([*squares, x.mean(axis=0), x[in_window].mean(axis=0)])
    return found


def fit_exponential(mean_moments: Floats) -> tuple[Floats, Floats, Floats]:
    """Return position of the time constant, share, and log shortfall in the window, of each fit.

    ``mean_moments``: means over the series of a fit, with the shape (fits, 5, time constants). The share is
    negative if the rate falls. The log shortfall is ln(mean in the window / final level).
    """
    x_x, x_z, z_z, _, _ = mean_moments.transpose(1, 0, 2)
    best = np.argmin(z_z - x_z**2 / x_x, axis=-1)
    x_x, x_z, _, mean_x, window_x = np.take_along_axis(mean_moments, best[:, None, None], axis=-1)[..., 0].T
    share = -x_z / (x_x - x_z * mean_x)
    return best, share, log_shortfall(share * window_x)


def log_shortfall(share: Floats) -> Floats:
    """Return the logarithm of what is there if this share is missing."""
    present: Floats = np.log1p(-np.minimum(SHORTFALL_MAX, share))
    return present


# ----------------------------------------------------------------------
# Slope per hour of a quantity over a long window, with an interval.
#
# Seconds of a run depend on each other: a checkpoint lowers a minute, a vacuum ten. An interval that assumes
# independent seconds is many times too narrow. So the window is cut into PARTS equal parts, each much longer
# than that dependence, and the parts are the observations (batch means: Schmeiser, Operations Research 1982,
# who advises 10 to 30 of them). In simulations with noise that is autocorrelated over half a minute, 10 parts
# of an hour cover 94%, and 30 cover 92%. Least squares on the seconds covers 82%, with the variance advised
# for economic series (Lazarus, Lewis, Stock and Watson, JBES 2018). Theil's and Sen's slope would discard
# stalls as outliers, but they are part of the throughput.
#
# There are two estimates:
#
# - for a level (transactions per second): the least-squares line through the parts' means, Student's t with
#   PARTS − 2 degrees of freedom (``trend``);
# - for an accumulating quantity (sizes, ages of transaction IDs): its noise accumulates too, so a line would
#   be too certain. The estimate is the mean of the parts' increments, Student's t with PARTS − 1
#   (``growth``).
# ----------------------------------------------------------------------

PARTS = 10
"""The smallest advised number, so that the parts are long and almost independent."""

SPAN_S_MIN = 600.0
"""Minimum window for a slope: a shorter one does not support a rate per hour."""

SAMPLES_MIN = 6 * PARTS
"""Minimum number of samples, so that each part is a mean of several."""


@dataclass(frozen=True)
class Slope:
    """Change per hour of a quantity. ``mean`` is its mean in the same unit, ``span_s`` the observed time.

    ``n`` is the number of parts of the window, or of trials for a pooled slope.
    """

    per_hour: float
    low: float
    high: float
    confidence: float
    mean: float
    n: int
    span_s: float
    p_value: float | None = None  # of the slope 0

    def estimate(self, unit: str, better: Better) -> Estimate:
        """Return the estimate for presentation; unit ``tx/s`` becomes ``tx/s per hour``."""
        return Estimate(
            self.per_hour, f"{unit} per hour", self.n, better, self.low, self.high, self.confidence
        )

    def percent(self, better: Better) -> Estimate | None:
        """Return the slope in percent of the mean; None unless the mean is positive."""
        if self.mean <= 0:
            return None
        value, low, high = (100 * end / self.mean for end in (self.per_hour, self.low, self.high))
        return Estimate(value, "% per hour", self.n, better, low, high, self.confidence)


def trend(
    at_s: Sequence[float] | Floats, values: Sequence[float] | Floats, confidence: float
) -> Slope | None:
    """Return the slope of a level, without NaN values. None if the series is too short or a part is empty."""
    found = _known(at_s, values)
    if found is None:
        return None
    at, value = found
    parts = _parts(at)
    if any(not mask.any() for mask in parts):
        return None
    per_s, error = _line(
        np.array([at[mask].mean() for mask in parts]), np.array([value[mask].mean() for mask in parts])
    )
    reach = intervals.t_quantile((1 + confidence) / 2, PARTS - 2) * error
    p_value = 2 * intervals.t_beyond(abs(per_s) / error, PARTS - 2) if error > 0 else float(per_s == 0)
    return _slope(per_s, reach, confidence, at, value, p_value)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the slope of the least-squares line and its standard error."""
    of_x, of_both, _, of_y = np.cov(x, y, bias=True).flat
    if of_y == 0:
        return 0.0, 0.0
    r = np.clip(of_both / np.sqrt(of_x * of_y), -1.0, 1.0)
    return float(of_both / of_x), float(np.sqrt((1 - r**2) * of_y / of_x / (len(x) - 2)))


def growth(
    at_s: Sequence[float] | Floats, values: Sequence[float] | Floats, confidence: float
) -> Slope | None:
    """Return the slope of an accumulating quantity. NaN values are missing. None if the series is too short.

    Growth between two samples in different parts is divided in proportion to time.
    """
    found = _known(at_s, values)
    if found is None:
        return None
    at, value = found
    edges = np.linspace(at[0], at[-1], PARTS + 1)
    rates = np.diff(np.interp(edges, at, value)) / np.diff(edges)
    summary = student([float(rate) for rate in rates], confidence)
    assert summary.low is not None and summary.high is not None
    return _slope(summary.mean, (summary.high - summary.low) / 2, confidence, at, value, summary.p_value)


def mean_slope(slopes: Sequence[Slope], confidence: float) -> Slope | None:
    """Return the mean slope of an arm's trials with Student's interval; a single slope is unchanged.

    Trials start from restored data and are independent, unlike seconds and parts.
    """
    if len(slopes) < 2:
        return slopes[0] if slopes else None
    summary = student([slope.per_hour for slope in slopes], confidence)
    assert summary.low is not None and summary.high is not None
    return Slope(
        per_hour=summary.mean,
        low=summary.low,
        high=summary.high,
        confidence=confidence,
        mean=float(np.mean([slope.mean for slope in slopes])),
        n=len(slopes),
        span_s=min(slope.span_s for slope in slopes),
        p_value=summary.p_value,
    )


def _known(at_s: Sequence[float] | Floats, values: Sequence[float] | Floats) -> tuple[Floats, Floats] | None:
    at, value = np.asarray(at_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    there = np.isfinite(at) & np.isfinite(value)
    at, value = at[there], value[there]
    if len(at) < SAMPLES_MIN or at[-1] - at[0] < SPAN_S_MIN:
        return None
    return at, value


def _parts(at: Floats) -> list[npt.NDArray[np.bool_]]:
    """Return for each part which samples it contains."""
    part = np.minimum((PARTS * (at - at[0]) / (at[-1] - at[0])).astype(int), PARTS - 1)
    return [part == i for i in range(PARTS)]


def _slope(
    per_s: float, reach_per_s: float, confidence: float, at: Floats, value: Floats, p_value: float | None
) -> Slope:
    per_hour, reach = per_s * S_PER_HOUR, reach_per_s * S_PER_HOUR
    return Slope(
        per_hour=per_hour,
        low=per_hour - reach,
        high=per_hour + reach,
        confidence=confidence,
        mean=float(value.mean()),
        n=PARTS,
        span_s=float(at[-1] - at[0]),
        p_value=p_value,
    )
