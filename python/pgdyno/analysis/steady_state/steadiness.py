"""Whether a case was measured in steady state: warm-ups, windows, checkpoint cycles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgdyno.analysis.statistics.slopes import SPAN_S_MIN
from pgdyno.analysis.steady_state import checkpoint_cycles, stationarity
from pgdyno.analysis.steady_state.checkpoint_cycles import Cycles
from pgdyno.analysis.steady_state.stationarity import Observed, Step, Trend, surely
from pgdyno.analysis.telemetry.throughput_series import Point
from pgdyno.analysis.telemetry.trial_telemetry import Telemetry
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.estimate import signed
from pgdyno.results.records import Arm, Series, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role, Schedule
from pgdyno.units import format_duration

LOOKS_MIN = 4
UNSTEADY_BY_CHANCE = 0.35
"""The share of steady series that look unsteady in each of so many looks, one at every new value. Simulated:
32 % with noise of 20 per cent that remembers 0.7 of itself, less with others."""

LOOKS_MANY = 25
UNSTEADY_BY_CHANCE_OF_MANY = 0.02
"""The same of so many looks, over three quarters of the warm-up at least. Simulated: 0.5 %."""

ALARM = 0.05
"""Maximum probability of a false caveat per study."""


@dataclass(frozen=True)
class WarmUps:
    """Of an arm's trials that count. ``unsteady``: trials that looked steady at no time, of those that were
    looked at so often that it says something, ``looked``; ``chance`` of a steady one to look so.
    """

    trials: int
    by_evidence: int
    shortest_s: float
    longest_s: float
    looked: int
    unsteady: int
    chance: float


def warm_ups(arm: Arm, trials: Sequence[Trial]) -> WarmUps | None:
    """None where there was no warm-up."""
    mine = [trial for trial in trials if trial.arm == arm.arm and trial.status is TrialStatus.OK]
    driven_s = [seconds for trial in mine if (seconds := _driven_s(trial)) > 0]
    if not driven_s:
        return None
    told = [trial.driver.get("warm_up") or {} for trial in mine]
    looked = [(one, chance) for one in told if (chance := _chance(one)) is not None]
    return WarmUps(
        trials=len(driven_s),
        by_evidence=sum(one.get("by") == "evidence" for one in told),
        shortest_s=min(driven_s),
        longest_s=max(driven_s),
        looked=len(looked),
        unsteady=sum(one["looks_steady"] == 0 for one, _ in looked),
        chance=max((chance for _, chance in looked), default=1.0),
    )


def warm_up_caveats(found: Mapping[str, WarmUps | None], cases: int = 1) -> list[Caveat]:
    """Of the arms by name, of one of so many cases: where more warm-ups never looked steady than chance would
    have it.
    """
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
        if of is not None and of.unsteady and _at_least(of.unsteady, of.looked, of.chance) <= alarm
    ]


def _at_least(k: int, n: int, chance: float) -> float:
    """The binomial tail."""
    return sum(math.comb(n, i) * chance**i * (1 - chance) ** (n - i) for i in range(k, n + 1))


def bounds_s(plan: Study) -> tuple[float, float] | None:
    """Between which it was to end by evidence; None where it was given a time."""
    return None if plan.warmup_min_s is None else (plan.warmup_min_s, plan.warmup_s)


def _driven_s(trial: Trial) -> float:
    return sum(piece.drained_s - piece.opened_s for piece in trial.slices if piece.role is Role.WARM_UP)


def _chance(warmed: Mapping[str, Any]) -> float | None:
    """That a steady one would have looked unsteady all the time; None where too few looks were taken."""
    looks, values = warmed.get("looks", 0), warmed.get("values", 0)
    if looks >= LOOKS_MANY and looks >= 3 * (values - looks):
        return UNSTEADY_BY_CHANCE_OF_MANY
    return UNSTEADY_BY_CHANCE if looks >= LOOKS_MIN else None


@dataclass(frozen=True)
class Steadiness:
    """Of an arm. ``of_effect``: of its rate against the baseline's, where the arms took turns; ``steps``: the
    trials that surely have one, of ``looked`` whose windows are long enough.
    """

    arm: Arm
    warm_ups: WarmUps | None
    trend: Trend | None
    of_effect: Trend | None
    steps: Sequence[Step] = field(default_factory=list)
    looked: int = 0
    cycles: Cycles | None = None


def steadiness(
    plan: Study,
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    points: Mapping[int, Sequence[Point]],
    series: Mapping[int, Series],
    told: Mapping[int, Telemetry],
    cases: int = 1,
) -> list[Steadiness]:
    """Of each arm of one of so many cases. ``points``, ``series`` (the server's) and ``told`` by trial id."""
    seen = {
        arm.arm: stationarity.of_arm([trial for trial in trials if trial.arm == arm.arm], points)
        for arm in arms
    }
    steps = _steps(trials, seen)
    sure = {id(one) for one, stands in zip(steps, _stand(steps, cases), strict=True) if stands}
    return [
        Steadiness(
            arm=arm,
            warm_ups=warm_ups(arm, trials),
            trend=stationarity.trend(list(seen[arm.arm].values()), plan.confidence),
            of_effect=_of_effect(plan, arm, arms[0], trials, seen),
            steps=[
                one
                for one in steps
                if one.trial in seen[arm.arm] and id(one) in sure and abs(one.percent) > 100 * plan.margin
            ],
            looked=sum(one.trial in seen[arm.arm] for one in steps),
            cycles=checkpoint_cycles.of_arm(
                plan, [trial for trial in trials if trial.arm == arm.arm], series, told
            ),
        )
        for arm in arms
    ]


def steady_state_caveats(plan: Study, found: Sequence[Steadiness], cases: int = 1) -> list[Caveat]:
    """Those that hold for the whole study of so many cases at its alarm, and matter."""
    told = warm_up_caveats({of.arm.name: of.warm_ups for of in found}, cases)
    alarms = (stationarity.ALARM_OF_TRENDS / cases, stationarity.ALARM_OF_EFFECTS / cases)
    for alarm, trends, code in zip(
        alarms,
        ([of.trend for of in found], [of.of_effect for of in found]),
        (Code.RATE_TREND, Code.EFFECT_TREND),
        strict=True,
    ):
        stands = surely([None if one is None else one.p_value for one in trends], alarm)
        for of, one, is_sure in zip(found, trends, stands, strict=True):
            is_long = code is Code.RATE_TREND and one is not None and one.span_s >= SPAN_S_MIN
            if one is None or not is_sure or is_long or abs(one.percent.value) <= 100 * plan.margin:
                continue  # of long windows the slope per hour says it
            told.append(_changes(code, of, one, found[0].arm.name))
    told += [_steps_told(of) for of in found if of.steps]
    return told + [
        caveat
        for of in found
        if of.cycles is not None
        for caveat in checkpoint_cycles.cycle_caveats(plan, of.arm.name, of.cycles)
    ]


def _changes(code: Code, of: Steadiness, one: Trend, baseline: str) -> Caveat:
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
    if one.cut_s is None:
        cut = "no part of them is steady"
    elif one.cut_s:
        cut = f"their first {format_duration(one.cut_s)} still belong to the warm-up"
    else:
        cut = "it goes on to their end"
    return Caveat(code, {**names, "cut": cut})


def _steps_told(of: Steadiness) -> Caveat:
    largest = max(of.steps, key=lambda one: abs(one.percent))
    return Caveat(
        Code.RATE_STEP,
        {
            "arm": of.arm.name,
            "trials": len(of.steps),
            "of": of.looked,
            "size": signed(largest.percent, 0, "%"),
            "at": format_duration(largest.at_s),
            "block": largest.block + 1,
        },
    )


def _steps(trials: Sequence[Trial], seen: Mapping[int, Mapping[int, Observed]]) -> list[Step]:
    """Of all trials that are long enough, each with its largest."""
    found = (
        stationarity.step(trial, seen[trial.arm][trial.trial])
        for trial in trials
        if trial.trial in seen[trial.arm]
    )
    return [one for one in found if one is not None]


def _stand(steps: Sequence[Step], cases: int) -> list[bool]:
    return surely([one.p_value for one in steps], stationarity.ALARM_OF_STEPS / cases)


def _of_effect(
    plan: Study,
    arm: Arm,
    baseline: Arm,
    trials: Sequence[Trial],
    seen: Mapping[int, Mapping[int, Observed]],
) -> Trend | None:
    """By blocks in which both trials count."""
    if arm.arm == baseline.arm or plan.schedule not in (Schedule.SLICES, Schedule.DUET):
        return None
    places = {(trial.block, trial.arm): trial.trial for trial in trials if trial.status is TrialStatus.OK}
    pairs = [
        (seen[arm.arm][places[block, arm.arm]], seen[baseline.arm][places[block, baseline.arm]])
        for block in sorted({block for block, _ in places})
        if places.get((block, arm.arm)) in seen[arm.arm]
        and places.get((block, baseline.arm)) in seen[baseline.arm]
    ]
    return stationarity.effect_trend(
        [mine for mine, _ in pairs], [other for _, other in pairs], plan.confidence
    )
