"""Slope per hour of a quantity over a long window, with an interval.

Seconds of a run depend on each other: a checkpoint lowers a minute, a vacuum ten. An interval that assumes
independent seconds is many times too narrow. So the window is cut into PARTS equal parts, each much longer
than that dependence, and the parts are the observations (batch means: Schmeiser, Operations Research 1982,
who advises 10 to 30 of them). In simulations with noise that is autocorrelated over half a minute, 10 parts
of an hour cover 94%, and 30 cover 92%. Least squares on the seconds covers 82%, with the variance advised for
economic series (Lazarus, Lewis, Stock and Watson, JBES 2018). Theil's and Sen's slope would discard stalls as
outliers, but they are part of the throughput.

There are two estimates:

- for a level (transactions per second): the least-squares line through the parts' means, Student's t with
  PARTS − 2 degrees of freedom (``trend``);
- for an accumulating quantity (sizes, ages of transaction IDs): its noise accumulates too, so a line would be
  too certain. The estimate is the mean of the parts' increments, Student's t with PARTS − 1 (``growth``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics import distributions
from pgdyno.analysis.statistics.effect import student
from pgdyno.estimate import Better, Estimate
from pgdyno.units import S_PER_HOUR

PARTS = 10
"""The smallest advised number, so that the parts are long and almost independent."""

SPAN_S_MIN = 600.0
"""Minimum window for a slope: a shorter one does not support a rate per hour."""

SAMPLES_MIN = 6 * PARTS
"""Minimum number of samples, so that each part is a mean of several."""

Floats = npt.NDArray[np.float64]


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

    @property
    def steady(self) -> bool:
        """True if the interval includes 0."""
        return self.low <= 0 <= self.high


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
    reach = distributions.t_quantile((1 + confidence) / 2, PARTS - 2) * error
    p_value = 2 * distributions.t_beyond(abs(per_s) / error, PARTS - 2) if error > 0 else float(per_s == 0)
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
