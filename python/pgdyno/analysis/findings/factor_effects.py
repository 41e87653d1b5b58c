"""Main effects and interactions of the factors of a study, from its cells.

A study file's compared factors make arms, the others cases; a cell is an arm of a case. Block p of every case
is run in pass p, so that values of one pass are neighbours in time, those of one case even share the block.

On the log scale of the metric that the verdicts are about. A contrast is taken within a pass, of cells that
differ in nothing else:

- the effect of level b of a factor against its first level a: d = y_b − y_a;
- how that depends on another factor's level g against its first level f:
  d = (y_bg − y_ag) − (y_bf − y_af), a ratio of ratios. Seen from the other factor it is the same number.

Either is averaged over the combinations of the remaining factors, each with the same weight, and has its
interval from the passes (``combined.combine``, by the method of the verdicts): where nothing is missing, the
contrast of Yates ("The design and analysis of factorial experiments", 1937) with Student's interval on its
values pass by pass. This needs no variance that is the same for all cells, as an analysis of variance does;
what drifts from pass to pass cancels, and so does what drifts from block to block where the factor is one of
those compared.

Where combinations were excluded, or have no blocks, a contrast is averaged over those that have all its two
or four cells, and says over how many of how many; where there is none it is not estimated. To fill such holes
by a model without interactions would assume what is asked.

Holm's correction is over two families: all main effects of the study, and all its interactions. In each of
them the chance of one or more false claims is at most α.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pgdyno.analysis.comparison.paired_comparison import method_of, ok_by_block
from pgdyno.analysis.comparison.verdict import Verdict, judge
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.statistics.effect import Method, holm_confidences
from pgdyno.analysis.statistics.pooling import Combined, combine
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.results.records import Trial
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


LogRatios = Mapping[int, float]


@dataclass(frozen=True)
class Change:
    """From the first level of a factor to another one."""

    factor: str
    first: str
    level: str


@dataclass(frozen=True)
class Contrast:
    """A change; with ``by``, how many times as large it is after that other change as before it.

    ``among`` counts the combinations of the remaining factors, ``combined.names`` are those that have it.
    ``combined`` is None where it cannot be estimated.
    """

    change: Change
    by: Change | None
    among: int
    combined: Combined | None

    def verdict(self, margin: float) -> Verdict:
        """Faster: the metric is larger, or the change is; same: within the margin."""
        if self.combined is None:
            return Verdict.UNDECIDED
        spread = self.combined.spread
        return judge(spread.low, spread.high, spread.n, margin)


@dataclass(frozen=True)
class Effects:
    """``main`` and ``interactions`` are corrected, each as a family; ``at`` is the change of one factor at
    each level of another, corrected over these.
    """

    design: Design
    main: Sequence[Contrast]
    interactions: Sequence[Contrast]
    at: Mapping[tuple[str, str], Sequence[tuple[str, Contrast]]]  # (factor, other) → (other's level, change)

    def of(self, factor: str) -> list[Contrast]:
        """Its main effects."""
        return [contrast for contrast in self.main if contrast.change.factor == factor]

    def with_factor(self, factor: str) -> list[Contrast]:
        """The interactions that it has a part in, each seen from it."""
        found = []
        for contrast in self.interactions:
            assert contrast.by is not None
            if contrast.change.factor == factor:
                found.append(contrast)
            elif contrast.by.factor == factor:
                found.append(replace(contrast, change=contrast.by, by=contrast.change))
        return found


def effects_of(design: Design, confidence: float) -> Effects | None:
    """None where a single factor varies: the comparisons say it all."""
    if len(design.factors) < 2:
        return None
    return Effects(
        design=design,
        main=_family(design, [(change, None) for of in design.factors for change in changes(of)], confidence),
        interactions=interactions_of(design, confidence),
        at={
            (one.name, other.name): _at_each(design, one, other, confidence)
            for one, other in itertools.permutations(design.factors, 2)
        },
    )


def interactions_of(design: Design, confidence: float) -> list[Contrast]:
    """Of all pairs of factors, all their levels against the first ones: a family."""
    pairs = itertools.combinations(design.factors, 2)
    wanted = [(change, by) for one, other in pairs for change in changes(one) for by in changes(other)]
    return _family(design, wanted, confidence)


def changes(factor: Factor) -> list[Change]:
    """From the first level to each of the others."""
    return [Change(factor.name, factor.levels[0], level) for level in factor.levels[1:]]


def _family(
    design: Design, wanted: Sequence[tuple[Change, Change | None]], confidence: float
) -> list[Contrast]:
    return _holm([_Ratios.of(design, change, by) for change, by in wanted], confidence, design.method)


def _at_each(design: Design, one: Factor, other: Factor, confidence: float) -> list[tuple[str, Contrast]]:
    places = [(change, level) for change in changes(one) for level in other.levels]
    found = [_Ratios.of(design, change, None, {other.name: level}) for change, level in places]
    return [
        (level, contrast)
        for (_, level), contrast in zip(places, _holm(found, confidence, design.method), strict=True)
    ]


@dataclass(frozen=True)
class _Ratios:
    """A contrast before its statistics: combination of the remaining factors → pass → d."""

    change: Change
    by: Change | None
    among: int
    ratios: Mapping[str, LogRatios]

    @classmethod
    def of(cls, design: Design, change: Change, by: Change | None, fixed: Levels | None = None) -> _Ratios:
        """``fixed``: only where these other factors have these levels."""
        fixed = fixed or {}
        named = [change.factor, *fixed, *([by.factor] if by else [])]
        contexts = design.contexts(*named)
        ratios = {}
        for context in contexts:
            corners = _corners(design, {**context, **fixed}, change, by)
            if corners is not None:
                label = ", ".join(f"{factor} {level}" for factor, level in context.items())
                ratios[label] = _within_passes(corners)
        return cls(change, by, len(contexts), {label: d for label, d in ratios.items() if d})


Corners = Sequence[tuple[int, Cell]]
"""Cells with the sign that each has in the contrast."""


def _corners(design: Design, context: Levels, change: Change, by: Change | None) -> Corners | None:
    """None where one of them was not run, or stalled."""
    sides: list[tuple[int, Levels]] = [
        (1, {change.factor: change.level}),
        (-1, {change.factor: change.first}),
    ]
    if by is not None:
        sides = [
            (sign * other, {**levels, by.factor: level})
            for sign, levels in sides
            for other, level in ((1, by.level), (-1, by.first))
        ]
    found = []
    for sign, levels in sides:
        cell = design.at({**context, **levels})
        if cell is None or cell.stalled:
            return None
        found.append((sign, cell))
    return found


def _within_passes(corners: Corners) -> LogRatios:
    """Of the passes that have them all."""
    passes = set.intersection(*(set(cell.logs) for _, cell in corners))
    return {number: sum(sign * cell.logs[number] for sign, cell in corners) for number in sorted(passes)}


def _holm(found: Sequence[_Ratios], confidence: float, method: Method) -> list[Contrast]:
    """Each with an interval at the confidence at which Holm judges it; what has no data is no part of it."""
    alone = [combine(one.ratios, confidence, method) for one in found]
    there = [i for i, combined in enumerate(alone) if combined is not None]
    p_values = [combined.spread.p_value for combined in alone if combined is not None]
    levels = dict(zip(there, holm_confidences(p_values, confidence), strict=True))
    return [
        Contrast(
            one.change, one.by, one.among, combine(one.ratios, levels[i], method) if i in levels else None
        )
        for i, one in enumerate(found)
    ]
