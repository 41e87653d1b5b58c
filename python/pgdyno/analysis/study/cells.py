"""The cells of a study: every combination of its factors' levels that was run, with its value in each pass.

A study file's compared factors make arms, the others cases; a cell is an arm of a case. Block p of every case
is run in pass p, so that values of one pass are neighbours in time, those of one case even share the block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pgdyno.analysis.comparison.comparison import method_of, ok_by_block
from pgdyno.analysis.statistics.effect import Method
from pgdyno.analysis.study.findings import Findings
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.evidence.records import Trial
from pgdyno.study.schedule import Schedule

Levels = Mapping[str, str]
"""factor → the name of its level."""

INTERLEAVED = frozenset({Schedule.SLICES, Schedule.DUET})


@dataclass(frozen=True)
class Factor:
    """``levels`` in the study file's order: the first is what the others are held against. ``compared``: it
    makes arms.
    """

    name: str
    levels: Sequence[str]
    compared: bool


@dataclass(frozen=True)
class Cell:
    """``logs`` is pass → ln of the metric. ``stalled``: in some pass the arm did nothing that has a
    logarithm; what is left of it would flatter.
    """

    levels: Levels
    clients: int
    rate_per_s: float | None  # of an open loop
    logs: Mapping[int, float]
    stalled: bool


@dataclass(frozen=True)
class Design:
    """What was varied, and what was measured of it. ``metric`` is what the verdicts are about, too."""

    factors: Sequence[Factor]
    cells: Sequence[Cell]
    metric: Metric
    schedule: Schedule
    method: Method = Method.STUDENT  # of intervals that a study may have stopped on

    def factor(self, name: str) -> Factor:
        """By its name."""
        return next(factor for factor in self.factors if factor.name == name)

    @cached_property
    def _by_levels(self) -> Mapping[frozenset[tuple[str, str]], Cell]:
        return {frozenset(cell.levels.items()): cell for cell in self.cells}

    def at(self, levels: Levels) -> Cell | None:
        """The cell of these levels of all factors, if it was run."""
        return self._by_levels.get(frozenset(levels.items()))

    def contexts(self, *but: str) -> list[Levels]:
        """Every combination of the levels of the factors but these, run or not."""
        others = [factor for factor in self.factors if factor.name not in but]
        names = [factor.name for factor in others]
        return [
            dict(zip(names, chosen, strict=True))
            for chosen in itertools.product(*(factor.levels for factor in others))
        ]


Value = Callable[[Findings, Trial], float | None]


def design_of(cases: Sequence[Findings], value: Value | None = None) -> Design | None:
    """None where nothing varies that has a name, or where the cases' verdicts are about different metrics.

    ``value``: of a trial, in place of the metric.
    """
    placed = [(levels, of, arm) for of in cases for arm, levels in enumerate(_levels_of_arms(of))]
    every = [levels for levels, _, _ in placed]
    names = list(dict.fromkeys(name for levels in every for name in levels))
    keys = {of.primary.key for of in cases}
    if not names or len(keys) != 1 or any(levels.keys() != set(names) for levels in every):
        return None
    compared = {name for of in cases for levels in _arms(of) for name in levels}
    factors = [Factor(name, _ordered(name, every), name in compared) for name in names]
    first = cases[0]
    return Design(
        factors=[factor for factor in factors if len(factor.levels) > 1],
        cells=list(_cells(placed, {factor.name for factor in factors if len(factor.levels) > 1}, value)),
        metric=first.primary,
        schedule=first.study.plan.schedule,
        method=method_of(first.study.plan),
    )


def _cells(
    placed: Iterable[tuple[Levels, Findings, int]], varying: set[str], value: Value | None
) -> Iterator[Cell]:
    seen: list[Levels] = []
    for levels, of, arm in placed:
        own = {name: level for name, level in levels.items() if name in varying}
        if own not in seen:  # an arm that is there twice is a check of the machine, not another cell
            seen.append(own)
            values = _values(of, arm, value)
            known = {block: math.log(measured) for block, measured in values.items() if measured}
            rate_per_s = of.study.plan.rate_per_s
            stalled = len(known) < len(values)
            yield Cell(own, of.arms[arm].arm.clients, rate_per_s, known, stalled=stalled)


def _arms(of: Findings) -> Sequence[Levels]:
    return [{factor: str(level) for factor, level in levels.items()} for levels in of.study.arm_levels]


def _levels_of_arms(of: Findings) -> list[Levels]:
    """Of each arm: its own levels and those of its case; none where the evidence has none."""
    case = {factor: str(level) for factor, level in of.study.levels.items()}
    return [{**levels, **case} for levels in _arms(of)[: len(of.arms)] if levels or case]


def _values(of: Findings, arm: int, value: Value | None) -> dict[int, float | None]:
    """Block → the metric, of the blocks in which the arm's trial counts."""
    found = {}
    for block, by_arm in ok_by_block(of.trials).items():
        if arm in by_arm:
            slices = _whole_rounds(by_arm, of.study.plan.schedule)
            trial = by_arm[arm]
            whole = trial.measured[:slices]
            found[block] = value(of, trial) if value else of.primary.value(trial, whole)
    return found


def _whole_rounds(by_arm: Mapping[int, Trial], schedule: Schedule) -> int | None:
    """So many slices have a partner in every other arm of the block."""
    if schedule not in INTERLEAVED:
        return None
    return min(len(trial.measured) for trial in by_arm.values())


def _ordered(name: str, every: Sequence[Levels]) -> list[str]:
    """A factor's levels as the study file has them: exclusions may hide the first from the first cases, so
    the order is that of the combination of the others that has the most of them.
    """
    contexts: dict[frozenset[tuple[str, str]], list[str]] = {}
    for levels in every:
        others = frozenset((other, level) for other, level in levels.items() if other != name)
        contexts.setdefault(others, []).append(levels[name])
    longest_first = sorted(contexts.values(), key=len, reverse=True)
    return list(dict.fromkeys(itertools.chain.from_iterable(longest_first)))
