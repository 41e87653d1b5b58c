"""Stationarity of the measured part of an arm's trials: trends over trials, steps within one.

- Trend: the least-squares line of each trial gives the change of its rate over the window, in percent of its
  mean. Seconds depend on each other, trials do not: Student's t over the trials. In slices, the same is done
  for the logarithm of the ratio to the baseline, round by round, to test whether the effect itself changes.
  If it does, the comparison has no verdict: the effect depends on the length of the warm-up.
- Step: the self-normalized test of Shao and Zhang ("Testing for change points in time series", JASA 2010),
  over the means of ``PARTS`` parts. It needs no estimate of the autocorrelation.

Both have the level ``ALARM`` for the whole study, for any number of cases, arms and trials (Bonferroni over
the three tests and the cases, Holm within each). Significant changes below the margin are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.effect import student
from pgdyno.analysis.statistics.mser import mser_of_mean
from pgdyno.analysis.telemetry.throughput_series import ThroughputPoint
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import Arm, Trial, TrialStatus
from pgdyno.study.defaults import CONFIDENCE
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role

Floats = npt.NDArray[np.float64]

ALARM = 0.05
ALARM_OF_TRENDS, ALARM_OF_STEPS, ALARM_OF_EFFECTS = 0.025, 0.01, 0.015

SUSPICION = 0.1
"""Level of the trend of an effect at which a study does not stop on its verdict. A false alarm costs a block
or two. Without it, three in ten studies stopped too early if arms had time constants of 2 and 10 s."""

EXTENDED_BLOCKS_MIN = 3
"""Minimum number of blocks after an extension of the warm-up, to compare the effect with that before."""

VALUES_MIN = 4
"""Minimum number of values of a trial for a line."""

SLICES_MIN = 2
"""Minimum number of slices for the change of an effect. Its error is that between blocks, not of the line."""

PARTS = 20
PART_S_MIN, PART_VALUES_MIN = 5.0, 3
"""Minimum length of a part, much longer than the autocorrelation. Shorter windows are not tested."""

CRITICAL = (
    (0.1, 27.5),
    (0.05, 38.2),
    (0.02, 54.3),
    (0.01, 68.0),
    (0.005, 83.2),
    (0.002, 105.9),
    (0.001, 125.1),
    (0.0005, 145.5),
    (0.0002, 174.7),
    (0.0001, 201.9),
    (0.00005, 232.3),
    (0.00002, 273.4),
    (0.00001, 302.5),
)
"""p → quantile of the statistic for PARTS independent normal values, from three million simulations."""


@dataclass(frozen=True)
class Observed:
    """Rates of a trial over its window. ``at_s`` is the time since the window began."""

    at_s: Floats
    per_s: Floats

    @property
    def span_s(self) -> float:
        """Time from the first to the last interval, including both."""
        n = len(self.at_s)
        return float(self.at_s[-1] - self.at_s[0]) * n / (n - 1) if n > 1 else 0.0


@dataclass(frozen=True)
class Trend:
    """Mean change over the window in percent, over n trials. ``p_value`` is None for a single trial.

    ``truncation_s`` is the length of the beginning of the trials' mean that MSER excludes; None if it is half
    or more.
    """

    percent: Estimate
    p_value: float | None
    span_s: float
    truncation_s: float | None


@dataclass(frozen=True)
class LargestStep:
    """The largest step in a trial, at ``at_s`` since the window began."""

    trial: int
    block: int
    at_s: float
    percent: float
    p_value: float


def observed(trial: Trial, points: Sequence[ThroughputPoint]) -> Observed | None:
    """Return the rates by slice, or by interval if the trial has one slice. None with too few values."""
    by_slice = slice_rates(trial)
    if len(by_slice.at_s) >= VALUES_MIN:
        return by_slice
    measured = [point for point in points if point.role is Role.MEASURE]
    begun_s = next((piece.opened_s for piece in trial.measured if piece.counted_s > 0), 0.0)
    at, rates = [point.at_s - begun_s for point in measured], [point.per_s for point in measured]
    return Observed(np.array(at), np.array(rates)) if len(at) >= VALUES_MIN else None


def slice_rates(trial: Trial) -> Observed:
    """Return the rates by measured slice."""
    pieces = [piece for piece in trial.measured if piece.counted_s > 0]
    at = [(piece.counted_from_s + piece.closed_s) / 2 - pieces[0].opened_s for piece in pieces]
    rates = [sum(counts.executed for counts in piece.kinds.values()) / piece.counted_s for piece in pieces]
    return Observed(np.array(at), np.array(rates))


def counted_rates(
    trials: Sequence[Trial], points: Mapping[int, Sequence[ThroughputPoint]]
) -> dict[int, Observed]:
    """Return the rates of the trials that count, by trial."""
    ok = (trial for trial in trials if trial.status is TrialStatus.OK)
    found = ((trial.trial, observed(trial, points.get(trial.trial, ()))) for trial in ok)
    return {trial: one for trial, one in found if one is not None and float(one.per_s.mean()) > 0}


def trend_of_trials(trials: Sequence[Observed], confidence: float) -> Trend | None:
    """Return the trend of an arm's trials; None without trials."""
    if not trials:
        return None
    summary = student([change(one.at_s, one.per_s, one.span_s) for one in trials], confidence)
    low, high = (None if end is None else 100 * end for end in (summary.low, summary.high))
    return Trend(
        percent=Estimate(100 * summary.mean, "%", summary.n, Better.NEITHER, low, high, confidence),
        p_value=summary.p_value,
        span_s=float(np.mean([one.span_s for one in trials])),
        truncation_s=_truncation_s(trials),
    )


def change(at_s: Floats, values: Floats, span_s: float) -> float:
    """Return the change of the least-squares line over the span, as a share of the mean."""
    at = at_s - at_s.mean()
    return float(at @ values / (at @ at) * span_s / values.mean())


def effect_trend(arm: Sequence[Observed], baseline: Sequence[Observed], confidence: float) -> Trend | None:
    """Return the trend of the ratio to the baseline, over blocks with equal numbers of slices, or None."""
    changes, spans = [], []
    for mine, other in zip(arm, baseline, strict=True):
        if len(mine.per_s) != len(other.per_s) or len(mine.per_s) < SLICES_MIN:
            continue
        if min(mine.per_s.min(), other.per_s.min()) <= 0:
            continue
        at = (mine.at_s + other.at_s) / 2 - (mine.at_s + other.at_s).mean() / 2
        ratios = np.log(mine.per_s / other.per_s)
        changes.append(float(at @ ratios / (at @ at) * mine.span_s))
        spans.append(mine.span_s)
    if not changes:
        return None
    summary = student(changes, confidence)
    return Trend(summary.percent(Better.NEITHER), summary.p_value, float(np.mean(spans)), None)


def effect_trends(plan: Study, arms: Sequence[Arm], trials: Sequence[Trial]) -> list[Trend | None]:
    """Return the trend of the effect of each arm against the first, from blocks in which both trials count.

    None for the first arm, without blocks, and if the arms do not run together.
    """
    if not plan.schedule.is_together:
        return [None for _ in arms]
    ok: dict[int, dict[int, Observed]] = {arm.arm: {} for arm in arms}
    for trial in trials:
        if trial.status is TrialStatus.OK:
            ok[trial.arm][trial.block] = slice_rates(trial)
    found: list[Trend | None] = [None]
    for arm in arms[1:]:
        mine, other = ok[arm.arm], ok[arms[0].arm]
        both = sorted(mine.keys() & other.keys())
        found.append(
            effect_trend([mine[block] for block in both], [other[block] for block in both], plan.confidence)
        )
    return found


def trending(
    trends: Sequence[Trend | None], margin: float, cases: int = 1, alarm: float = ALARM_OF_EFFECTS
) -> list[bool]:
    """Return which effects of a case change significantly, by more than the margin over the window.

    ``alarm``: level for a study of that number of cases. At the default, effects that do not change are held
    back in 1.5% of the interim analyses, and at any of those of 10 blocks in at most 5% of studies.
    """
    flags = surely([None if of is None else of.p_value for of in trends], alarm / cases)
    return [
        of is not None and flag and abs(of.percent.value) > 100 * margin
        for of, flag in zip(trends, flags, strict=True)
    ]


@dataclass(frozen=True)
class WarmUpChange:
    """Mean log ratio to the baseline with the longest warm-up, and with the one before."""

    before: float
    after: float

    def exceeds(self, margin: float) -> bool:
        """Return whether the longer warm-up changed the effect by more than the margin.

        Without a test: the warm-up was extended because the effect depended on it, so the burden of proof is
        reversed. With noisy blocks this costs further extensions.
        """
        return abs(self.after - self.before) > math.log1p(margin)


def warm_up_changes(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[WarmUpChange | None]:
    """Return the change of the effect of each arm by the last extension of the warm-up.

    None for the first arm, without an extension, below EXTENDED_BLOCKS_MIN blocks since, and for an arm that
    cannot be the reason of the extension: one of several, without a trend before it.
    """
    by_block: dict[int, dict[int, Trial]] = {}
    for trial in trials:
        if trial.status in (TrialStatus.OK, TrialStatus.SUPERSEDED) and trial.driver.warm_up is not None:
            by_block.setdefault(trial.block, {})[trial.arm] = trial
    return [_warm_up_change(arm.arm, by_block, is_only=len(arms) == 2) for arm in arms]


def _warm_up_change(
    arm: int, by_block: Mapping[int, Mapping[int, Trial]], *, is_only: bool
) -> WarmUpChange | None:
    stages: dict[int, list[float]] = {}
    superseded: list[tuple[Observed, Observed]] = []
    for of_arm in by_block.values():
        if arm == 0 or not {0, arm} <= of_arm.keys():
            continue
        rates, other = slice_rates(of_arm[arm]), slice_rates(of_arm[0])
        warm_up = of_arm[arm].driver.warm_up
        if warm_up is None or not rates.per_s.sum() or not other.per_s.sum():
            continue
        ratio = math.log(float(rates.per_s.mean() / other.per_s.mean()))
        stages.setdefault(warm_up.times, []).append(ratio)
        if of_arm[arm].status is TrialStatus.SUPERSEDED:
            superseded.append((rates, other))
    if len(stages) < 2:
        return None
    *_, before, after = (stages[times] for times in sorted(stages))
    if len(after) < EXTENDED_BLOCKS_MIN:
        return None
    if not is_only:
        trend = effect_trend([mine for mine, _ in superseded], [base for _, base in superseded], CONFIDENCE)
        if trend is None or trend.p_value is None or trend.p_value > SUSPICION:
            return None
    return WarmUpChange(float(np.mean(before)), float(np.mean(after)))


def _truncation_s(trials: Sequence[Observed]) -> float | None:
    cut = mser_of_mean([one.per_s for one in trials])
    return None if cut is None else trials[0].span_s * cut / len(trials[0].per_s)


def step(trial: Trial, one: Observed) -> LargestStep | None:
    """Return the largest step; None if the window is too short."""
    if one.span_s < PARTS * PART_S_MIN or len(one.per_s) < PARTS * PART_VALUES_MIN:
        return None
    edges = np.linspace(0, len(one.per_s), PARTS + 1).round().astype(int)
    means = np.add.reduceat(one.per_s, edges[:-1]) / np.diff(edges)
    statistic, at = self_normalised(means)
    before, after = float(one.per_s[: edges[at]].mean()), float(one.per_s[edges[at] :].mean())
    percent = 100 * (after - before) / float(one.per_s.mean())
    at_s = float(one.at_s[edges[at] - 1] + one.at_s[edges[at]]) / 2
    return LargestStep(trial.trial, trial.block, at_s, percent, stationarity_p_value(statistic))


def self_normalised(values: Floats) -> tuple[float, int]:
    """Return the maximum of Shao's and Zhang's T(k)² / V(k), and k, the number of values before the step."""
    n = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    best, at = 0.0, n // 2
    for k in range(2, n - 1):
        t, u = np.arange(1, k + 1), np.arange(1, n - k + 1)
        before = sums[1 : k + 1] - t / k * sums[k]
        after = sums[k + 1 :] - sums[k] - u / (n - k) * (sums[n] - sums[k])
        # Sums from the end mirror those from k on and have the same variance.
        within = float(before @ before + after @ after) / n**2
        found = sums[k] ** 2 / n / within if within > 0 else (math.inf if sums[k] else 0.0)
        if found > best:
            best, at = found, k
    return best, at


def stationarity_p_value(statistic: float) -> float:
    """Return the p-value for values that are independent of time.

    Interpolated in the logarithm of p, and limited to the range of the table.
    """
    ps, limits = (np.array(of) for of in zip(*CRITICAL, strict=True))
    if statistic < limits[0]:
        return 1.0
    return float(np.exp(np.interp(statistic, limits, np.log(ps))))


def surely(p_values: Sequence[float | None], alarm: float) -> list[bool]:
    """Return which p-values are significant at a joint level (Holm, Scandinavian J. of Statistics 1979).

    None is a test that was not done.
    """
    asked = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    stand = [False] * len(p_values)
    for rank, (p, i) in enumerate(asked):
        if p > alarm / (len(asked) - rank):
            break
        stand[i] = True
    return stand
