"""What differs between the CPU profiles of two arms: function by function, and stack by stack."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.causes.frames import Frame, frames_of
from pgdyno.analysis.comparison.comparison import ok_by_block
from pgdyno.analysis.statistics.effect import holm_confidences, student
from pgdyno.analysis.telemetry.profile import Profile
from pgdyno.estimate import Better, Estimate
from pgdyno.evidence.records import Arm, Trial

FUNCTIONS_MAX = 20
"""Told, those that took the most time of both arms together: chosen by size, not by change, which would
choose the noisiest."""


@dataclass(frozen=True)
class FunctionChange:
    """``baseline_us`` and ``arm_us``: CPU per transaction in the function itself, the mean over the blocks.

    ``change``: of the differences within the blocks, in µs, by Student's t at a confidence that Holm's
    correction over the functions told gives.
    """

    name: str
    baseline_us: float
    arm_us: float
    change: Estimate


@dataclass(frozen=True)
class ProfileComparison:
    """``blocks``: those that have both profiles. ``samples``: of the baseline and of the arm, over these
    blocks, and ``covered`` the share of the servers' CPU time that these stand for, as it was counted; None
    where it was not. ``frames``: the root of the tree.
    """

    baseline: Arm
    arm: Arm
    blocks: Sequence[int]
    samples: tuple[int, int]
    covered: tuple[float | None, float | None]
    hz: int
    functions: Sequence[FunctionChange]
    frames: Frame


def compare_profiles(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    profiles: Mapping[int, Profile | None],
    confidence: float,
) -> list[ProfileComparison]:
    """Of each arm after the first with the baseline, of the trials that count."""
    found = []
    for arm in arms[1:]:
        pairs: dict[int, tuple[Profile, Profile]] = {}
        for block, of_arm in ok_by_block(trials).items():
            pair = [profiles.get(of_arm[one].trial) for one in (0, arm.arm) if one in of_arm]
            if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
                pairs[block] = (pair[0], pair[1])
        if pairs:
            covered = _covered(trials, profiles, 0, pairs), _covered(trials, profiles, arm.arm, pairs)
            found.append(_comparison(arms[0], arm, pairs, covered, confidence))
    return found


def _covered(
    trials: Sequence[Trial], profiles: Mapping[int, Profile | None], arm: int, blocks: Collection[int]
) -> float | None:
    """Of the trials of which both are known."""
    sampled_s = counted_s = 0.0
    for block, of_arm in ok_by_block(trials).items():
        if block in blocks:
            trial = of_arm[arm]
            profile = profiles.get(trial.trial)
            if profile is not None and trial.server_cpu_s is not None:
                sampled_s += profile.sampled_s
                counted_s += trial.server_cpu_s
    return sampled_s / counted_s if counted_s else None


def _comparison(
    baseline: Arm,
    arm: Arm,
    pairs: Mapping[int, tuple[Profile, Profile]],
    covered: tuple[float | None, float | None],
    confidence: float,
) -> ProfileComparison:
    either = list(pairs.values())
    return ProfileComparison(
        baseline=baseline,
        arm=arm,
        blocks=list(pairs),
        samples=(sum(a.samples for a, _ in either), sum(b.samples for _, b in either)),
        covered=covered,
        hz=either[0][0].hz,
        functions=_functions(either, confidence),
        frames=frames_of(either, confidence),
    )


def _functions(pairs: Sequence[tuple[Profile, Profile]], confidence: float) -> list[FunctionChange]:
    own = [(a.own, b.own) for a, b in pairs]
    total: dict[str, float] = {}
    for of_block in own:
        for side in of_block:
            for name, us in side.items():
                total[name] = total.get(name, 0.0) + us
    names = sorted(total, key=lambda name: (-total[name], name))[:FUNCTIONS_MAX]
    values = {name: [(a.get(name, 0.0), b.get(name, 0.0)) for a, b in own] for name in names}
    spreads = {name: student([b - a for a, b in values[name]], confidence) for name in names}
    levels = holm_confidences([spreads[name].p_value for name in names], confidence)
    return [
        _change(name, values[name], level) for name, level in zip(names, levels, strict=True) if values[name]
    ]


def _change(name: str, values: Sequence[tuple[float, float]], confidence: float) -> FunctionChange:
    spread = student([b - a for a, b in values], confidence)
    n = len(values)
    return FunctionChange(
        name=name,
        baseline_us=sum(a for a, _ in values) / n,
        arm_us=sum(b for _, b in values) / n,
        change=Estimate(spread.mean, "µs", spread.n, Better.LESS, spread.low, spread.high, confidence),
    )
