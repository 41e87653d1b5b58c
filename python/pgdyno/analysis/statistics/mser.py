"""End of the warm-up of a series by MSER, and a rule for whether the warm-up is over.

MSER (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69, 1997)
truncates the beginning so that the standard error of the mean of the rest is smallest. For n values it is the
d that minimizes sum((y_i − mean)²) / (n − d)² over the values i > d. MSER-5 (White, Cobb and Spratt, "A
comparison of five steady-state truncation heuristics for simulation", Winter Simulation Conference 2000) uses
the means of batches of five, because single observations of a simulation depend on each other. The values
here are rates of a second or a slice, which are already means of hundreds of transactions.

A minimum outside the first half is rejected: the series is too short, or has no steady state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BATCH = 5

ROUNDING = 1e-12
"""Sums of squares below this share are rounding errors."""

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
