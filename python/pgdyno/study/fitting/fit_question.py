"""Check that a fitted study still asks the question of its source.

A question is kept if the settings that differ between arms or cases still differ, and if the ratios of data,
shared buffers, memory, checkpoints, clients and cores are near those of the source.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import cases_of, setting_of
from pgdyno.study.fitting.fit_data import Memories, data_sizes, shared_buffers_of
from pgdyno.study.fitting.fit_levels import RATIO_MAX, FitChange, ratio
from pgdyno.study.fitting.fit_schedule import CHECKPOINTS_MIN, checkpoints_of
from pgdyno.study.fitting.fit_settings import RULES, quantity
from pgdyno.study.forecast_cost import Costs, costs_of
from pgdyno.study.study_file import StudyFile, level_names
from pgdyno.study.values import Level, level_name
from pgdyno.units import format_size

CHECKPOINT_DISTANCE = frozenset({"checkpoint_timeout", "max_wal_size"})
"""Settings of one treatment: the first limit that is reached starts a checkpoint."""


LOST = "question: "
"""Prefix of the keys of stored changes that lose the question."""

NOT_THE_QUESTION = "Does not reproduce the source's question"


@dataclass(frozen=True)
class Asked:
    """A study with its scale: the file, and the cores and memory of the machine of its numbers."""

    file: StudyFile
    cores: int
    memory_bytes: int


def losses(original: StudyFile, source: Asked, fitted: Asked) -> list[FitChange]:
    """Return the changes that lose the question of ``original``; none if it is kept.

    ``source`` is the study without the levels that the fit dropped, before its sizes changed.
    """
    found = [*_dropped(original, fitted.file), *_equal_settings(source.file, fitted.file)]
    before, after = (costs_of(cases_of(one.file)) for one in (source, fitted))
    memories = Memories(source.memory_bytes, fitted.memory_bytes)
    found += _data_ratios(before, after, memories)
    found += _checkpoints(source.file, fitted.file, before)
    found += _clients(source, fitted, before, after)
    return list(dict.fromkeys(found))


def memory_needed_bytes(
    lost: Sequence[FitChange], before: Costs, after: Costs, source_bytes: int
) -> int | None:
    """Return the memory with which the data keep their ratio to it; None if that ratio is kept."""
    if not any(change.key == DATA_TO_MEMORY for change in lost):
        return None
    was, now = max(data_sizes(before)), max(data_sizes(after))
    return round(source_bytes * now / was)


def _dropped(before: StudyFile, after: StudyFile) -> Iterator[FitChange]:
    """Yield the arms and settings that were dropped, although ``[fit]`` does not allow it."""
    single = [factor for factor in before.factors if setting_of(factor)]
    for factor in dict.fromkeys([*before.compare, "settings", *single]):
        if factor not in before.factors or factor not in after.factors:
            continue
        allowed = {
            name for drop in before.fit.drop if drop.factor == factor for name in level_names(drop.levels)
        }
        left = len(after.factors[factor])
        names = [level.name for level in before.factors[factor]]
        if left < len(set(names) - allowed):
            kept = ", ".join(level.name for level in after.factors[factor])
            yield FitChange(f"factors.{factor}", ", ".join(names), kept, "the treatment was dropped")


def _settings_of(file: StudyFile) -> dict[str, dict[str, str]]:
    """Return the settings by level of ``settings``; without that factor, those of all arms."""
    shared = {name.lower(): text for name, text in file.settings.values.items()}
    levels = file.factors.get("settings", ())
    return {level.name: {**shared, **_own(level)} for level in levels} if levels else {"": shared}


def _own(level: Level) -> Mapping[str, str]:
    if isinstance(level.value, str):
        return parse_arm(f"any,{level.value}").settings
    if not isinstance(level.value, Mapping):
        return {}
    scalars = {name: value for name, value in level.value.items() if isinstance(value, str | int | float)}
    return {name.lower(): level_name(value) for name, value in scalars.items() if name != "about"}


def _equal_settings(before: StudyFile, after: StudyFile) -> Iterator[FitChange]:
    """Yield the settings that differ between two levels of ``settings`` before the fit only."""
    was, now = _settings_of(before), _settings_of(after)
    for a, b in itertools.combinations(range(min(len(was), len(now))), 2):
        pairs = [(list(of.values())[a], list(of.values())[b]) for of in (was, now)]
        differing = [_differing(*pair) for pair in pairs]
        lost = differing[0] - differing[1]
        if lost & CHECKPOINT_DISTANCE and differing[1] & CHECKPOINT_DISTANCE:
            lost -= CHECKPOINT_DISTANCE
        for name in sorted(lost):
            then = ", ".join(one.get(name, "default") for one in pairs[0])
            here = ", ".join(one.get(name, "default") for one in pairs[1])
            yield FitChange(name, then, here, "the arms no longer differ in it")


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> set[str]:
    return {name for name in {*a, *b} if _value(name, a.get(name)) != _value(name, b.get(name))}


def _value(name: str, text: str | None) -> object:
    if name not in RULES:
        return text
    return RULES[name].default if text is None else quantity(name, text) or text


DATA_TO_MEMORY = "data : memory"


def _is_near(was: float, now: float) -> bool:
    return 1 / RATIO_MAX <= now / was <= RATIO_MAX


def _data_ratios(before: Costs, after: Costs, memories: Memories) -> Iterator[FitChange]:
    sizes = [data_sizes(costs) for costs in (before, after)]
    for then, here in zip(*sizes, strict=False):
        was, now = then / memories.before, here / memories.after
        if max(was, now) > RATIO_MAX and not _is_near(was, now):
            why = (
                "data larger than the memory at the source only"
                if was > now
                else "data larger than the memory"
            )
            yield FitChange(DATA_TO_MEMORY, ratio(was), ratio(now), why)
    largest = [max(of) for of in sizes]
    for then, here in zip(*(shared_buffers_of(costs) for costs in (before, after)), strict=False):
        was, now = largest[0] / then, largest[1] / here
        if not _is_near(was, now):
            yield FitChange(
                "data : shared_buffers", ratio(was), ratio(now), f"shared_buffers {format_size(here)}"
            )


def _checkpoints(before: StudyFile, after: StudyFile, costs: Costs) -> Iterator[FitChange]:
    if not any(arm.writes for case in costs for arm in case):
        return
    for was, now in zip(checkpoints_of(before), checkpoints_of(after), strict=False):
        if not _is_near(was, now) and min(was, now) < CHECKPOINTS_MIN:
            yield FitChange(
                "timed checkpoints per window",
                ratio(was),
                ratio(now),
                "the window is too short for checkpoints",
            )


def _clients(source: Asked, fitted: Asked, before: Costs, after: Costs) -> Iterator[FitChange]:
    was, now = (max(arm.clients for case in costs for arm in case) for costs in (before, after))
    if not _is_near(was / source.cores, now / fitted.cores) and was != now:
        yield FitChange(
            "clients : cores", ratio(was / source.cores), ratio(now / fitted.cores), "clients are whole"
        )
