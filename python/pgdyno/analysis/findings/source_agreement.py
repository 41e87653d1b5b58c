"""Comparison of the measured changes with the published ones: direction and size.

A published table has changes, or values of which changes follow: an arm against the baseline in the same
table, and a level of ``settings`` against the first one. A published value has no interval, so agreement
means that the interval measured here contains it. The intervals hold simultaneously (Holm), because a few of
many changes would differ from the source at random.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from pgdyno.analysis.findings.published_tables import Item, items_of
from pgdyno.analysis.statistics.effect import simultaneous
from pgdyno.analysis.statistics.pooling import LogRatios, combine
from pgdyno.analysis.telemetry.trial_telemetry import CaseValues
from pgdyno.estimate import Better, Estimate
from pgdyno.study.published_experiment import Cell, Published, PublishedTable
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN


class Agreement(StrEnum):
    """Result of the comparison; the text is shown."""

    OPPOSITE = "opposite sign"
    NOT_REPRODUCED = "not reproduced"
    ONLY_HERE = "change here only"
    SMALLER = "same sign, smaller"
    LARGER = "same sign, larger"
    AGREES = "agrees"
    UNRESOLVED = "not resolved"
    NO_INTERVAL = "no CI"


@dataclass(frozen=True)
class SourceChange:
    """A change in percent: of the source (corrected, if it was wrong), and measured here.

    ``what`` names the row, ``arm`` and ``baseline`` are compared.
    """

    table: str
    what: str
    arm: str
    baseline: str
    published_percent: float
    measured: Estimate

    @property
    def agreement(self) -> Agreement:
        """Return whether direction and size agree with the source."""
        here, then = self.measured, self.published_percent
        if here.low is None or here.high is None or here.n < VERDICT_BLOCKS_MIN:
            return Agreement.NO_INTERVAL
        contains_zero = here.low <= 0 <= here.high
        if here.low <= then <= here.high:
            return Agreement.UNRESOLVED if contains_zero and then else Agreement.AGREES
        if contains_zero:
            return Agreement.NOT_REPRODUCED
        if then == 0:
            return Agreement.ONLY_HERE
        if here.value * then < 0:
            return Agreement.OPPOSITE
        return Agreement.LARGER if abs(here.value) > abs(then) else Agreement.SMALLER


def changes_of_source(published: Published, cases: Sequence[CaseValues]) -> list[SourceChange]:
    """Return each change of the source that was measured here, in the order of its tables."""
    if not cases or not cases[0].arms:
        return []
    found: dict[object, Compared] = {}
    for table in published.tables:
        for key, compared in _changes(table, cases):
            found.setdefault(key, compared)
    estimators = [partial(combine, ratios, method=cases[0].method) for _, ratios in found.values()]
    estimates = simultaneous(estimators, cases[0].confidence)
    return [
        change_of(estimate.percent(Better.NEITHER))
        for (change_of, _), estimate in zip(found.values(), estimates, strict=True)
        if estimate is not None
    ]


Place = tuple[int, int]
Compared = tuple[Callable[[Estimate], SourceChange], Mapping[str, LogRatios]]
"""A published change without its estimate, and the measured log ratios by case or statement."""


def _changes(table: PublishedTable, cases: Sequence[CaseValues]) -> Iterator[tuple[object, Compared]]:
    figures = {
        (r, c): cell
        for r, row in enumerate(table.figures())
        for c, cell in enumerate(row)
        if cell.metric is not None and cell.value is not None
    }
    for place, cell in sorted(figures.items(), key=lambda one: one[1].show != "change"):
        if cell.show == "change":
            yield from _printed(table, place, cell, cases)
            continue
        for base in _bases(cell, figures, cases):
            yield from _of_values(table, place, base, figures, cases)


def _identity(cell: Cell) -> tuple[object, ...]:
    return cell.metric, cell.relation, cell.statements


def _printed(
    table: PublishedTable, place: Place, cell: Cell, cases: Sequence[CaseValues]
) -> Iterator[tuple[object, Compared]]:
    first = cases[0].arms[0]
    levels = {factor: str(level) for factor, level in {**first, **cell.levels}.items()}
    against = {
        factor: str(cell.against.get(factor, first.get(factor, level))) for factor, level in levels.items()
    }
    compared = {factor for factor in (*cell.levels, *cell.against) if factor in first}
    base = cell.model_copy(update={"levels": {**cell.levels, **{f: against[f] for f in compared}}})
    ratios, then = _ratios(cell, base, cases), _right_value(cell)
    if ratios and then is not None:
        names = _names(levels, {**levels, **{f: against[f] for f in compared}})
        key = (_identity(cell), tuple(sorted(levels.items())), tuple(sorted(against.items())))
        yield key, (partial(SourceChange, table.title, _row_name(table, place), *names, then), ratios)


def _right_value(cell: Cell) -> float | None:
    """Return the published value, corrected if it was wrong."""
    return cell.value if cell.corrected is None else cell.corrected


def _bases(cell: Cell, figures: Mapping[Place, Cell], cases: Sequence[CaseValues]) -> Iterator[Place]:
    """Yield the figures of the baseline and of the first level of ``settings``; other levels are equal."""
    first = cases[0].arms[0]
    own = dict(cell.levels)
    wanted = [{**own, **{f: level for f, level in first.items() if f in own}}]
    settings = next((case.levels["settings"] for case in cases if "settings" in case.levels), None)
    if settings is not None and "settings" in own:
        wanted.append({**own, "settings": settings})
    values = {place: of for place, of in figures.items() if of.show != "change"}
    same = {place: of for place, of in values.items() if _identity(of) == _identity(cell)}
    for levels in wanted:
        if levels != own:
            yield from [place for place, of in same.items() if dict(of.levels) == levels][:1]


def _of_values(
    table: PublishedTable,
    place: Place,
    base: Place,
    figures: Mapping[Place, Cell],
    cases: Sequence[CaseValues],
) -> Iterator[tuple[object, Compared]]:
    cell, other = figures[place], figures[base]
    value, base_value = _right_value(cell), _right_value(other)
    if not value or not base_value:
        return
    ratios = _ratios(cell, other, cases)
    if not ratios:
        return
    then = 100 * (value / base_value - 1)
    names = _names(cell.levels, other.levels)
    levels = [tuple(sorted((f, str(v)) for f, v in one.levels.items())) for one in (cell, other)]
    yield (
        (_identity(cell), *levels),
        (partial(SourceChange, table.title, _row_name(table, place), *names, then), ratios),
    )


def _names(levels: Mapping[str, object], base: Mapping[str, object]) -> tuple[str, str]:
    """Return the levels of both that differ."""
    differing = [factor for factor in levels if levels[factor] != base.get(factor)]
    arm, baseline = (", ".join(str(of[factor]) for factor in differing) for of in (levels, base))
    return arm, baseline


def _row_name(table: PublishedTable, place: Place) -> str:
    """Return the texts of the row, where an empty first one repeats the row above, and the other levels."""
    row, _ = place
    cells = table.rows[row].cells
    texts = [cell.text for cell in cells if cell.value is None and cell.text]
    if cells[0].text == "":
        above = next((of.cells[0].text for of in reversed(table.rows[:row]) if of.cells[0].text), None)
        texts = [above, *texts] if above else texts
    column = table.columns[place[1]].title
    return ", ".join(filter(None, [*texts, column]))


def _ratios(cell: Cell, base: Cell, cases: Sequence[CaseValues]) -> dict[str, dict[int, float]]:
    """Return the log ratios of common blocks by case or statement; empty if one of the two has no value."""
    pair = items_of(cell, cases), items_of(base, cases)
    if not pair[0] or len(pair[0]) != len(pair[1]) or pair[0] == pair[1]:
        return {}
    ratios = {f"{n}": _log_ratios(*of) for n, of in enumerate(zip(*pair, strict=True))}
    return {name: of for name, of in ratios.items() if of}


def _log_ratios(item: Item, base: Item) -> dict[int, float]:
    x, y = item.blocks(item.arm), base.blocks(base.arm)
    return {b: math.log(x[b] / y[b]) for b in sorted(x.keys() & y.keys()) if x[b] > 0 and y[b] > 0}


def counts_of(changes: Sequence[SourceChange]) -> Mapping[Agreement, int]:
    """Return the number of changes by agreement, in the order of ``Agreement``."""
    found = Counter(change.agreement for change in changes)
    return {agreement: found[agreement] for agreement in Agreement if found[agreement]}
