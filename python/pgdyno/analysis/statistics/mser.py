"""End of the warm-up of a series by MSER, and a rule for whether the warm-up is over.

MSER (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69, 1997)
cuts as many values off the beginning as make the standard error of the mean of the others the smallest: for n
values it is the d that minimises sum((y_i − mean)²) / (n − d)² over the values i > d. MSER-5 (White, Cobb and
Spratt, "A comparison of five steady-state truncation heuristics for simulation", Winter Simulation Conference
2000) does so with the means of batches of five, as single observations of a simulation depend on each other.
Our values are rates of a second, or of a slice: means of hundreds of transactions already.

A minimum that is not in the first half is taken for none: the series is too short, or has no steady state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BATCH = 5

ROUNDING = 1e-12
"""Of a sum of squares: what is smaller is nothing."""

VALUES_MIN = 5
"""With fewer nothing can be said of a trend and of a spread at the same time."""

CUT_SHARE_MAX = 1 / 3
"""Of a series that has come to rest: what MSER cuts off. Twice as much as was cut then speaks against it."""

TREND_SHARE = 3 / 4
"""Of the series, its end: there a trend must be no larger than ``TREND_ERRORS_MAX`` standard errors."""

TREND_ERRORS_MAX = 1.0


def batches(values: Sequence[float] | Floats, batch: int = BATCH) -> Floats:
    """Their means, batch by batch; what is left over at the end is left out."""
    known = np.asarray(values, dtype=np.float64)
    whole = len(known) // batch
    means: Floats = known[: whole * batch].reshape(whole, batch).mean(axis=1)
    return means


def mser(values: Sequence[float] | Floats) -> int | None:
    """How many values to cut off the beginning; None where that is half of them or more, or there are fewer
    than ``VALUES_MIN``.
    """
    known = np.asarray(values, dtype=np.float64)
    n = len(known)
    if n < VALUES_MIN:
        return None
    known = known - known.mean()  # so that little is lost in the difference of squares
    left = n - np.arange(n - 1)  # cutting all but one would leave no spread at all
    sums, squares = (np.cumsum(of[::-1])[::-1][: n - 1] for of in (known, known**2))
    marginal = np.maximum(squares - sums**2 / left, 0.0) / left**2
    marginal[marginal < ROUNDING * marginal[0]] = 0.0
    searched = max(n // 2 + 1, n - VALUES_MIN)  # a few at the end may be alike by chance
    cut = int(np.argmin(marginal[:searched]))
    return cut if 2 * cut < n - 1 else None


def mser_of_mean(trials: Sequence[Sequence[float] | Floats]) -> int | None:
    """How many values MSER cuts off the mean of trials that began alike, each taken as a share of its second
    half (Welch, "The statistical analysis of simulation results", in Lavenberg's handbook, 1983): what they
    have in common stands out, their noise does not. By batches of five where there are enough.
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
    """Whether a series has come to rest: MSER cuts no more than a third of it, and what follows its first
    quarter has no trend that stands out of the noise.

    It can be asked again with each new value. Of a rise that is hidden in the noise it says that there is
    none: how much is then left of it is in docs/explanation/steady-state.md.
    """
    known = np.asarray(values, dtype=np.float64)
    cut = mser(known)
    if cut is None or cut > CUT_SHARE_MAX * len(known):
        return False
    return abs(trend_errors(known[len(known) - round(TREND_SHARE * len(known)) :])) <= TREND_ERRORS_MAX


def trend_errors(values: Sequence[float] | Floats) -> float:
    """The slope of the least-squares line, in its standard errors; 0 of values that are all alike."""
    known = np.asarray(values, dtype=np.float64)
    at = np.arange(len(known)) - (len(known) - 1) / 2
    slope = float(at @ known) / float(at @ at)
    rest = known - known.mean() - slope * at
    error = float(np.sqrt(rest @ rest / (len(known) - 2) / (at @ at)))
    if error <= 1e-12 * abs(float(known.mean())):
        return 0.0 if abs(slope) <= 1e-9 * abs(float(known.mean())) else float(np.copysign(np.inf, slope))
    return slope / error
