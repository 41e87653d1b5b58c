"""Dips of the throughput, what happened at the time, and what they cost.

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

from pgdyno.analysis.causes.coincidence import Coincidence, coincidences_of, meets, with_other_arms
from pgdyno.analysis.causes.dips_of_trial import Dip, Rates, baseline, dips_in, follows, relative, runs
from pgdyno.analysis.statistics.robust import robust_sd
from pgdyno.analysis.telemetry.events import Event, Events
from pgdyno.evidence.records import Trial

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
