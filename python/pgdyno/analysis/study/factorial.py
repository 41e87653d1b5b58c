"""What each factor of a study changes, and whether that depends on another: main effects and interactions.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.analysis.comparison.verdict import Verdict, judge
from pgdyno.analysis.statistics.combined import Combined, combine
from pgdyno.analysis.statistics.effect import Method, holm_confidences
from pgdyno.analysis.study.cells import Cell, Design, Factor, Levels

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
