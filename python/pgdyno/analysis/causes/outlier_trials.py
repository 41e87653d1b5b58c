"""Outlier trials of an arm with their distance and unusual covariates.

No trial is dropped. The estimate without the most extreme block is reported for comparison.

A trial is compared with the other trials of its arm by the logarithm of its primary metric. The block's log
ratio to the baseline is compared, too, because noise common to all arms of a block cancels in it. It counts
for that one of the two trials that is more extreme in its own arm. A trial is an *outlier* if a score exceeds
the limit of ``statistics/outliers.py`` and its distance exceeds the study's margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.causes.covariates import Cause, causes, covariates
from pgdyno.analysis.comparison.paired_comparison import Comparison
from pgdyno.analysis.statistics.effect import percent_of, summarize
from pgdyno.analysis.statistics.outliers import OutlierScore, limit, outlier_scores
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import Arm, Trial, TrialStatus
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN
from pgdyno.units import PERCENT


@dataclass(frozen=True)
class Deviation:
    """Distance in percent, and the score with its limit. ``score`` is None with too few values."""

    percent: float
    score: float | None
    limit: float

    @property
    def share(self) -> float:
        """Score divided by its limit: an outlier is above 1."""
        return 0.0 if self.score is None else abs(self.score) / self.limit

    def is_outlier(self, margin: float) -> bool:
        """Return whether it is an outlier, and its distance exceeds the margin."""
        return self.share > 1 and abs(math.log1p(self.percent / PERCENT)) > math.log1p(margin)


@dataclass(frozen=True)
class OutlierTrial:
    """Comparison of one trial. ``within_arm`` is with the arm's other trials.

    ``ratio`` is of its block's ratio with those of other blocks, if it is attributed to this trial.
    ``causes`` are determined for outliers.
    """

    trial: int
    block: int
    arm: Arm
    value: float
    within_arm: Deviation
    ratio: Deviation | None
    is_outlier: bool
    causes: Sequence[Cause]

    @property
    def rank(self) -> float:
        """Sort key: larger for more extreme trials."""
        return max(self.within_arm.share, self.ratio.share if self.ratio else 0.0)


@dataclass(frozen=True)
class WithoutBlock:
    """Change of an arm without the block with the most extreme ratio, by Student's interval.

    ``all`` is the change with it, by the same method.
    """

    arm: Arm
    block: int
    all: Estimate
    without: Estimate


@dataclass(frozen=True)
class OutlierTrials:
    """Trials that count, the most extreme first."""

    trials: Sequence[OutlierTrial]
    without_block: Sequence[WithoutBlock]

    @property
    def outliers(self) -> list[OutlierTrial]:
        """The outliers."""
        return [trial for trial in self.trials if trial.is_outlier]


def find_outlier_trials(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    metric: Metric,
    telemetry: Mapping[int, TrialTelemetry],
    margin: float,
    cases: int = 1,
) -> OutlierTrials:
    """Return the outlier trials of a case. False alarms are limited over all ``cases`` (Bonferroni)."""
    counted = [trial for trial in trials if trial.status is TrialStatus.OK]
    known = covariates(counted, telemetry)
    groups = cases * (len(arms) + len(comparisons))
    values = {t.trial: value for t in counted if (value := metric.value(t, t.measured))}
    own: dict[int, Deviation] = {}
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
        is_outlier = any(of is not None and of.is_outlier(margin) for of in (own[trial.trial], of_block))
        slow = _is_less(trial, own[trial.trial], of_block, margin) == (metric.better is not Better.LESS)
        found.append(
            OutlierTrial(
                trial=trial.trial,
                block=trial.block,
                arm=arms[trial.arm],
                value=values[trial.trial],
                within_arm=own[trial.trial],
                ratio=of_block,
                is_outlier=is_outlier,
                causes=causes(trial.trial, others, known, slow=slow) if is_outlier else (),
            )
        )
    without = [left for comparison in comparisons if (left := _without(comparison)) is not None]
    return OutlierTrials(sorted(found, key=lambda one: (not one.is_outlier, -one.rank)), without)


def _is_less(trial: Trial, own: Deviation, of_block: Deviation | None, margin: float) -> bool:
    """Return whether the trial's value is too low.

    The ratio decides if it is an outlier, because the value also contains the noise common to the block's
    arms.
    """
    if of_block is not None and of_block.is_outlier(margin):
        return (of_block.percent < 0) == (trial.arm != 0)
    return own.percent < 0


def _measured(keys: Sequence[int], logs: Sequence[float], groups: int) -> dict[int, Deviation]:
    return {
        key: Deviation(percent_of(standing.off), standing.score, limit(len(logs), groups))
        for key, standing in zip(keys, outlier_scores(logs), strict=True)
    }


def _ratios(
    trials: Sequence[Trial], comparisons: Sequence[Comparison], own: Mapping[int, Deviation], groups: int
) -> dict[int, Deviation]:
    """Return the ratios by the trial to which they are attributed: the more extreme one in its own arm."""
    places = {(trial.block, trial.arm): trial.trial for trial in trials}
    found: dict[int, Deviation] = {}
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


def _without(comparison: Comparison) -> WithoutBlock | None:
    """Return the changes; None if too few blocks would remain for an interval."""
    effect = comparison.primary
    if effect is None or len(effect.log_ratios) <= VERDICT_BLOCKS_MIN:
        return None
    logs = effect.log_ratios
    by_block: dict[int, OutlierScore] = dict(zip(logs, outlier_scores(list(logs.values())), strict=True))
    farthest = max(by_block, key=lambda block: abs(by_block[block].off))
    confidence, better = effect.summary.confidence, effect.percent.better
    rest = [d for block, d in logs.items() if block != farthest]
    return WithoutBlock(
        arm=comparison.arm,
        block=farthest,
        all=effect.percent,
        without=summarize(rest, confidence, effect.summary.method).percent(better),
    )
