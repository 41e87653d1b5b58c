"""Comparison of CPU profiles of two arms by function and by stack.

A frame is a function with its callers. Its time includes the functions that it called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import ok_by_block
from pgdyno.analysis.finding_fields import ArmName, Hidden, about
from pgdyno.analysis.statistics.intervals import LogRatioSummary, holm_confidences, simultaneous, student
from pgdyno.analysis.telemetry.trial_telemetry import CpuProfile
from pgdyno.results.records import Arm, Trial
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import Better, Estimate

FUNCTIONS_MAX = 20
"""Maximum number of reported functions, those with the most time in both arms together. A choice by change
would prefer the noisiest ones."""


@dataclass(frozen=True)
class FunctionChange:
    """CPU per transaction in the function itself, as means over the blocks.

    ``change`` is the mean difference within blocks in µs, by Student's t with Holm's correction over the
    reported functions.
    """

    name: str
    baseline_us: float
    arm_us: float
    change: Estimate


@dataclass(frozen=True)
class ProfileComparison:
    """Comparison of an arm with the baseline. ``blocks`` have both profiles.

    ``samples`` are the numbers of samples of the baseline and the arm in these blocks. ``covered`` is their
    share of the servers' CPU time; None if unknown. ``frames`` is the root of the tree.
    """

    baseline: ArmName
    arm: ArmName
    blocks: Sequence[int]
    samples: tuple[int, int]
    covered: tuple[float | None, float | None]
    hz: int
    functions: Annotated[Sequence[FunctionChange], about("The most time first.")]
    frames: Hidden[Frame]


def profiles_of(findings: Findings) -> list[ProfileComparison]:
    """Compare the profiles of a case; one per arm after the first that has any."""
    return compare_profiles(
        [of.arm for of in findings.arms],
        findings.trials,
        {trial: of.profile for trial, of in findings.telemetry.by_trial.items()},
        findings.study.plan.confidence,
    )


def compare_profiles(
    arms: Sequence[Arm], trials: Sequence[Trial], profiles: Mapping[int, CpuProfile | None], confidence: float
) -> list[ProfileComparison]:
    """Compare each arm after the first with the baseline, over the trials that count."""
    found = []
    for arm in arms[1:]:
        pairs: dict[int, tuple[CpuProfile, CpuProfile]] = {}
        for block, of_arm in ok_by_block(trials).items():
            pair = [profiles.get(of_arm[one].trial) for one in (0, arm.arm) if one in of_arm]
            if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
                pairs[block] = (pair[0], pair[1])
        if pairs:
            either = list(pairs.values())
            comparison = ProfileComparison(
                baseline=arms[0],
                arm=arm,
                blocks=list(pairs),
                samples=(sum(a.samples for a, _ in either), sum(b.samples for _, b in either)),
                covered=(_covered(trials, profiles, 0, pairs), _covered(trials, profiles, arm.arm, pairs)),
                hz=either[0][0].hz,
                functions=_functions(either, confidence),
                frames=frames_of(either, confidence),
            )
            found.append(comparison)
    return found


def _covered(
    trials: Sequence[Trial], profiles: Mapping[int, CpuProfile | None], arm: int, blocks: Collection[int]
) -> float | None:
    """Return the covered share over trials with a profile and a CPU time."""
    sampled_s = counted_s = 0.0
    for block, of_arm in ok_by_block(trials).items():
        if block in blocks:
            trial = of_arm[arm]
            profile = profiles.get(trial.trial)
            if profile is not None and trial.server_cpu_s is not None:
                sampled_s += profile.sampled_s
                counted_s += trial.server_cpu_s
    return sampled_s / counted_s if counted_s else None


def _functions(pairs: Sequence[tuple[CpuProfile, CpuProfile]], confidence: float) -> list[FunctionChange]:
    own = [(a.own, b.own) for a, b in pairs]
    total: dict[str, float] = {}
    for of_block in own:
        for side in of_block:
            for name, us in side.items():
                total[name] = total.get(name, 0.0) + us
    names = sorted(total, key=lambda name: (-total[name], name))[:FUNCTIONS_MAX]
    values = {name: [(a.get(name, 0.0), b.get(name, 0.0)) for a, b in own] for name in names}
    differences = [[b - a for a, b in values[name]] for name in names]
    summaries = simultaneous([partial(student, d) for d in differences], confidence)
    return [_change(name, values[name], summary) for name, summary in zip(names, summaries, strict=True)]


def _change(name: str, values: Sequence[tuple[float, float]], of: LogRatioSummary) -> FunctionChange:
    n = len(values)
    return FunctionChange(
        name=name,
        baseline_us=sum(a for a, _ in values) / n,
        arm_us=sum(b for _, b in values) / n,
        change=Estimate(of.mean, "µs", of.n, Better.LESS, of.low, of.high, of.confidence),
    )


Pair = tuple[CpuProfile, CpuProfile]
"""Profiles of the baseline and the arm in one block."""

SHARE_MIN = 0.001
"""Minimum share of all time. Smaller frames are too narrow to select, and omitted with callees."""


@dataclass(frozen=True)
class Frame:
    """CPU per transaction of a frame, as means over the blocks. ``within`` are the called frames by name.

    ``differs``: the difference is significant by Student's t over the blocks, with Holm's correction over all
    frames; never with too few blocks for a verdict.
    """

    name: str
    baseline_us: float
    arm_us: float
    differs: bool
    within: Sequence[Frame]

    @property
    def mean_us(self) -> float:
        """Mean of both arms. The sum over the frames within is smaller by the function's own time."""
        return (self.baseline_us + self.arm_us) / 2

    @property
    def change_us(self) -> float:
        """Arm minus baseline: greater than zero if the arm takes more."""
        return self.arm_us - self.baseline_us


@dataclass
class _Node:
    """Frame under construction. ``by_block`` has shape (blocks, 2), for kept frames."""

    us: float = 0.0
    within: dict[str, _Node] = field(default_factory=dict)
    by_block: npt.NDArray[np.float64] | None = None


def frames_of(pairs: Sequence[Pair], confidence: float) -> Frame:
    """Return the root frame."""
    root = _Node()
    for pair in pairs:
        for profile in pair:
            _add(root, profile.us_per_tx)
    kept = list(_kept(root, SHARE_MIN * root.us))
    for node in kept:
        node.by_block = np.zeros((len(pairs), 2))
    for block, pair in enumerate(pairs):
        for arm, profile in enumerate(pair):
            _add_block(root, profile.us_per_tx, (block, arm))
    return _frame("all", root, _that_differ(kept, confidence))


def _add(root: _Node, stacks: Mapping[tuple[str, ...], float]) -> None:
    for stack, us in stacks.items():
        node = root
        node.us += us
        for name in stack:
            node = node.within.setdefault(name, _Node())
            node.us += us


def _kept(node: _Node, us_min: float) -> Iterator[_Node]:
    """Yield the frames that are large enough, and remove the others from the tree."""
    yield node
    node.within = {name: inner for name, inner in sorted(node.within.items()) if inner.us >= us_min}
    for inner in node.within.values():
        yield from _kept(inner, us_min)


def _add_block(root: _Node, stacks: Mapping[tuple[str, ...], float], place: tuple[int, int]) -> None:
    for stack, us in stacks.items():
        node: _Node | None = root
        for name in (None, *stack):
            node = node if name is None or node is None else node.within.get(name)
            if node is None or node.by_block is None:
                break
            node.by_block[place] += us


def _that_differ(kept: Sequence[_Node], confidence: float) -> set[int]:
    """Return the ``id`` of significant frames. Frames with equal differences are one test."""
    by_difference: dict[bytes, list[_Node]] = {}
    for node in kept:
        assert node.by_block is not None
        d = node.by_block[:, 1] - node.by_block[:, 0]
        by_difference.setdefault(np.round(d, 9).tobytes(), []).append(node)
    differences = [np.frombuffer(key) for key in by_difference]
    if not differences or len(differences[0]) < VERDICT_BLOCKS_MIN:
        return set()
    p_values = [student(list(d), confidence).p_value for d in differences]
    found: set[int] = set()
    levels = holm_confidences(p_values, confidence)
    for nodes, p_value, level in zip(by_difference.values(), p_values, levels, strict=True):
        if p_value is not None and p_value < 1 - level:
            found |= {id(node) for node in nodes}
    return found


def _frame(name: str, node: _Node, differing: set[int]) -> Frame:
    assert node.by_block is not None
    a, b = node.by_block.mean(axis=0)
    within = [_frame(inner, of, differing) for inner, of in node.within.items()]
    return Frame(name, float(a), float(b), id(node) in differing, within)
