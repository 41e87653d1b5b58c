"""The table ``fit`` of study files; changed, merged and dropped levels of a factor, with all references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from pgdyno.errors import StudyFileError
from pgdyno.features.published.plan import Cell, Published, PublishedTable
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import FeatureTable, StudyFile, level_names
from pgdyno.study.study_file_reader import Errors, has_effect, level_errors
from pgdyno.study.values import Duration, Level, Scalar, Size, StudyTable, level_name
from pgdyno.units import format_duration


class Drop(StudyTable):
    """Levels of one factor that a fit to a smaller machine or a shorter time may remove."""

    factor: str = Field(description="Name of the factor.")
    levels: tuple[Scalar, ...] = Field(
        min_length=1, description="Levels in the order in which they are removed."
    )


class FittedTo(StudyTable):
    """Resources of the machine to which a study was fitted."""

    cores: int = Field(ge=1, description="Logical CPUs.")
    memory_bytes: Size = Field(alias="memory", description='Memory, for example "16GB".')


class Fit(StudyTable):
    """Changes that a fit to a smaller machine or a shorter time may make."""

    drop: tuple[Drop, ...] = Field(default=(), description="Levels that may be removed, in this order.")
    keep_schedule: bool = Field(
        default=False,
        description="Keep the schedule. [default: use slices if the time is short and the servers of all "
        "arms fit into memory together]",
    )
    window_min_s: Duration | None = Field(
        default=None, alias="window_min", description="Shortest window that is still meaningful."
    )
    machine: FittedTo | None = Field(
        default=None,
        description="Machine for which the numbers in this file were chosen, if not the source's. "
        "The fit writes it.",
    )
    notes: tuple[str, ...] = Field(
        default=(), description="Limitations of a fitted study. The report repeats them."
    )


TABLE = FeatureTable("fit", Fit)


def fit_of(file: StudyFile) -> Fit:
    """Return the table ``fit`` of a study file, or its defaults."""
    return file.fit if isinstance(file.fit, Fit) else Fit()


def errors_of(file: StudyFile) -> Errors:
    """Yield the errors in the factors and levels to drop."""
    dropped: dict[str, set[str]] = {}
    for n, drop in enumerate(fit_of(file).drop):
        wrong = list(level_errors(file, ("fit", "drop", n), {drop.factor: drop.levels}))
        for one in wrong:
            # An error in the name belongs to the key factor, one in a level to levels.
            rest = one.path[4:]
            yield StudyFileError(("fit", "drop", n, "levels" if rest else "factor", *rest), one.message)
        dropped.setdefault(drop.factor, set()).update(level_names(drop.levels))
        if not wrong and len(dropped[drop.factor]) >= len(file.factors[drop.factor]):
            yield StudyFileError(("fit", "drop", n, "levels"), f"would drop all levels of {drop.factor}")


REPORTED = (0.9, 1.1)
"""Smaller changes of a ratio are not reported: warehouses, branches, seconds and megabytes are whole."""

RATIO_MAX = 2.0
"""Largest change of a ratio that keeps the question. Sizes are estimates, and a hit ratio changes little
within a factor of two. Data up to this multiple of the memory count as data in memory."""


@dataclass(frozen=True)
class FitChange:
    """A change by the fit. ``key``: path in the study file, or a derived ratio (``data : memory``)."""

    key: str
    before: str
    after: str
    why: str

    @property
    def sentence(self) -> str:
        """The change as text: ``run.window: 1 h → 12 s (…)``."""
        return f"{self.key}: {self.before} → {self.after} ({self.why})"


def ratio(number: float) -> str:
    """Format with three significant digits and without an exponent: ``4.6``, ``0.012``, ``1300``."""
    if number >= 1000:
        return f"{round(number)}"
    return f"{number:.3g}" if number >= 0.001 else f"{number:.6f}".rstrip("0")


def ratio_changes(
    key: str, was: float, now: float, why: str, within: tuple[float, float] = (1 / RATIO_MAX, RATIO_MAX)
) -> list[FitChange]:
    """Return the change of a ratio if the new one divided by the old one is not within these limits."""
    low, high = within
    return [] if low <= now / was <= high else [FitChange(key, ratio(was), ratio(now), why)]


def value_changes(
    key: str, was: Any, now: Any, why: str, text: Callable[[Any], str] = str
) -> list[FitChange]:
    """Return the change of a value, if there is one."""
    return [] if was == now else [FitChange(key, text(was), text(now), why)]


@dataclass(frozen=True)
class Mapped:
    """The new levels of a factor, and the new name of each old level; None for a dropped one.

    ``unlike``: old levels whose published figures have no counterpart at their new level.
    """

    levels: tuple[Level, ...]
    names: Mapping[str, str | None]
    unlike: frozenset[str] = frozenset()


Exclusion = Mapping[str, Scalar | tuple[Scalar, ...]]


def changed_values(levels: Sequence[Level], change: Callable[[Any], Any]) -> Mapped:
    """Return the levels with changed values. Levels with equal values merge into the first one.

    A level named after its value is renamed.
    """
    kept: dict[Any, Level] = {}
    names: dict[str, str | None] = {}
    for level in levels:
        value = change(level.value)
        if value not in kept:
            listed = level.place != level.name
            kept[value] = Level(
                name=level_name(value) if listed else level.name,
                value=value,
                place=len(kept) if listed else level.name,
            )
        names[level.name] = kept[value].name
    return Mapped(tuple(kept.values()), names)


def without_level(levels: Sequence[Level], name: str) -> Mapped:
    """Return the levels without the named one."""
    left = [level for level in levels if level.name != name]
    placed = [
        level if level.place == level.name else level.model_copy(update={"place": n})
        for n, level in enumerate(left)
    ]
    kept = {level.name for level in left}
    return Mapped(tuple(placed), {level.name: level.name if level.name in kept else None for level in levels})


def with_levels(file: StudyFile, factor: str, mapped: Mapped) -> StudyFile:
    """Return the file with new levels of a factor, also in exclusions, published tables and the fit."""
    file = file.model_copy(update={"factors": {**file.factors, factor: mapped.levels}})
    exclude = [one for old in file.exclude if (one := _exclusion(old, factor, mapped.names)) is not None]
    file = file.model_copy(update={"exclude": tuple(exclude)})
    return file.model_copy(
        update={
            "exclude": tuple(one for n, one in enumerate(exclude) if has_effect(file, n)),
            "fit": file.fit
            and file.fit.model_copy(update={"drop": _drops(fit_of(file).drop, factor, mapped)}),
            "published": _published(file.published, factor, {**mapped.names, **dict.fromkeys(mapped.unlike)}),
        }
    )


def _merged(given: Iterable[str], names: Mapping[str, str | None]) -> list[str]:
    """Return the new levels whose old levels are all given, in the order of their last old level."""
    given = list(given)
    wanted = {name for name in names.values() if name is not None}
    whole = {new for new in wanted if all(old in given for old, name in names.items() if name == new)}
    last = {names[old]: n for n, old in enumerate(given)}
    return sorted(whole, key=lambda name: last[name])


def _exclusion(old: Exclusion, factor: str, names: Mapping[str, str | None]) -> Exclusion | None:
    """Return the exclusion with new names. A merged level is excluded only if all its old levels were."""
    if factor not in old:
        return old
    left = _merged(level_names(old[factor]), names)
    if not left:
        return None
    return {**old, factor: tuple(left) if isinstance(old[factor], tuple) else left[0]}


def _drops(drops: Sequence[Drop], factor: str, mapped: Mapped) -> tuple[Drop, ...]:
    """Return the remaining levels to drop; at least one level of the factor is kept."""
    kept: list[Drop] = []
    dropped: set[str] = set()
    for old in drops:
        if old.factor != factor:
            kept.append(old)
            continue
        names = [name for name in _merged(level_names(old.levels), mapped.names) if name not in dropped]
        names = names[: len(mapped.levels) - 1 - len(dropped)]
        dropped |= set(names)
        if names:
            kept.append(Drop(factor=factor, levels=tuple(names)))
    return tuple(kept)


def _published(
    published: StudyTable | None, factor: str, names: Mapping[str, str | None]
) -> StudyTable | None:
    if not isinstance(published, Published):
        return published
    tables = tuple(_table(table, factor, names) for table in published.tables)
    return published.model_copy(update={"tables": tables})


def _table(table: PublishedTable, factor: str, names: Mapping[str, str | None]) -> PublishedTable:
    """Return the table with new names of levels. Metrics and levels are in its cells only."""
    rows = tuple(
        row.model_copy(
            update={
                **NOTHING,
                "cells": tuple(
                    _renamed(cell, figure, factor, names)
                    for cell, figure in zip(row.cells, figures, strict=True)
                ),
            }
        )
        for row, figures in zip(table.rows, table.figures(), strict=True)
    )
    columns = tuple(column.model_copy(update=NOTHING) for column in table.columns)
    return table.model_copy(update={**NOTHING, "columns": columns, "rows": rows})


NOTHING: Mapping[str, object] = {
    "metric": None,
    "levels": {},
    "against": {},
    "source_levels": {},
    "show": None,
}


def _renamed(cell: Cell, figure: Cell, factor: str, names: Mapping[str, str | None]) -> Cell:
    """Return the cell with the reference of its figure; it is marked if it refers to a dropped level.

    A value is also measured without the level of ``against``; a change is not.
    """
    against = figure.against
    if figure.show != "change" and factor in against and names[level_name(against[factor])] is None:
        against = {}
    both = {"levels": figure.levels, "against": against}
    if any(factor in of and names[level_name(of[factor])] is None for of in both.values()):
        is_asked = figure.metric is not None and figure.value is not None
        return cell.model_copy(update={**NOTHING, "show": figure.show, "dropped": is_asked or cell.dropped})
    renamed = {
        key: {**of, factor: names[level_name(of[factor])]} if factor in of else of for key, of in both.items()
    }
    source = dict(figure.source_levels)
    if factor in figure.levels and renamed["levels"][factor] != level_name(figure.levels[factor]):
        source.setdefault(factor, figure.levels[factor])
    update = {"metric": figure.metric, "show": figure.show, "source_levels": source, **renamed}
    return cell.model_copy(update=update)


def with_dropped_levels(file: StudyFile) -> Iterator[StudyFile]:
    """Yield the file, then with one more level dropped each time, in the order of ``[fit]``."""
    yield file
    for drop in fit_of(file).drop:
        for name in level_names(drop.levels):
            left = _if_possible(file, drop.factor, without_level(file.factors[drop.factor], name))
            if left is not None:
                file = left
                yield file


def with_fewer_levels(file: StudyFile) -> Iterator[StudyFile]:
    """Yield the file with fewer levels of the longest case factor: first, middle and last; two; one."""
    while factors := [name for name in file.case_factors if len(file.factors[name]) > 1]:
        longest = max(factors, key=lambda name: len(file.factors[name]))
        levels = file.factors[longest]
        last = len(levels) - 1
        kept = {0, last // 2, last} if last > 2 else {0, last} if last == 2 else {0}
        for name in [level.name for n, level in enumerate(levels) if n not in kept]:
            left = _if_possible(file, longest, without_level(file.factors[longest], name))
            if left is None:
                return
            file = left
        yield file


def _if_possible(file: StudyFile, factor: str, mapped: Mapped) -> StudyFile | None:
    """Return the file with these levels, or None if a case would have fewer than two arms."""
    left = with_levels(file, factor, mapped)
    try:
        cases_of(left)
    except StudyFileError:
        return None
    return left


def level_changes(before: StudyFile, after: StudyFile, minutes: float) -> list[FitChange]:
    """Return the changes of factors with dropped levels."""
    why = f"all of them do not fit into {format_duration(60 * minutes)}"
    return [
        FitChange(f"factors.{name}", _listed(before, name), _listed(after, name), why)
        for name in before.factors
        if len(before.factors[name]) != len(after.factors[name])
    ]


def _listed(file: StudyFile, factor: str) -> str:
    return ", ".join(level.name for level in file.factors[factor])
