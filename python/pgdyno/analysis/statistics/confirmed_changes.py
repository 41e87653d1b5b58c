"""Changes of the mean of a growing series, tested after each new value, with confirmation.

A test at 5% after each night raises a false alarm sooner or later. Here the Shiryaev–Roberts procedure bounds
the false alarms of all nights together. Let t be the pooled two-sample t statistic of the k newest values
against the m values before them, n = m + k, ν = n − 2. For a change δ, in SDs of a value, drawn from N(0, g),
t / √r has Student's distribution. The Bayes factor of a change after value m is the ratio of the densities::

    BF_{m,n} = r^(−1/2) ((1 + t²/ν) / (1 + t²/(r ν)))^((ν + 1)/2),        r = 1 + g m k / n

If nothing changes and values are independent and Gaussian, BF_{m,n} is a martingale in n with mean 1, for any
mean and SD: it is the likelihood ratio of the maximal invariant under shifts and scales (Pérez-Ortiz, Lardy,
de Heide and Grünwald, "E-statistics, group invariance and anytime-valid testing", Annals of Statistics 2024).
The sum R_n over all places m is a nonnegative submartingale with mean at most n. By Doob's inequality it
reaches c within N values with a probability of at most N / c. So the p-value 365 / R_n is at most α on any of
365 nights with a probability of at most α, and the mean time to that is at least 365 / α nights (Roberts,
"A comparison of some control chart procedures", Technometrics 1966; Shin, Ramdas and Rinaldo, "E-detectors: a
nonparametric framework for sequential change detection", New England Journal of Statistics in Data Science
2024). R_n depends on the values only, so another evaluation of the same values gives the same result.

**Confirmation.** One outlier can make R_n as large as it likes. A change is therefore confirmed only if it is
also significant without the most extreme value of the shorter segment: at least two values must show it. With
a few values left in that segment, their mean has the tails of single values. ν is then at most FREEDOM per
value left. Both conditions only reduce false alarms, so the bound holds. They keep false alarms rare if tails
are heavy or skewed, which ``python -m bench history`` measures (docs/explanation/history.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.change_points import Cut
from pgdyno.analysis.statistics.effect import holm_confidences

NIGHTS = 365
"""Values to which the level of the test applies: a year of nights."""

BEFORE_MIN = 5
"""Minimum number of values before a change: fewer hardly estimate the SD."""

AFTER_MIN = 2
"""Minimum number of values after a confirmed change."""

PRIOR = 10.0
"""g. Chosen by simulation: with 4 a large change of a short series needs up to two nights more, with 30 a
change of one SD two. Every value gives a valid test."""

ROUNDING = 1e-12
"""Share of the total sum of squares below which a sum within segments is rounding."""

FREEDOM = 12
"""Maximum degrees of freedom per value of the shorter segment. Chosen by simulation: with 20, years of six
series with outliers have twice the false alarms; with 8 a large change needs up to a night more."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int_]


@dataclass(frozen=True)
class ConfirmedCut(Cut):
    """A confirmed change. ``confirmed_at`` is the index of the value that confirmed it."""

    confirmed_at: int


@dataclass(frozen=True)
class SeriesChanges:
    """Confirmed changes of a series, and one that awaits confirmation. ``level`` is that of the next one."""

    confirmed: Sequence[ConfirmedCut]
    awaiting: Cut | None
    level: float


def log_bayes_factors(values: Floats) -> tuple[Floats, Floats]:
    """Return ln BF of a change at each place: with all values, and for confirmation.

    ``values`` is (…, n), oldest first; both results are (…, n − BEFORE_MIN), for BEFORE_MIN to n − 1 values
    before the change. The second is minus infinity if the values that remain do not show a change in the same
    direction.
    """
    n = values.shape[-1]
    x = values - values[..., :1]  # a constant series becomes exactly 0
    before = np.arange(BEFORE_MIN, n)
    after = n - before
    sums, squares = np.cumsum(x, axis=-1), np.cumsum(x * x, axis=-1)
    head, total = sums[..., before - 1], squares[..., -1:]
    tail = sums[..., -1:] - head
    floor = ROUNDING * (total - sums[..., -1:] ** 2 / n) + np.finfo(float).tiny
    change = tail / after - head / before
    within = np.maximum(total - head**2 / before - tail**2 / after, floor)
    whole = _log_bayes_factor(change, within, before, after, n - 2)

    of_after, rises = after <= before, change > 0
    backwards = x[..., ::-1]
    extreme_after = np.where(rises, _highest(backwards, after), -_highest(-backwards, after)) * of_after
    extreme_before = np.where(rises, -_highest(-x, before), _highest(x, before)) * ~of_after
    head, tail = head - extreme_before, tail - extreme_after
    before, after = before - ~of_after, np.maximum(after - of_after, 1)
    left = tail / after - head / before
    total = total - extreme_before**2 - extreme_after**2
    within = np.maximum(total - head**2 / before - tail**2 / after, floor)
    freedom = np.minimum(n - 3, FREEDOM * np.minimum(before, after))
    confirmed = _log_bayes_factor(left, within, before, after, freedom)
    shown = (np.arange(n - BEFORE_MIN, 0, -1) >= AFTER_MIN) & (np.sign(left) == np.sign(change))
    return whole, np.where(shown, confirmed, -np.inf)


def _highest(x: Floats, first: Ints) -> Floats:
    """Return the highest of the first so many values."""
    found: Floats = np.maximum.accumulate(x, axis=-1)[..., first - 1]
    return found


def _log_bayes_factor(
    change: Floats, within: Floats, before: Ints, after: Ints, freedom: Ints | int
) -> Floats:
    """Return ln BF for the difference of the means and the sum of squares within both segments."""
    size = before * after / (before + after)
    r, x = 1 + PRIOR * size, size * change**2 / within * (before + after - 2) / freedom  # x = t² / ν
    found: Floats = (freedom + 1) / 2 * np.log((1 + x) / (1 + x / r)) - np.log(r) / 2
    return found


def newest_changes(values: Floats) -> tuple[Cut, Cut] | None:
    """Return the change as of the newest value, tested with all values, and tested for confirmation.

    Each is at its most likely place. None if the series is too short.
    """
    if len(values) < BEFORE_MIN + AFTER_MIN:
        return None
    whole, without = log_bayes_factors(values)
    p_value = _p_value(whole)
    confirmed = Cut(BEFORE_MIN + int(np.argmax(whole[: 1 - AFTER_MIN])), max(p_value, _p_value(without)))
    return Cut(BEFORE_MIN + int(np.argmax(whole)), p_value), confirmed


def _p_value(log_factors: Floats) -> float:
    return math.exp(min(0.0, math.log(NIGHTS) - float(np.logaddexp.reduce(log_factors))))


@dataclass
class _Track:
    """A series while it grows. ``begin`` is the index of the first value after its last confirmed change."""

    values: list[float] = field(default_factory=list)
    begin: int = 0
    newest: tuple[Cut, Cut] | None = None
    confirmed: list[ConfirmedCut] = field(default_factory=list)
    awaiting: Cut | None = None

    def add(self, value: float) -> None:
        """Add a value and test for a change since ``begin``."""
        self.values.append(value)
        self.newest = newest_changes(np.array(self.values[self.begin :]))

    def judge(self, level: float) -> None:
        """Confirm the change, or let it await confirmation."""
        self.awaiting = None
        if self.newest is None:
            return
        found, confirmed = (Cut(self.begin + cut.at, cut.p_value) for cut in self.newest)
        if confirmed.p_value <= level:
            self.confirmed.append(ConfirmedCut(confirmed.at, confirmed.p_value, len(self.values) - 1))
            self.begin, self.newest = confirmed.at, None
        elif found.p_value <= level:
            self.awaiting = found


def detect_changes(values: Floats, confidence: float) -> list[SeriesChanges]:
    """Return the changes that tests after each night have confirmed, for each series.

    ``values`` is (series, nights), oldest first, with NaN for a missing value; indexes of the result count
    the values of a series. After a confirmed change a series starts anew. Holm's correction is over all
    series, on each night. So in 365 nights without a change the probability of any confirmed one is at most
    1 − confidence.
    """
    tracks = [_Track() for _ in values]
    levels = [1.0] * len(tracks)
    for night in values.T:
        new = [(i, float(value)) for i, value in enumerate(night) if not math.isnan(value)]
        for i, value in new:
            tracks[i].add(value)
        p_values = [track.newest[1].p_value if track.newest else None for track in tracks]
        levels = [1 - of for of in holm_confidences(p_values, confidence)]
        for i, _ in new:
            tracks[i].judge(levels[i])
    return [
        SeriesChanges(track.confirmed, track.awaiting, level)
        for track, level in zip(tracks, levels, strict=True)
    ]


@lru_cache(maxsize=256)
def values_min(level: float) -> int:
    """Return the number of values below which no change of any size can be confirmed at this level."""
    n = BEFORE_MIN + AFTER_MIN
    while _p_value_min(n) > level:
        n += 1
    return n


def _p_value_min(n: int) -> float:
    """Return the p-value of a change without noise, at the best place in n values."""
    steps = [np.arange(n) >= at for at in range(BEFORE_MIN, n - AFTER_MIN + 1)]
    found = [newest_changes(step.astype(float)) for step in steps]
    return min(confirmed.p_value for _, confirmed in filter(None, found))
