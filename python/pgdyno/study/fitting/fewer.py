"""Fewer levels where all do not fit into the time: those that the file names, then those between the ends."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.errors import StudyFileError
from pgdyno.study.cases import cases_of
from pgdyno.study.file import StudyFile, level_names
from pgdyno.study.fitting.change import Change
from pgdyno.study.fitting.levels import Mapped, with_levels, without
from pgdyno.units import format_duration


def dropping(file: StudyFile) -> Iterator[StudyFile]:
    """The file, and with one level less each time, in the order that it gives in ``[fit]``."""
    yield file
    for drop in file.fit.drop:
        for name in level_names(drop.levels):
            left = _if_possible(file, drop.factor, without(file.factors[drop.factor], name))
            if left is not None:
                file = left
                yield file


def thinning(file: StudyFile) -> Iterator[StudyFile]:
    """With fewer levels of the longest factor that makes cases: first, middle, last, then two, then one."""
    while factors := [name for name in file.case_factors if len(file.factors[name]) > 1]:
        longest = max(factors, key=lambda name: len(file.factors[name]))
        levels = file.factors[longest]
        last = len(levels) - 1
        kept = {0, last // 2, last} if last > 2 else {0, last} if last == 2 else {0}
        for name in [level.name for n, level in enumerate(levels) if n not in kept]:
            left = _if_possible(file, longest, without(file.factors[longest], name))
            if left is None:
                return
            file = left
        yield file


def _if_possible(file: StudyFile, factor: str, mapped: Mapped) -> StudyFile | None:
    """The file with these levels, unless some case would be left without two arms."""
    left = with_levels(file, factor, mapped)
    try:
        cases_of(left)
    except StudyFileError:
        return None
    return left


def level_changes(before: StudyFile, after: StudyFile, minutes: float) -> list[Change]:
    """The factors that lost levels, but for those whose levels met."""
    why = f"all of them do not fit into {format_duration(60 * minutes)}"
    return [
        Change(f"factors.{name}", _listed(before, name), _listed(after, name), why)
        for name in before.factors
        if len(before.factors[name]) != len(after.factors[name])
    ]


def _listed(file: StudyFile, factor: str) -> str:
    return ", ".join(level.name for level in file.factors[factor])
