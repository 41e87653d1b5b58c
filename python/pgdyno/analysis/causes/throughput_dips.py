"""Throughput dips, the events that coincide with them, and their cost.

A point of a trial's series (an interval of a second or so, as the driver streamed it) is low where it lies
below its baseline by more than SDS robust standard deviations, and by more than DEPTH_MIN of it. The baseline
is the median of the trial, in long windows that of a minute; the deviation is that of all points of the
arm, by their median absolute deviation, so that dips do not hide themselves. Low neighbours are one dip.

An event coincides with a dip where it reaches into its time. It is called the cause only where the events of
this kind coincide with the arm's dips more often than chance would have it: against the chance that a
piece of time as long, anywhere in the arm's measured time, meets one (the sum of such trials is Poisson's
binomial), with Holm's correction over the kinds. All other dips are unexplained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import robust_sd
from pgdyno.analysis.statistics.effect import holm_confidences
from pgdyno.analysis.telemetry.events import BACKGROUND, Event, Events, joined, overlapped
from pgdyno.results.records import Executed, Trial

Floats = npt.NDArray[np.float64]

RUNNING_POINTS = 61
"""In a series of twice as many points and more, the baseline leads from the median of so many to the next."""

SHORT_SHARE = 0.5
"""Of the usual length: a shorter interval, at the end of a slice, is no point."""


@dataclass(frozen=True)
class Rates:
    """The measured points of one trial."""

    from_s: Floats
    to_s: Floats
    n: Floats

    @property
    def per_s(self) -> Floats:
        """Transactions carried out per second."""
        return self.n / (self.to_s - self.from_s)


@dataclass(frozen=True)
class Dip:
    """``depth``: the share by which the throughput was lower, over all of it; ``lost``: transactions."""

    trial: int
    first: int  # its first point
    points: int
    from_s: float
    to_s: float
    depth: float
    lost: float
    causes: Sequence[Event] = ()


def rates_of(executed: Executed) -> Rates:
    """The measured ones, without those that were cut short."""
    took_s = executed.to_s - executed.from_s
    kept = executed.measured & (took_s > 0)
    if kept.any():
        kept &= took_s >= SHORT_SHARE * np.median(took_s[kept])
    return Rates(executed.from_s[kept], executed.to_s[kept], executed.n[kept])


def baseline(per_s: Floats) -> Floats:
    """What is usual at each point."""
    parts = len(per_s) // RUNNING_POINTS
    if parts < 2:
        return np.full(len(per_s), np.median(per_s))
    whole = per_s[: parts * RUNNING_POINTS].reshape(parts, RUNNING_POINTS)
    middles = (np.arange(parts) + 0.5) * RUNNING_POINTS - 0.5
    return np.interp(np.arange(len(per_s)), middles, np.median(whole, axis=1))


def relative(per_s: Floats, usual: Floats) -> Floats:
    """By which share each point lies above what is usual, or below it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(usual > 0, per_s / usual - 1, 0.0)


def follows(rates: Rates) -> npt.NDArray[np.bool_]:
    """Whether a point follows the one before it at once, or after another arm's slice."""
    took_s = rates.to_s - rates.from_s
    return np.concatenate([[False], rates.from_s[1:] - rates.to_s[:-1] < SHORT_SHARE * took_s[1:]])


def runs(low: npt.NDArray[np.bool_], follows: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and behind the last of each row of neighbours that are true."""
    begins = low & ~(follows & np.concatenate([[False], low[:-1]]))
    firsts = np.flatnonzero(begins)
    ends = [int(np.argmin(low[i:] & np.concatenate([[True], ~begins[i + 1 :]]))) for i in firsts]
    return [
        (int(first), int(first) + length if length else len(low))
        for first, length in zip(firsts, ends, strict=True)
    ]


def dips_in(trial: int, rates: Rates, usual: Floats, low: npt.NDArray[np.bool_]) -> list[Dip]:
    """The rows of low points."""
    found = []
    for first, behind in runs(low, follows(rates)):
        own = slice(first, behind)
        expected = float(np.sum(usual[own] * (rates.to_s[own] - rates.from_s[own])))
        lost = expected - float(np.sum(rates.n[own]))
        from_s, to_s = float(rates.from_s[first]), float(rates.to_s[behind - 1])
        found.append(Dip(trial, first, behind - first, from_s, to_s, lost / expected, lost))
    return found


Ints = npt.NDArray[np.intp]

ALPHA = 0.05
"""The chance that a kind of event is called a cause although it meets dips by chance only."""


@dataclass(frozen=True)
class Coincidence:
    """One kind of event: with how many of the dips it coincided, and with how many it would by chance."""

    event: Event
    dips: int
    by_chance: float
    p_value: float
    is_cause: bool


def with_other_arms(trials: Sequence[Trial], events: Mapping[int, Events]) -> dict[int, Events]:
    """Beside each trial's own events the background work of the servers that were up with it: those of its
    block and run, which have the same epoch.
    """
    together: dict[tuple[int, float | None], list[int]] = {}
    for trial in trials:
        together.setdefault((trial.block, trial.epoch_unix_s), []).append(trial.trial)
    found: dict[int, Events] = {}
    for up in together.values():
        for own in up:
            others = [
                events[other][event]
                for other in up
                if other != own and other in events
                for event in BACKGROUND
                if event in events[other]
            ]
            happened = dict(events.get(own, {}))
            if others:
                spans = np.concatenate(others)
                happened[Event.OTHER_ARM] = joined(_merged(spans[np.argsort(spans[:, 0])]))
            found[own] = happened
    return found


def _merged(spans: Floats) -> Floats:
    """Ends that never fall, so that what lies within another span ends with it."""
    return np.column_stack([spans[:, 0], np.maximum.accumulate(spans[:, 1])])


def reach(rates: Rates, first: Ints, last: Ints) -> tuple[Floats, Floats]:
    """From when to when, in seconds, what is told of the points ``first`` .. ``last`` may have its cause.

    That is from the point before on, if time goes on from it: what begins within a point makes that one
    slower by a part, and the next ones wholly.
    """
    before = rates.from_s[np.maximum(first - 1, 0)]
    return np.where(follows(rates)[first], before, rates.from_s[first]), rates.to_s[last]


def meets(dip: Dip, rates: Rates, events: Events) -> list[Event]:
    """The kinds of events that reach into its time."""
    place = reach(rates, np.array([dip.first]), np.array([dip.first + dip.points - 1]))
    return [event for event in Event if event in events and overlapped(events[event], *place)[0]]


def coincidences_of(
    dips: Sequence[Dip], rates: Mapping[int, Rates], events: Mapping[int, Events]
) -> list[Coincidence]:
    """Of each kind of event that meets a dip. ``rates`` and ``events``: by trial of the arm."""
    met = [meets(dip, rates[dip.trial], events[dip.trial]) for dip in dips]
    found = []
    for event in Event:
        k = sum(event in of for of in met)
        if k:
            shares = {points: _chance(event, points, rates, events) for points in {d.points for d in dips}}
            chances = [shares[dip.points] for dip in dips]
            found.append(Coincidence(event, k, sum(chances), at_least(k, chances), is_cause=False))
    levels = holm_confidences([one.p_value for one in found], 1 - ALPHA)
    return [replace(one, is_cause=one.p_value <= 1 - level) for one, level in zip(found, levels, strict=True)]


def _chance(event: Event, points: int, rates: Mapping[int, Rates], events: Mapping[int, Events]) -> float:
    """Of all rows of so many points of the arm, the share that such an event reaches into."""
    met = every = 0
    for trial, of in rates.items():
        first = np.arange(max(1, len(of.n) - points + 1))
        last = np.minimum(first + points - 1, len(of.n) - 1)
        every += len(first)
        if event in events[trial]:
            met += int(np.sum(overlapped(events[trial][event], *reach(of, first, last))))
    return met / every


def at_least(k: int, chances: Sequence[float]) -> float:
    """The chance of k or more successes in trials of these chances: Poisson's binomial, by convolution."""
    of = np.array([1.0])
    for chance in chances:
        of = np.convolve(of, [1 - chance, chance])
    return float(min(1.0, np.sum(of[k:])))


SDS = 5.0
"""Of normal noise one point in three million is lower; ``tests/unit/test_analysis_dips.py`` tries others."""

DEPTH_MIN = 0.10
"""Of the baseline: less is not called a dip, however steady the rest is."""

DEPTH_ALWAYS = 0.8
"""A fifth of the baseline is a dip, however noisy the rest is: a stall must not hide behind that."""

POINTS_MIN = 20
"""Of an arm: fewer do not tell how much it varies."""


@dataclass(frozen=True)
class ArmDips:
    """Of all ``trials`` of an arm that count. ``peaks``: how often as much above the baseline as a dip lies
    below it, which tells what chance makes of this noise.
    """

    dips: Sequence[Dip]
    coincidences: Sequence[Coincidence]
    peaks: int
    points: int
    measured_s: float
    transactions: float
    trials: Sequence[int] = ()

    @property
    def unexplained(self) -> list[Dip]:
        """Those that no cause is known of."""
        return [dip for dip in self.dips if not dip.causes]

    def of(self, event: Event) -> list[Dip]:
        """Those that this is a cause of."""
        return [dip for dip in self.dips if event in dip.causes]

    def share_of_time(self, dips: Iterable[Dip]) -> float:
        """Of the measured time."""
        return sum(dip.to_s - dip.from_s for dip in dips) / self.measured_s

    def share_of_transactions(self, dips: Iterable[Dip]) -> float:
        """What would have been done beside, of what was done."""
        return sum(dip.lost for dip in dips) / self.transactions if self.transactions else 0.0


def find_dips(
    trials: Sequence[Trial], rates: Mapping[int, Rates], events: Mapping[int, Events]
) -> dict[int, ArmDips]:
    """By arm, of its trials that count; nothing of an arm with too few points. ``events``: by trial."""
    happened = with_other_arms(trials, events)
    found = {}
    for arm in sorted({trial.arm for trial in trials}):
        mine = [t.trial for t in trials if t.arm == arm and t.trial in rates and len(rates[t.trial].n)]
        if sum(len(rates[trial].n) for trial in mine) >= POINTS_MIN:
            found[arm] = _of_arm({t: rates[t] for t in mine}, {t: happened.get(t, {}) for t in mine})
    return found


def _of_arm(rates: Mapping[int, Rates], events: Mapping[int, Events]) -> ArmDips:
    baselines = {trial: baseline(of.per_s) for trial, of in rates.items()}
    apart = {trial: relative(rates[trial].per_s, baselines[trial]) for trial in rates}
    every = np.concatenate(list(apart.values()))
    sd = float(robust_sd(every))
    limit = min(max(SDS * sd, DEPTH_MIN), DEPTH_ALWAYS)
    dips = [
        dip
        for trial, of in rates.items()
        for dip in dips_in(trial, of, baselines[trial], apart[trial] < -limit)
    ]
    coincidences = coincidences_of(dips, rates, events)
    causes = {one.event for one in coincidences if one.is_cause}
    return ArmDips(
        dips=[
            replace(
                dip,
                causes=[
                    event for event in meets(dip, rates[dip.trial], events[dip.trial]) if event in causes
                ],
            )
            for dip in dips
        ],
        coincidences=coincidences,
        peaks=sum(len(runs(of > limit, follows(rates[trial]))) for trial, of in apart.items()),
        points=len(every),
        measured_s=sum(float(np.sum(of.to_s - of.from_s)) for of in rates.values()),
        transactions=sum(float(np.sum(of.n)) for of in rates.values()),
        trials=list(rates),
    )
