"""Steady state: warm-ups, stationarity of the measured windows, drift, checkpoint cycles.

- Number of complete checkpoint cycles in the windows of an arm.
- Stationarity of the measured part of an arm's trials: trends over trials, steps within one.
- Drift within long windows: slopes per hour of rate, WAL, ages and sizes.
- Steady state of a case: warm-ups, windows, checkpoint cycles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.finding_fields import ArmName, Hidden, about
from pgdyno.analysis.statistics.intervals import binomial_at_most, p_value_of_means, percent_of, student
from pgdyno.analysis.statistics.series import (
    SPAN_S_MIN,
    Slope,
    fit_exponential,
    growth,
    log_shortfall,
    mean_slope,
    moments,
    mser_of_mean,
    time_constants,
    trend,
)
from pgdyno.analysis.telemetry.samples import SERVER, ThroughputPoint
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.caveats import Caveat, Parameter
from pgdyno.results.records import Arm, SampleSeries, Slice, Trial, TrialStatus, WarmUpEnd
from pgdyno.study.defaults import CONFIDENCE, Schedule
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.units import (
    PER_MIB,
    S_PER_HOUR,
    Better,
    Estimate,
    format_duration,
    group_digits,
    signed,
    significant,
)

# ----------------------------------------------------------------------
# Number of complete checkpoint cycles in the windows of an arm.
#
# The cost of writing varies over a cycle. After the start of a checkpoint, the first change of each page
# writes a full-page image into the WAL. The checkpoint writes pages for most of the time until the next one.
# A window without a complete cycle shows only a part of it.
# ----------------------------------------------------------------------

START_COUNTERS = ("num_timed", "num_requested")

WAL_MIN_MIB = 1.0
"""Minimum WAL of a window: with less there is nothing to checkpoint."""

CYCLES_REQUESTED = 1
"""Complete cycles per window, if the study sets no number."""


@dataclass(frozen=True)
class Cycles:
    """Checkpoints in an arm's trials with known counts.

    ``checkpoints`` is the mean number started per window, ``windows_without`` the number of windows without
    one. ``complete_cycles`` is the minimum per window, ``cycles_requested`` the requested number.
    ``has_wal``: a window has enough WAL for a checkpoint, or its WAL is unknown.
    """

    trials: int
    checkpoints: float
    windows_without: int
    complete_cycles: int
    cycles_requested: int
    has_wal: bool


def checkpoint_starts(series: SampleSeries) -> list[float]:
    """Return the times at which a checkpoint was first seen, in seconds since the trial's epoch."""
    grew = np.logical_or.reduce([np.diff(series.column(name)) > 0 for name in START_COUNTERS])
    at_s: list[float] = series.points[1:, 0][grew].tolist()
    return at_s


def cycles_of_arm(
    plan: Study,
    trials: Sequence[Trial],
    series: Mapping[int, SampleSeries],
    telemetry: Mapping[int, TrialTelemetry],
) -> Cycles | None:
    """Return the cycles of an arm; None if the checkpoints of no trial are known."""
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    counts = [
        (trial, n)
        for trial in ok
        if (n := _checkpoints(telemetry.get(trial.trial), series.get(trial.trial))) is not None
    ]
    if not counts:
        return None
    wal_mib = [
        of.values["wal.bytes"] for trial, _ in counts if "wal.bytes" in (of := telemetry[trial.trial]).values
    ]
    return Cycles(
        trials=len(counts),
        checkpoints=sum(n for _, n in counts) / len(counts),
        windows_without=sum(n == 0 for _, n in counts),
        complete_cycles=min(_whole(trial, n) for trial, n in counts),
        cycles_requested=CYCLES_REQUESTED if plan.checkpoints is None else plan.checkpoints,
        has_wal=not wal_mib or max(wal_mib) >= WAL_MIN_MIB,
    )


def cycle_caveats(plan: Study, name: str, found: Cycles) -> list[Caveat]:
    """Return caveats of the arm with that name."""
    if not found.has_wal:
        return []
    if 2 * found.windows_without > found.trials:
        return [Caveat.of("window-without-checkpoint", arm=name)]
    if found.complete_cycles >= found.cycles_requested or plan.schedule is Schedule.SLICES:
        return []  # for slices, checkpoint-in-slices reports it for each block
    return [
        Caveat.of(
            "few-checkpoint-cycles",
            arm=name,
            cycles=found.complete_cycles,
            wanted=found.cycles_requested,
            checkpoints=significant(found.checkpoints, 3),
        )
    ]


def _whole(trial: Trial, checkpoints: int) -> int:
    """Return the complete cycles: a window that begins with a checkpoint begins with a cycle."""
    begins_with_one = trial.driver.ordered_checkpoint_s is not None
    return checkpoints if begins_with_one else max(0, checkpoints - 1)


def _checkpoints(telemetry: TrialTelemetry | None, series: SampleSeries | None) -> int | None:
    """Return the number of checkpoints, by the counters at both ends of the window, else by its samples."""
    counters = (
        []
        if telemetry is None
        else [telemetry.values.get(f"checkpoints.{how}") for how in ("timed", "requested")]
    )
    known = [n for n in counters if n is not None]
    if known:
        return round(sum(known))
    if series is None or not any(name in series.columns for name in START_COUNTERS):
        return None
    return len(checkpoint_starts(series))


# ----------------------------------------------------------------------
# Stationarity of the measured part of an arm's trials: trends over trials, steps within one.
#
# - Trend: the least-squares line of each trial gives the change of its rate over the window, in percent of
#   its mean. Seconds depend on each other, trials do not: Student's t over the trials. In slices, the same is
#   done for the logarithm of the ratio to the baseline, round by round, to test whether the effect itself
#   changes. If it does, the comparison has no verdict: the effect depends on the length of the warm-up.
# - Step: the self-normalized test of Shao and Zhang ("Testing for change points in time series", JASA 2010),
#   over the means of ``PARTS`` parts. It needs no estimate of the autocorrelation.
#
# Both have the level ``ALARM`` for the whole study, for any number of cases, arms and trials (Bonferroni over
# the three tests and the cases, Holm within each). Significant changes below the margin are ignored.
# ----------------------------------------------------------------------

Floats = npt.NDArray[np.float64]

ALARM = 0.05
ALARM_OF_TRENDS, ALARM_OF_STEPS, ALARM_OF_EFFECTS = 0.025, 0.01, 0.015

BEYOND_TRENDS, BEYOND_RATIO = 10.0, 10.0
"""Size of an effect, in changes over the window and as a ratio, from which a trend does not hold back the
verdict. The rest of an exponential change with a time constant of ten windows is ten times what the window
shows. Smaller effects than this ratio may end near the limit of a gate."""

SUSPICION = 0.1
"""Level of the trend of an effect at which a study does not stop on its verdict. A false alarm costs a block
or two. Without it, three in ten studies stopped too early if arms had time constants of 2 and 10 s."""

ALARM_TO_EXTEND = 0.001
"""Level of the trend of an effect at which the warm-up is extended, which discards all blocks so far. At
ALARM_OF_EFFECTS, tested after every block, one study in ten of steady arms lost them in 20 min."""

SUSPICION_OF_RISES, ALARM_OF_RISES = 0.3, 0.001
"""Levels at which the rates of the arms change from the start of the warm-up. At the first, a study does not
stop on a verdict that differs at the final rates. It is also that of one arm's own rise. At 0.1, a steady arm
beside one with 30 s and a shortfall of 20% gave 27% wrong verdicts instead of 17%, and 5% were found half a
minute sooner. At the second, there is no such verdict, and a large bias extends the warm-up. Slow warm-ups
are far more significant after a few blocks, steady arms hardly ever. Noise that both share is too
significant, but biases no ratio."""

RISE_BLOCKS_MIN = 3
"""Minimum number of blocks for a test of the rises. A warm-up extended early discards few blocks."""

BIAS_SHARE_MAX, BIAS_ERRORS_MIN = 0.5, 0.3
"""A bias above these shares of the margin and of its error is large. An extrapolation corrects smaller
ones."""

KNOWN_CONSTANT_SHARE_MAX = 0.4
"""Maximum time constant of a rise whose end is known, as a share of the observed load."""

BIAS_SHARE_LEFT = 0.25
"""Share of the margin that may be left after an extended warm-up."""

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
    truncation_s: Annotated[float | None, about("Length of the beginning that MSER excludes.")]
    is_beyond: Hidden[bool] = False  # an effect that no such change would reverse


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
    return Observed(np.array(at), np.array([_rate_of(piece) for piece in pieces]))


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
    changes, effects, spans = [], [], []
    for mine, other in zip(arm, baseline, strict=True):
        if len(mine.per_s) != len(other.per_s) or len(mine.per_s) < SLICES_MIN:
            continue
        if min(mine.per_s.min(), other.per_s.min()) <= 0:
            continue
        at = (mine.at_s + other.at_s) / 2 - (mine.at_s + other.at_s).mean() / 2
        ratios = np.log(mine.per_s / other.per_s)
        changes.append(float(at @ ratios / (at @ at) * mine.span_s))
        effects.append(float(ratios.mean()))
        spans.append(mine.span_s)
    if not changes:
        return None
    summary, effect = student(changes, confidence), student(effects, confidence)
    largest, least = ([abs(end or 0.0) for end in (of.low, of.high)] for of in (summary, effect))
    far = max(BEYOND_TRENDS * max(largest), math.log(BEYOND_RATIO))
    is_beyond = (effect.low or 0.0) * (effect.high or 0.0) > 0 and min(least) > far
    return Trend(summary.percent(Better.NEITHER), summary.p_value, float(np.mean(spans)), None, is_beyond)


def effect_trends(plan: Study, arms: Sequence[Arm], trials: Sequence[Trial]) -> list[Trend | None]:
    """Return the trend of the effect of each arm against the first, from blocks in which both trials count.

    None for the first arm, without blocks, and if the arms do not run together.
    """
    if not plan.schedule.is_together:
        return [None for _ in arms]
    rates = [[list(map(slice_rates, of)) for of in both] for both in _paired(arms, trials)]
    return [None, *(effect_trend(mine, other, plan.confidence) for mine, other in rates)]


def _paired(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[tuple[list[Trial], list[Trial]]]:
    """Return the trials of each arm after the first, and of the first, from blocks in which both count."""
    ok: dict[int, dict[int, Trial]] = {arm.arm: {} for arm in arms}
    for trial in trials:
        if trial.status is TrialStatus.OK and any(piece.executed for piece in trial.measured):
            ok[trial.arm][trial.block] = trial
    first, *others = ok.values()
    shared = [(of, sorted(of.keys() & first.keys())) for of in others]
    return [([of[block] for block in both], [first[block] for block in both]) for of, both in shared]


def trending(
    trends: Sequence[Trend | None], margin: float, cases: int = 1, alarm: float = ALARM_OF_EFFECTS
) -> list[bool]:
    """Return which effects of a case change significantly, by more than the margin over the window.

    An effect far beyond its change is not among them: no longer warm-up would reverse it.

    ``alarm``: level for a study of that number of cases. At the default, effects that do not change are held
    back in 1.5% of the interim analyses, and at any of those of 10 blocks in at most 5% of studies.
    """
    flags = surely([None if of is None else of.p_value for of in trends], alarm / cases)
    return [
        of is not None and flag and abs(of.percent.value) > 100 * margin and not of.is_beyond
        for of, flag in zip(trends, flags, strict=True)
    ]


@dataclass(frozen=True)
class Rise:
    """Expected rise of one arm: shortfall at the start of the warm-up as a share of its final rate."""

    share: float
    constant_s: float

    def log_shortfall(self, from_s: float, length_s: float) -> float:
        """Return the logarithm of the mean rate over a length of its load, as a share of the final rate."""
        decay = math.exp(-from_s / self.constant_s) * -math.expm1(-length_s / self.constant_s)
        return float(log_shortfall(np.array(self.share * decay * self.constant_s / length_s)))


@dataclass(frozen=True)
class WarmUpBias:
    """Bias of an effect, because the arms have not reached their final rates in the windows.

    ``log_ratio`` is the effect in the windows minus that at the final rates, with its standard error.
    ``p_value``: of neither arm rising. The share of an arm that does not rise, beside one that does, is 0.
    ``window_s``: load of a window; ``load_s``: with its warm-up.
    """

    log_ratio: float
    error: float
    baseline: Rise
    arm: Rise
    p_value: float
    window_s: float
    load_s: float

    def exceeds(self, margin: float) -> bool:
        """Return whether a rise is significant and the bias larger than BIAS_SHARE_MAX of the margin.

        A bias far below its error is no reason for a longer warm-up.
        """
        limit = max(BIAS_SHARE_MAX * math.log1p(margin), BIAS_ERRORS_MIN * self.error)
        return self.p_value <= ALARM_OF_RISES and abs(self.log_ratio) > limit

    @property
    def is_known(self) -> bool:
        """False if a rise is slow compared with the observed load, which shows only its beginning."""
        longest_s = KNOWN_CONSTANT_SHARE_MAX * self.load_s
        return all(rise.constant_s <= longest_s for rise in (self.baseline, self.arm) if rise.share)

    def limit(self, sign: float) -> float:
        """Return how much of an effect in this direction the bias can explain, as a log ratio.

        It is the bias plus as much again, or plus two standard errors. If it is not known, it is twice the
        sum of the shortfalls of both arms, plus two standard errors.
        """
        if not self.is_known:
            rises, at_s = (self.baseline, self.arm), self.load_s - self.window_s
            return 2 * (self.error + sum(abs(rise.log_shortfall(at_s, self.window_s)) for rise in rises))
        bias = sign * self.log_ratio
        return bias + max(abs(bias), 2 * self.error)

    @property
    def text(self) -> str:
        """The bias in percent, or its limit if it is not known."""
        if self.is_known:
            return signed(percent_of(self.log_ratio), 1, "%")
        return f"up to {significant(percent_of(self.limit(1)), 2)}%"

    def is_precise(self, margin: float) -> bool:
        """Return whether its error is at most BIAS_SHARE_MAX of the margin."""
        return self.error <= BIAS_SHARE_MAX * math.log1p(margin)

    def is_small_after(self, warm_up_s: float, margin: float) -> bool:
        """Return whether a warm-up of this length is expected to leave little of it."""
        mine, other = (rise.log_shortfall(warm_up_s, self.window_s) for rise in (self.arm, self.baseline))
        return abs(mine - other) <= BIAS_SHARE_LEFT * math.log1p(margin)


def warm_up_biases(plan: Study, arms: Sequence[Arm], trials: Sequence[Trial]) -> list[WarmUpBias | None]:
    """Return the bias of the effect of each arm against the first, from blocks in which both trials count.

    None for the first arm, with too few blocks, if the rates do not change significantly, if the arms do not
    run together, and if their rate is fixed.
    """
    if not plan.schedule.is_together or plan.load_is_fixed or plan.searches_capacity:
        return [None for _ in arms]
    return [None, *(_warm_up_bias(*both) for both in _paired(arms, trials))]


def _warm_up_bias(arm: Sequence[Trial], baseline: Sequence[Trial]) -> WarmUpBias | None:
    if len(baseline) < RISE_BLOCKS_MIN:
        return None
    other, mine = (_fit_rise(of) for of in (baseline, arm))
    if other is None or mine is None:
        return None
    p_value = p_value_of_means(other.amplitudes, mine.amplitudes)
    if p_value > SUSPICION_OF_RISES:
        return None
    if other.is_significant or mine.is_significant:  # without the noise of a steady arm
        other, mine = (fit if fit.is_significant else fit.without_rise for fit in (other, mine))
    return WarmUpBias(
        log_ratio=mine.shortfall - other.shortfall,
        error=math.sqrt(len(baseline) - 1) * float(np.std(mine.without_each - other.without_each)),
        baseline=other.rise,
        arm=mine.rise,
        p_value=p_value,
        window_s=float(np.mean([_load_s(trial.measured) for trial in baseline])),
        load_s=float(np.mean([_load_s(trial.slices) for trial in baseline])),
    )


@dataclass(frozen=True)
class _RiseFit:
    rise: Rise
    amplitudes: Floats
    shortfall: float
    without_each: Floats

    @property
    def is_significant(self) -> bool:
        p_value = student(list(self.amplitudes), CONFIDENCE).p_value
        return p_value is not None and p_value <= SUSPICION_OF_RISES

    @property
    def without_rise(self) -> _RiseFit:
        steady = replace(self.rise, share=0.0)
        return replace(self, rise=steady, shortfall=0.0, without_each=np.zeros_like(self.without_each))


def _fit_rise(trials: Sequence[Trial]) -> _RiseFit | None:
    """Fit the rise of an arm's rates since the start of the warm-up; None with too few slices."""
    slices = [[piece for piece in trial.slices if piece.counted_s > 0] for trial in trials]
    if min(map(len, slices)) < VALUES_MIN:
        return None
    span_s = float(np.mean([_load_s(pieces) for pieces in slices]))
    constants_s = time_constants(span_s / max(map(len, slices)), span_s)
    every = np.array([_moments_of(pieces, constants_s) for pieces in slices])
    whole, n = every.sum(axis=0), len(every)
    (best,), (share,), (shortfall,) = fit_exponential(whole[None] / n)
    _, _, without_each = fit_exponential((whole - every) / (n - 1))
    rise = Rise(float(share), float(constants_s[best]))
    return _RiseFit(rise, every[:, 1, best] / every[:, 0, best], float(shortfall), without_each)


def _moments_of(pieces: Sequence[Slice], constants_s: Floats) -> Floats:
    lengths_s = np.array([piece.closed_s - piece.opened_s for piece in pieces])
    rates = np.array([_rate_of(piece) for piece in pieces])
    in_window = np.array([piece.role is Role.MEASURE for piece in pieces])
    return moments(np.cumsum(lengths_s) - lengths_s / 2, rates, in_window, constants_s)


def _rate_of(piece: Slice) -> float:
    return piece.executed / piece.counted_s


def _load_s(pieces: Sequence[Slice]) -> float:
    return sum(piece.closed_s - piece.opened_s for piece in pieces)


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
    at, t = np.arange(2, n - 1), np.arange(1, n + 1)
    k, until = at[:, None], sums[at][:, None]
    # Sums from the end mirror those from k on and have the same variance.
    lines = np.where(t <= k, t / k * until, until + (t - k) / (n - k) * (sums[n] - until))
    within = ((sums[1:] - lines) ** 2).sum(axis=1) / n**2
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.nan_to_num(sums[at] ** 2 / n / within, nan=0.0, posinf=math.inf)
    best = int(np.argmax(found))
    return float(found[best]), int(at[best]) if found[best] > 0 else n // 2


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


# ----------------------------------------------------------------------
# Drift within long windows: slopes per hour of rate, WAL, ages and sizes.
# ----------------------------------------------------------------------

RATE = "tps"

SIZES: Mapping[str, tuple[str, str]] = {
    "database.growth": ("size of the database", "MiB"),
    "relations.growth": ("size of tables with their indexes", "MiB"),
    "relations.indexes_growth": ("size of indexes", "MiB"),
    "relations.dead_growth": ("dead tuples", "tuples"),
}
"""Quantities read only at the ends of a window: change per time, without an interval for one trial."""


@dataclass(frozen=True)
class Drift:
    """Drift of one quantity. ``estimate`` is per hour, ``percent`` in percent of its mean per hour.

    n is the number of trials, or of parts if there is only one trial.
    """

    key: str
    name: str
    estimate: Estimate
    percent: Estimate | None = None
    slope: Slope | None = None


def drifts_of_arm(
    arm: Arm,
    trials: Sequence[Trial],
    points: Mapping[int, Sequence[ThroughputPoint]],
    series: Mapping[int, Mapping[str, SampleSeries]],
    telemetry: Mapping[int, TrialTelemetry],
    confidence: float,
) -> list[Drift]:
    """Return the drifts of an arm's ok trials with long windows. The mappings are by trial ID."""
    mine = [trial for trial in trials if trial.arm == arm.arm and trial.status is TrialStatus.OK]
    rates = [_rate(points.get(trial.trial, ()), confidence) for trial in mine]
    found = _drift(RATE, "transactions per second", "tx/s", Better.MORE, rates, confidence)
    sampled = [series.get(trial.trial, {}).get(SERVER) for trial in mine]
    wal = [_growth(of, "lsn_bytes", PER_MIB, confidence) for of in sampled]
    found += _drift("wal.bytes", "WAL written", "MiB", Better.NEITHER, wal, confidence, relative=False)
    ages = [_growth(of, "frozen_xid_age", 1.0, confidence) for of in sampled]
    found += _drift(
        "wraparound.age", "age of datfrozenxid", "xids", Better.LESS, ages, confidence, relative=False
    )
    known = [telemetry[trial.trial] for trial in mine if trial.trial in telemetry]
    return found + [drift for key in SIZES for drift in _sizes(key, known, confidence)]


def drift_caveats(
    arm: Arm, found: Sequence[Drift], window_s: float, margin: float, asked: int = 1
) -> list[Caveat]:
    """Return a caveat if the rate changed significantly, by more than the margin during the window.

    The level is ALARM_OF_TRENDS for the whole study (Bonferroni): ``asked`` is the number of arms in all
    cases.
    """
    for drift in found:
        slope = drift.slope
        if drift.key != RATE or slope is None or slope.p_value is None or drift.percent is None:
            continue
        if slope.p_value > ALARM_OF_TRENDS / asked:
            continue
        if abs(drift.percent.value) / 100 * window_s / S_PER_HOUR > margin:
            percent = group_digits(drift.percent.value, drift.percent.decimals)
            return [Caveat.of("no-steady-state", arm=arm.name, slope_percent_per_hour=percent)]
    return []


def _rate(points: Sequence[ThroughputPoint], confidence: float) -> Slope | None:
    measured = [point for point in points if point.role is Role.MEASURE]
    return trend([point.at_s for point in measured], [point.per_s for point in measured], confidence)


def _growth(series: SampleSeries | None, column: str, scale: float, confidence: float) -> Slope | None:
    return None if series is None else growth(series.points[:, 0], scale * series.column(column), confidence)


def _drift(
    key: str,
    name: str,
    unit: str,
    better: Better,
    slopes: Sequence[Slope | None],
    confidence: float,
    *,
    relative: bool = True,
) -> list[Drift]:
    slope = mean_slope([one for one in slopes if one is not None], confidence)
    if slope is None:
        return []
    percent = slope.percent(better) if relative else None
    return [Drift(key, name, slope.estimate(unit, better), percent, slope)]


def _sizes(key: str, trials: Sequence[TrialTelemetry], confidence: float) -> list[Drift]:
    per_hour = [
        S_PER_HOUR * of.values[key] / of.elapsed_s
        for of in trials
        if key in of.values and of.elapsed_s is not None and of.elapsed_s >= SPAN_S_MIN
    ]
    if not per_hour:
        return []
    name, unit = SIZES[key]
    summary = student(per_hour, confidence)
    unit = f"{unit} per hour"
    return [
        Drift(
            key,
            name,
            Estimate(summary.mean, unit, summary.n, Better.LESS, summary.low, summary.high, confidence),
        )
    ]


# ----------------------------------------------------------------------
# Steady state of a case: warm-ups, windows, checkpoint cycles.
# ----------------------------------------------------------------------

TESTS_MIN = 4
FALSE_UNSTEADY = 0.35
"""Probability that a steady series fails the test after each of at least TESTS_MIN values. Simulated: 32%
with noise of 20% and autocorrelation 0.7, less with others."""

TESTS_MANY = 25
FALSE_UNSTEADY_OF_MANY = 0.02
"""Rate for TESTS_MANY tests over at least three quarters of the warm-up. Simulated: 0.5%."""


@dataclass(frozen=True)
class WarmUps:
    """Warm-ups of an arm's trials that count.

    ``tested`` is the number of trials with enough tests, ``unsteady`` those of them that never passed one.
    ``false_alarm`` is the probability of this for a steady series.
    """

    trials: int
    ended_steady: Annotated[int, about("Number of trials whose warm-up ended at a steady state.")]
    shortest_s: float
    longest_s: float
    tested: int
    unsteady: int
    false_alarm: float


def warm_ups(arm: Arm, trials: Sequence[Trial]) -> WarmUps | None:
    """Return the warm-ups of an arm; None without a warm-up."""
    mine = [trial for trial in trials if trial.arm == arm.arm and trial.status is TrialStatus.OK]
    driven_s = [seconds for trial in mine if (seconds := _driven_s(trial)) > 0]
    if not driven_s:
        return None
    stored = [end for trial in mine if (end := trial.driver.warm_up) is not None]
    tested = [(one, p) for one in stored if (p := _false_alarm_probability(one)) is not None]
    return WarmUps(
        trials=len(driven_s),
        ended_steady=sum(one.by == "evidence" for one in stored),
        shortest_s=min(driven_s),
        longest_s=max(driven_s),
        tested=len(tested),
        unsteady=sum(one.looks_steady == 0 for one, _ in tested),
        false_alarm=max((p for _, p in tested), default=1.0),
    )


def warm_up_caveats(found: Mapping[str, WarmUps | None], cases: int = 1) -> list[Caveat]:
    """Return caveats for arms with significantly many unsteady warm-ups. ``found`` is by arm name."""
    alarm = ALARM / max(1, len(found) * cases)
    return [
        Caveat.of(
            "warm-up-too-short",
            arm=name,
            trials=of.unsteady,
            of=of.trials,
            time=format_duration(of.longest_s),
        )
        for name, of in found.items()
        if of is not None
        and of.unsteady
        and 1 - binomial_at_most(of.unsteady - 1, of.tested, of.false_alarm) <= alarm
    ]


def _driven_s(trial: Trial) -> float:
    return sum(piece.drained_s - piece.opened_s for piece in trial.slices if piece.role is Role.WARM_UP)


def _false_alarm_probability(warmed: WarmUpEnd) -> float | None:
    """Return the probability that a steady warm-up never passes the test; None with too few tests."""
    tests, values = warmed.looks, warmed.values
    if tests >= TESTS_MANY and tests >= 3 * (values - tests):
        return FALSE_UNSTEADY_OF_MANY
    return FALSE_UNSTEADY if tests >= TESTS_MIN else None


@dataclass(frozen=True)
class SteadyState:
    """Steady state of an arm. ``effect_trend`` is the trend of the ratio to the baseline if arms alternated.

    ``steps`` are the significant ones, of ``tested`` trials with windows that are long enough.
    """

    arm: ArmName
    warm_ups: WarmUps | None
    rate_trend: Trend | None
    effect_trend: Trend | None
    warm_up_bias: WarmUpBias | None = None
    steps: Sequence[LargestStep] = field(default_factory=list)
    tested: int = 0
    cycles: Cycles | None = None


def find_steady_state(
    plan: Study,
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    points: Mapping[int, Sequence[ThroughputPoint]],
    series: Mapping[int, SampleSeries],
    telemetry: Mapping[int, TrialTelemetry],
    cases: int = 1,
) -> list[SteadyState]:
    """Return the steady state of each arm. The mappings are by trial ID; ``series`` is of the server."""
    seen = {
        arm.arm: counted_rates([trial for trial in trials if trial.arm == arm.arm], points) for arm in arms
    }
    steps = _steps(trials, seen)
    significant = {
        id(one)
        for one, is_significant in zip(
            steps, surely([of.p_value for of in steps], ALARM_OF_STEPS / cases), strict=True
        )
        if is_significant
    }
    return [
        SteadyState(
            arm=arm,
            warm_ups=warm_ups(arm, trials),
            rate_trend=trend_of_trials(list(seen[arm.arm].values()), plan.confidence),
            effect_trend=effect_trend,
            warm_up_bias=warm_up_bias,
            steps=[
                one
                for one in steps
                if one.trial in seen[arm.arm]
                and id(one) in significant
                and abs(one.percent) > 100 * plan.margin
            ],
            tested=sum(one.trial in seen[arm.arm] for one in steps),
            cycles=cycles_of_arm(
                plan, [trial for trial in trials if trial.arm == arm.arm], series, telemetry
            ),
        )
        for arm, effect_trend, warm_up_bias in zip(
            arms, effect_trends(plan, arms, trials), warm_up_biases(plan, arms, trials), strict=True
        )
    ]


def steady_state_caveats(plan: Study, found: Sequence[SteadyState], cases: int = 1) -> list[Caveat]:
    """Return the caveats that are significant for the whole study and exceed the margin."""
    caveats = warm_up_caveats({of.arm.name: of.warm_ups for of in found}, cases)
    trends = [of.rate_trend for of in found]
    alarm = ALARM_OF_TRENDS / cases
    flags = surely([None if one is None else one.p_value for one in trends], alarm)
    for of, one, is_significant in zip(found, trends, flags, strict=True):
        # For long windows, the slope per hour reports it.
        if one is None or not is_significant or one.span_s >= SPAN_S_MIN:
            continue
        if abs(one.percent.value) > 100 * plan.margin:
            caveats.append(_changes("rate-trend", of, one, found[0].arm.name))
    effects = [of.effect_trend for of in found]
    for of, one, is_trending in zip(found, effects, trending(effects, plan.margin, cases), strict=True):
        if one is not None and is_trending:
            caveats.append(_changes("effect-trend", of, one, found[0].arm.name))
    caveats += [_step_caveat(of) for of in found if of.steps]
    return caveats + [
        caveat
        for of in found
        if of.cycles is not None
        for caveat in cycle_caveats(plan, of.arm.name, of.cycles)
    ]


def _changes(kind: str, of: SteadyState, one: Trend, baseline: str) -> Caveat:
    percent = one.percent
    names: dict[str, Parameter] = {
        "arm": of.arm.name,
        "change": percent.signed_text,
        "interval": percent.signed_interval_text,
        "window": format_duration(one.span_s),
        "trials": percent.n,
    }
    if kind == "effect-trend":
        return Caveat.of(kind, **names, baseline=baseline)
    if one.truncation_s is None:
        cut = "no part of them is in a steady state"
    elif one.truncation_s:
        cut = f"their first {format_duration(one.truncation_s)} belong to the warm-up"
    else:
        cut = "the change continues to their end"
    return Caveat.of(kind, **names, cut=cut)


def _step_caveat(of: SteadyState) -> Caveat:
    largest = max(of.steps, key=lambda one: abs(one.percent))
    return Caveat.of(
        "rate-step",
        arm=of.arm.name,
        trials=len(of.steps),
        of=of.tested,
        size=signed(largest.percent, 0, "%"),
        at=format_duration(largest.at_s),
        block=largest.block + 1,
    )


def _steps(trials: Sequence[Trial], seen: Mapping[int, Mapping[int, Observed]]) -> list[LargestStep]:
    """Return the largest step of each trial that is long enough."""
    found = (step(trial, seen[trial.arm][trial.trial]) for trial in trials if trial.trial in seen[trial.arm])
    return [one for one in found if one is not None]
