"""How the trials of an arm were warmed up: by evidence or time, for how long, and whether that was enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgdyno.caveats import Caveat, Code
from pgdyno.evidence.records import Arm, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
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
