"""Which events meet which dips, and which do so more often than chance would have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.causes.dips_of_trial import Dip, Floats, Rates, follows
from pgdyno.analysis.statistics.effect import holm_confidences
from pgdyno.analysis.telemetry.events import BACKGROUND, Event, Events, joined, overlapped
from pgdyno.evidence.records import Trial

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
