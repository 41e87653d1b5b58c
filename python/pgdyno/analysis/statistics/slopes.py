"""How fast something changed during a long window: the slope per hour, with an interval.

Seconds of a run depend on each other: a checkpoint pulls a minute down, a vacuum ten. An interval that takes
them as independent is many times too narrow. So the window is cut into PARTS equal parts of time, each much
longer than that dependence, and the parts are the observations (batch means: Schmeiser, Operations Research
1982, who advises 10 to 30 of them). In simulations with noise that remembers itself for half a minute
10 parts of an hour cover 94 %, 30 cover 92 %, and least squares on the seconds with the variance advised for
series of economists (Lazarus, Lewis, Stock and Watson, JBES 2018) 82 %. Theil's and Sen's slope would take
stalls for outliers, while they are a part of the throughput.

Two kinds of things, two estimates:

- what has a level (transactions per second): the least-squares line through the parts' means, Student's t
  with PARTS − 2 degrees of freedom (``trend``);
- what accumulates (sizes, ages of transaction ids): its noise accumulates too, and a line through it would
  believe in it; so the mean of the parts' increments, Student's t with PARTS − 1 (``growth``).
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
"""The fewest of the advised ones: the parts are the longer and the less dependent."""

SPAN_S_MIN = 600.0
"""A shorter window gives no slope: to say from minutes what an hour does is to guess."""

SAMPLES_MIN = 6 * PARTS
"""Fewer give none, either: a part is to be a mean of several."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Slope:
    """Change per hour of something; ``mean`` is its mean, in the same unit, ``span_s`` the time observed.

    ``n`` counts the parts of the window, or the trials where it is of several together.
    """

    per_hour: float
    low: float
    high: float
    confidence: float
    mean: float
    n: int
    span_s: float
    p_value: float | None = None  # that it is 0

    def estimate(self, unit: str, better: Better) -> Estimate:
        """As it is shown; ``unit`` is that of the thing itself: ``tx/s`` becomes ``tx/s per hour``."""
        return Estimate(
            self.per_hour, f"{unit} per hour", self.n, better, self.low, self.high, self.confidence
        )

    def percent(self, better: Better) -> Estimate | None:
        """In percent of the mean; None where that is not positive."""
        if self.mean <= 0:
            return None
        value, low, high = (100 * end / self.mean for end in (self.per_hour, self.low, self.high))
        return Estimate(value, "% per hour", self.n, better, low, high, self.confidence)

    @property
    def steady(self) -> bool:
        """Whether it may as well not have changed at all."""
        return self.low <= 0 <= self.high


def trend(
    at_s: Sequence[float] | Floats, values: Sequence[float] | Floats, confidence: float
) -> Slope | None:
    """Of what has a level. None of a series too short, or with a part of it empty (NaN: not there)."""
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
    """The slope of the least-squares line, and its standard error."""
    of_x, of_both, _, of_y = np.cov(x, y, bias=True).flat
    if of_y == 0:
        return 0.0, 0.0
    r = np.clip(of_both / np.sqrt(of_x * of_y), -1.0, 1.0)
    return float(of_both / of_x), float(np.sqrt((1 - r**2) * of_y / of_x / (len(x) - 2)))


def growth(
    at_s: Sequence[float] | Floats, values: Sequence[float] | Floats, confidence: float
) -> Slope | None:
    """Of what accumulates. None of a series too short; NaN: not there.

    What is between two samples that are far apart belongs to both their parts, in proportion to time.
    """
    found = _known(at_s, values)
    if found is None:
        return None
    at, value = found
    edges = np.linspace(at[0], at[-1], PARTS + 1)
    rates = np.diff(np.interp(edges, at, value)) / np.diff(edges)
    spread = student([float(rate) for rate in rates], confidence)
    assert spread.low is not None and spread.high is not None
    return _slope(spread.mean, (spread.high - spread.low) / 2, confidence, at, value, spread.p_value)


def together(slopes: Sequence[Slope], confidence: float) -> Slope | None:
    """Of several trials of one arm: their mean, with Student's interval on them; a single one is itself.

    Trials start from restored data and are independent, as seconds and parts are not.
    """
    if len(slopes) < 2:
        return slopes[0] if slopes else None
    spread = student([slope.per_hour for slope in slopes], confidence)
    assert spread.low is not None and spread.high is not None
    return Slope(
        per_hour=spread.mean,
        low=spread.low,
        high=spread.high,
        confidence=confidence,
        mean=float(np.mean([slope.mean for slope in slopes])),
        n=len(slopes),
        span_s=min(slope.span_s for slope in slopes),
        p_value=spread.p_value,
    )


def _known(at_s: Sequence[float] | Floats, values: Sequence[float] | Floats) -> tuple[Floats, Floats] | None:
    at, value = np.asarray(at_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    there = np.isfinite(at) & np.isfinite(value)
    at, value = at[there], value[there]
    if len(at) < SAMPLES_MIN or at[-1] - at[0] < SPAN_S_MIN:
        return None
    return at, value


def _parts(at: Floats) -> list[npt.NDArray[np.bool_]]:
    """Which samples are in each part of the time."""
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
