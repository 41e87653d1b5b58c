"""Outlier trials of an arm: how far off they are, and their unusual covariates.

Nothing is dropped for it: what the estimate would be without the block that stands out most is told beside.

A trial is held against the other trials of its arm by the logarithm of its primary metric; and, as noise
that hits all arms of a block cancels in the ratio, by the block's log ratio to the baseline, too, which
counts for that one of the two trials that is farther off in its own arm. It is *named* where a score exceeds
the limit of ``statistics/outliers.py`` and the distance is larger than the study's margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.causes.covariates import Cause, causes, covariates
from pgdyno.analysis.comparison.paired_comparison import Comparison
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.statistics.effect import percent_of, student
from pgdyno.analysis.statistics.outliers import Standing, limit, standings
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.analysis.telemetry.trial_telemetry import Telemetry
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import Arm, Trial, TrialStatus
from pgdyno.units import PERCENT


@dataclass(frozen=True)
class Measured:
    """How far off, in percent, and the score with its limit. ``score`` None: too few, or all alike."""

    off_percent: float
    score: float | None
    limit: float

    @property
    def share(self) -> float:
        """Of the limit: 1 and more stands out."""
        return 0.0 if self.score is None else abs(self.score) / self.limit

    def stands_out(self, margin: float) -> bool:
        """By its score, and by so much that it matters."""
        return self.share > 1 and abs(math.log1p(self.off_percent / PERCENT)) > math.log1p(margin)


@dataclass(frozen=True)
class OutlierTrial:
    """Of one trial. ``own``: against its arm's other trials; ``ratio``: of its block's ratio against those of
    the other blocks, where this trial answers for it. ``causes`` are looked for where it is ``named``.
    """

    trial: int
    block: int
    arm: Arm
    value: float
    own: Measured
    ratio: Measured | None
    named: bool
    causes: Sequence[Cause]

    @property
    def rank(self) -> float:
        """The larger, the more it stands out."""
        return max(self.own.share, self.ratio.share if self.ratio else 0.0)


@dataclass(frozen=True)
class Without:
    """The change of an arm without the block whose ratio is the farthest off, by Student's interval; ``all``:
    with it, by the same.
    """

    arm: Arm
    block: int
    all: Estimate
    without: Estimate


@dataclass(frozen=True)
class OutlierTrials:
    """``trials``: those that count, the most anomalous first."""

    trials: Sequence[OutlierTrial]
    without: Sequence[Without]

    @property
    def named(self) -> list[OutlierTrial]:
        """Those that stand out."""
        return [trial for trial in self.trials if trial.named]


def find_outlier_trials(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    metric: Metric,
    telemetry: Mapping[int, Telemetry],
    margin: float,
    cases: int = 1,
) -> OutlierTrials:
    """Of one of so many cases: the false alarms of all of them add up to no more than one's (Bonferroni)."""
    counted = [trial for trial in trials if trial.status is TrialStatus.OK]
    known = covariates(counted, telemetry)
    groups = cases * (len(arms) + len(comparisons))
    values = {t.trial: value for t in counted if (value := metric.value(t, t.measured))}
    own: dict[int, Measured] = {}
    for arm in arms:
        mine = [trial.trial for trial in counted if trial.arm == arm.arm and trial.trial in values]
        own |= _measured(mine, [math.log(values[trial]) for trial in mine], groups)
    ratios = _ratios(counted, comparisons, own, groups)
    found = []
    for trial in counted:
        if trial.trial not in own:
            continue
        others = [of.trial for of in counted if of.arm == trial.arm and of.trial != trial.trial]
        of_block = ratios.get(trial.trial)
        named = any(of is not None and of.stands_out(margin) for of in (own[trial.trial], of_block))
        slow = _is_less(trial, own[trial.trial], of_block, margin) == (metric.better is not Better.LESS)
        found.append(
            OutlierTrial(
                trial=trial.trial,
                block=trial.block,
                arm=arms[trial.arm],
                value=values[trial.trial],
                own=own[trial.trial],
                ratio=of_block,
                named=named,
                causes=causes(trial.trial, others, known, slow=slow) if named else (),
            )
        )
    without = [left for comparison in comparisons if (left := _without(comparison)) is not None]
    return OutlierTrials(sorted(found, key=lambda one: (not one.named, -one.rank)), without)


def _is_less(trial: Trial, own: Measured, of_block: Measured | None, margin: float) -> bool:
    """Whether its value is lower than it should be: by the ratio where that stands out, for the value itself
    holds the noise that all arms of the block had.
    """
    if of_block is not None and of_block.stands_out(margin):
        return (of_block.off_percent < 0) == (trial.arm != 0)
    return own.off_percent < 0


def _measured(keys: Sequence[int], logs: Sequence[float], groups: int) -> dict[int, Measured]:
    return {
        key: Measured(percent_of(standing.off), standing.score, limit(len(logs), groups))
        for key, standing in zip(keys, standings(logs), strict=True)
    }


def _ratios(
    trials: Sequence[Trial], comparisons: Sequence[Comparison], own: Mapping[int, Measured], groups: int
) -> dict[int, Measured]:
    """By the trial that answers for it: the one that is farther off, in its own arm's spread."""
    places = {(trial.block, trial.arm): trial.trial for trial in trials}
    found: dict[int, Measured] = {}
    for comparison in comparisons:
        if comparison.primary is None:
            continue
        logs = comparison.primary.log_ratios
        for block, measured in _measured(list(logs), list(logs.values()), groups).items():
            pair = [places.get((block, arm)) for arm in (0, comparison.arm.arm)]
            here = [trial for trial in pair if trial is not None and trial in own]
            if not here:
                continue
            answers = max(here, key=lambda trial: own[trial].share)
            if answers not in found or found[answers].share < measured.share:
                found[answers] = measured
    return found


def _without(comparison: Comparison) -> Without | None:
    """None where too few blocks would be left for an interval."""
    effect = comparison.primary
    if effect is None or len(effect.log_ratios) <= BLOCKS_MIN:
        return None
    logs = effect.log_ratios
    by_block: dict[int, Standing] = dict(zip(logs, standings(list(logs.values())), strict=True))
    farthest = max(by_block, key=lambda block: abs(by_block[block].off))
    confidence, better = effect.spread.confidence, effect.percent.better
    rest = [d for block, d in logs.items() if block != farthest]
    return Without(
        arm=comparison.arm,
        block=farthest,
        all=student(list(logs.values()), confidence).percent(better),
        without=student(rest, confidence).percent(better),
    )
