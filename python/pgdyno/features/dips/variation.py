"""Variation of the throughput of an arm: of intervals within a trial, and between trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pgdyno.analysis.case_findings import CaseResult, Findings
from pgdyno.analysis.finding_fields import ByArm, about
from pgdyno.features.dips.findings import POINTS_MIN, TrialRates, rates_of
from pgdyno.results.records import Trial, TrialStatus


@dataclass(frozen=True)
class ArmVariation:
    """Rates in transactions per second of all trials of an arm that count. CVs are SDs divided by means."""

    trials: int
    intervals: Annotated[int, about("Number of intervals of all trials.")]
    interval_s: Annotated[float, about("Median length of an interval in seconds.")]
    within_cv: Annotated[float, about("CV of intervals: root mean square of the trials' CVs.")]
    between_cv: Annotated[float | None, about("CV of the trials' rates; null with one trial.")]
    expected_cv: Annotated[float, about("CV between trials if their intervals were independent.")]
    trial_min_per_s: float
    trial_max_per_s: float
    interval_min_per_s: float
    interval_max_per_s: float


def find_variation(trials: Sequence[Trial], rates: Mapping[int, TrialRates]) -> dict[int, ArmVariation]:
    """Return the variation by arm, over trials that count. Arms with fewer than POINTS_MIN intervals, or
    without a transaction in a trial, are omitted.
    """
    found = {}
    for arm in sorted({trial.arm for trial in trials}):
        mine = [rates[t.trial] for t in trials if t.arm == arm and t.trial in rates]
        mine = [of for of in mine if len(of.n) > 1]
        if sum(len(of.n) for of in mine) >= POINTS_MIN and all(np.sum(of.n) > 0 for of in mine):
            found[arm] = _of_arm(mine)
    return found


def _of_arm(rates: Sequence[TrialRates]) -> ArmVariation:
    per_s = [of.per_s for of in rates]
    means = np.array([np.sum(of.n) / np.sum(of.to_s - of.from_s) for of in rates])
    cvs = np.array([np.std(one, ddof=1) / np.mean(one) for one in per_s])
    every = np.concatenate(per_s)
    within = math.sqrt(float(np.mean(cvs**2)))
    expected = math.sqrt(float(np.mean(cvs**2 / [len(one) for one in per_s])))
    between = float(np.std(means, ddof=1) / np.mean(means)) if len(means) > 1 else None
    return ArmVariation(
        trials=len(rates),
        intervals=len(every),
        interval_s=float(np.median(np.concatenate([of.to_s - of.from_s for of in rates]))),
        within_cv=within,
        between_cv=between,
        expected_cv=expected,
        trial_min_per_s=float(np.min(means)),
        trial_max_per_s=float(np.max(means)),
        interval_min_per_s=float(np.min(every)),
        interval_max_per_s=float(np.max(every)),
    )


def values_of_trial(rates: TrialRates) -> Iterator[tuple[str, str, float]]:
    """Yield the CV of the intervals of a trial, and their largest rate divided by the smallest.

    A value is omitted with fewer than two intervals or without a transaction, the ratio if the smallest rate
    is 0.
    """
    if len(rates.n) < 2 or not np.sum(rates.n):
        return
    per_s = rates.per_s
    yield "rate.cv", "%", 100 * float(np.std(per_s, ddof=1) / np.mean(per_s))
    if np.min(per_s) > 0:
        yield "rate.max_to_min", "1", float(np.max(per_s) / np.min(per_s))


def _find(findings: Findings) -> dict[int, ArmVariation]:
    rates = {trial: rates_of(executed) for trial, executed in findings.executed.items()}
    return find_variation([trial for trial in findings.trials if trial.status is TrialStatus.OK], rates)


RESULT = CaseResult(
    "variation",
    ByArm[ArmVariation],
    "Variation of the throughput by the index of the arm; not with too few intervals.",
    "steady_states",
    _find,
)


def variation_by_arm(findings: Findings) -> Mapping[int, ArmVariation]:
    """Return the variation of a case."""
    found: Mapping[int, ArmVariation] = findings.feature_findings.get(RESULT.name, {})
    return found
