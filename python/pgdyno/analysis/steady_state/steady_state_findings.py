"""Steady state of a case: warm-ups, windows, checkpoint cycles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.analysis.statistics.slopes import SPAN_S_MIN
from pgdyno.analysis.steady_state import checkpoint_cycles, stationarity
from pgdyno.analysis.steady_state.checkpoint_cycles import Cycles
from pgdyno.analysis.steady_state.stationarity import LargestStep, Observed, Trend, WarmUpChange, surely
from pgdyno.analysis.telemetry.throughput_series import ThroughputPoint
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.estimate import signed
from pgdyno.results.driver_facts import WarmUpEnd
from pgdyno.results.records import Arm, SampleSeries, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.units import format_duration

TESTS_MIN = 4
FALSE_UNSTEADY = 0.35
"""Probability that a steady series fails the test after each of at least TESTS_MIN values. Simulated: 32%
with noise of 20% and autocorrelation 0.7, less with others."""

TESTS_MANY = 25
FALSE_UNSTEADY_OF_MANY = 0.02
"""Rate for TESTS_MANY tests over at least three quarters of the warm-up. Simulated: 0.5%."""

ALARM = 0.05
"""Maximum probability of a false caveat per study."""


@dataclass(frozen=True)
class WarmUps:
    """Warm-ups of an arm's trials that count.

    ``tested`` is the number of trials with enough tests, ``unsteady`` those of them that never passed one.
    ``false_alarm`` is the probability of this for a steady series.
    """

    trials: int
    ended_steady: int
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
        Caveat(
            Code.WARM_UP_TOO_SHORT,
            {
                "arm": name,
                "trials": of.unsteady,
                "of": of.trials,
                "time": format_duration(of.longest_s),
            },
        )
        for name, of in found.items()
        if of is not None and of.unsteady and _at_least(of.unsteady, of.tested, of.false_alarm) <= alarm
    ]


def _at_least(k: int, n: int, probability: float) -> float:
    """Return the probability of at least k successes among n."""
    return sum(math.comb(n, i) * probability**i * (1 - probability) ** (n - i) for i in range(k, n + 1))


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

    arm: Arm
    warm_ups: WarmUps | None
    rate_trend: Trend | None
    effect_trend: Trend | None
    warm_up_change: WarmUpChange | None = None
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
        arm.arm: stationarity.counted_rates([trial for trial in trials if trial.arm == arm.arm], points)
        for arm in arms
    }
    steps = _steps(trials, seen)
    significant = {
        id(one)
        for one, is_significant in zip(steps, _significant(steps, cases), strict=True)
        if is_significant
    }
    return [
        SteadyState(
            arm=arm,
            warm_ups=warm_ups(arm, trials),
            rate_trend=stationarity.trend_of_trials(list(seen[arm.arm].values()), plan.confidence),
            effect_trend=effect_trend,
            warm_up_change=warm_up_change,
            steps=[
                one
                for one in steps
                if one.trial in seen[arm.arm]
                and id(one) in significant
                and abs(one.percent) > 100 * plan.margin
            ],
            tested=sum(one.trial in seen[arm.arm] for one in steps),
            cycles=checkpoint_cycles.cycles_of_arm(
                plan, [trial for trial in trials if trial.arm == arm.arm], series, telemetry
            ),
        )
        for arm, effect_trend, warm_up_change in zip(
            arms,
            stationarity.effect_trends(plan, arms, trials),
            stationarity.warm_up_changes(arms, trials),
            strict=True,
        )
    ]


def steady_state_caveats(plan: Study, found: Sequence[SteadyState], cases: int = 1) -> list[Caveat]:
    """Return the caveats that are significant for the whole study and exceed the margin."""
    caveats = warm_up_caveats({of.arm.name: of.warm_ups for of in found}, cases)
    trends = [of.rate_trend for of in found]
    alarm = stationarity.ALARM_OF_TRENDS / cases
    flags = surely([None if one is None else one.p_value for one in trends], alarm)
    for of, one, is_significant in zip(found, trends, flags, strict=True):
        # For long windows, the slope per hour reports it.
        if one is None or not is_significant or one.span_s >= SPAN_S_MIN:
            continue
        if abs(one.percent.value) > 100 * plan.margin:
            caveats.append(_changes(Code.RATE_TREND, of, one, found[0].arm.name))
    effects = [of.effect_trend for of in found]
    for of, one, is_trending in zip(
        found, effects, stationarity.trending(effects, plan.margin, cases), strict=True
    ):
        if one is not None and is_trending:
            caveats.append(_changes(Code.EFFECT_TREND, of, one, found[0].arm.name))
    for of in found:
        if of.warm_up_change is not None and of.warm_up_change.exceeds(plan.margin):
            before, after = (
                signed(percent_of(d), 1, "%") for d in (of.warm_up_change.before, of.warm_up_change.after)
            )
            names = {"arm": of.arm.name, "baseline": found[0].arm.name, "before": before, "after": after}
            caveats.append(Caveat(Code.EFFECT_CHANGED_BY_WARM_UP, names))
    caveats += [_step_caveat(of) for of in found if of.steps]
    return caveats + [
        caveat
        for of in found
        if of.cycles is not None
        for caveat in checkpoint_cycles.cycle_caveats(plan, of.arm.name, of.cycles)
    ]


def _changes(code: Code, of: SteadyState, one: Trend, baseline: str) -> Caveat:
    percent = one.percent
    names: dict[str, Parameter] = {
        "arm": of.arm.name,
        "change": percent.signed_text,
        "interval": percent.signed_interval_text,
        "window": format_duration(one.span_s),
        "trials": percent.n,
    }
    if code is Code.EFFECT_TREND:
        return Caveat(code, {**names, "baseline": baseline})
    if one.truncation_s is None:
        cut = "no part of them is in a steady state"
    elif one.truncation_s:
        cut = f"their first {format_duration(one.truncation_s)} belong to the warm-up"
    else:
        cut = "the change continues to their end"
    return Caveat(code, {**names, "cut": cut})


def _step_caveat(of: SteadyState) -> Caveat:
    largest = max(of.steps, key=lambda one: abs(one.percent))
    return Caveat(
        Code.RATE_STEP,
        {
            "arm": of.arm.name,
            "trials": len(of.steps),
            "of": of.tested,
            "size": signed(largest.percent, 0, "%"),
            "at": format_duration(largest.at_s),
            "block": largest.block + 1,
        },
    )


def _steps(trials: Sequence[Trial], seen: Mapping[int, Mapping[int, Observed]]) -> list[LargestStep]:
    """Return the largest step of each trial that is long enough."""
    found = (
        stationarity.step(trial, seen[trial.arm][trial.trial])
        for trial in trials
        if trial.trial in seen[trial.arm]
    )
    return [one for one in found if one is not None]


def _significant(steps: Sequence[LargestStep], cases: int) -> list[bool]:
    return surely([one.p_value for one in steps], stationarity.ALARM_OF_STEPS / cases)
