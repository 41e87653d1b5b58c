"""The fit of a study to a machine and a time budget: needs and question.

- Check that a fitted study still asks the question of its source.
- Fit of a study to a machine and a time budget, which keeps the characteristic ratios. Pure.
- Time and memory with which a fit keeps the question of its source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pgdyno.errors import UsageError
from pgdyno.features.fitting.levels import (
    RATIO_MAX,
    FitChange,
    FittedTo,
    fit_of,
    level_changes,
    ratio_changes,
    with_dropped_levels,
    with_fewer_levels,
)
from pgdyno.features.fitting.rules import (
    BLOCKS_MIN,
    CHECKPOINT_WINDOW_S,
    CHECKPOINTS_MIN,
    RULES,
    SLICES_MIN,
    WINDOW_MIN_S,
    DataFactor,
    FitMachine,
    FitTask,
    Layout,
    RequestedLengths,
    Room,
    Scales,
    checkpoints_of,
    contrasted_of,
    data_changes,
    data_sizes,
    factor_of,
    fit_clients,
    fit_data,
    fit_duet,
    fit_in_memory_together,
    fit_run,
    fit_settings,
    lay_out,
    paired,
    quantity,
    run_changes,
    shared_buffers_of,
    shortest,
)
from pgdyno.features.planning.cost import (
    Costs,
    aa_share,
    arms_of,
    costs_of,
    data_s,
    pass_s,
    search_s,
    searches_s,
    trials_s,
    window_s,
)
from pgdyno.study.cases import Case, cases_of, own_settings_of, setting_of
from pgdyno.study.defaults import TOGETHER, default_slice_s, slice_s_of
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.study.study_file import StudyFile, level_names
from pgdyno.units import format_duration, format_size

# ----------------------------------------------------------------------
# Check that a fitted study still asks the question of its source.
#
# A question is kept if the settings that differ between arms or cases still differ, and if the ratios of
# data, shared buffers, memory, checkpoints, clients and cores are near those of the source.
# ----------------------------------------------------------------------

CHECKPOINT_DISTANCE = frozenset({"checkpoint_timeout", "max_wal_size"})
"""Settings of one treatment: the first limit that is reached starts a checkpoint."""


@dataclass(frozen=True)
class Asked:
    """A study with its scale: the file, and the cores and memory of the machine of its numbers."""

    file: StudyFile
    cores: int
    memory_bytes: int

    @cached_property
    def costs(self) -> Costs:
        """Costs by case and arm."""
        return costs_of(cases_of(self.file))

    @property
    def clients(self) -> int:
        """Largest number of clients."""
        return max(arm.clients for arm in arms_of(self.costs))


def losses(original: StudyFile, source: Asked, fitted: Asked) -> list[FitChange]:
    """Return the changes that lose the question of ``original``; none if it is kept.

    ``source`` is the study without the levels that the fit dropped, before its sizes changed.
    """
    found = [*_dropped(original, fitted.file), *_equal_settings(source.file, fitted.file)]
    sizes, buffers, checkpoints = (
        [of(source), of(fitted)]
        for of in (
            lambda one: data_sizes(one.costs),
            lambda one: shared_buffers_of(one.costs),
            lambda one: checkpoints_of(one.file),
        )
    )
    for then, here in paired(*sizes):
        was, now = then / source.memory_bytes, here / fitted.memory_bytes
        if max(was, now) > RATIO_MAX:
            where = " at the source only" if was > now else ""
            found += ratio_changes(DATA_TO_MEMORY, was, now, f"data larger than the memory{where}")
    for then, here in paired(*buffers):
        was, now = max(sizes[0]) / then, max(sizes[1]) / here
        found += ratio_changes(
            "data : shared_buffers", was, now, f"shared_buffers {format_size(round(here))}"
        )
    writes = any(arm.writes for arm in arms_of(source.costs))
    for was, now in paired(*checkpoints):
        if writes and min(was, now) < CHECKPOINTS_MIN:
            why = "the window is too short for checkpoints"
            found += ratio_changes("timed checkpoints per window", was, now, why)
    if source.clients != fitted.clients:
        was, now = (one.clients / one.cores for one in (source, fitted))
        found += ratio_changes("clients : cores", was, now, "clients are whole")
    return list(dict.fromkeys(found))


def _dropped(before: StudyFile, after: StudyFile) -> Iterator[FitChange]:
    """Yield the arms and settings that were dropped, although ``[fit]`` does not allow it."""
    single = [factor for factor in before.factors if setting_of(factor)]
    for factor in dict.fromkeys([*before.compare, "settings", *single]):
        if factor not in before.factors or factor not in after.factors:
            continue
        allowed = {
            name for drop in fit_of(before).drop if drop.factor == factor for name in level_names(drop.levels)
        }
        left = len(after.factors[factor])
        names = [level.name for level in before.factors[factor]]
        if left < len(set(names) - allowed):
            kept = ", ".join(level.name for level in after.factors[factor])
            yield FitChange(f"factors.{factor}", ", ".join(names), kept, "the treatment was dropped")


def _settings_of(file: StudyFile) -> dict[str, Mapping[str, str]]:
    """Return the settings by level of ``settings``; without that factor, those of all arms."""
    levels = file.factors.get("settings", ())
    own = {level.name: own_settings_of({"settings": level}).values for level in levels}
    return {name: {**file.settings.values, **values} for name, values in (own or {"": {}}).items()}


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


# ----------------------------------------------------------------------
# Fit of a study to a machine and a time budget, which keeps the characteristic ratios. Pure.
#
# Kept ratios: data : shared buffers : memory, clients per core, the shares of memory and cores in the
# settings, checkpoints per window, warm-up : window. All other changes are reported. If the time is short:
# shorter windows and warm-ups, then fewer levels if the file allows it, then fewer blocks. A fit that loses
# the question of the source says so. README.md explains the rules.
#
# A fitted file is an ordinary study file; fitting it again changes nothing.
# ----------------------------------------------------------------------

LONG_WINDOW_S = 600.0
"""Trials of this length include checkpoints, and need not be close in time."""


@dataclass(frozen=True)
class Fitted:
    """The fitted study, and all changes.

    ``lost``: changes that lose the question of the source. ``memory_bytes``: memory with which the data would
    keep their ratio to it, if that is lost. ``dropped``: factors with their dropped levels.
    """

    file: StudyFile
    changes: tuple[FitChange, ...]
    lost: tuple[FitChange, ...] = ()
    memory_bytes: int | None = None
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Draft:
    """A file with the remaining levels, and its layout; None keeps the lengths of the file."""

    file: StudyFile
    factor: DataFactor
    layout: Layout | None
    wanted: RequestedLengths
    slice_s: float | None


def fit_study(file: StudyFile, machine: FitMachine, minutes: float) -> Fitted:
    """Return the study fitted to the machine and to ``minutes`` of measurement, without loading.

    ``file`` must be valid (``study/study_file_reader.py``). Raises UsageError if the disk is too small.
    """
    made_for = _made_for(file)
    before = costs_of(cases_of(file))
    task = FitTask(
        machine,
        minutes,
        machine.cores / made_for.cores if made_for else 1.0,
        machine.memory_bytes / made_for.memory_bytes if made_for else 1.0,
        contrasted_of(before),
        is_from_elsewhere=made_for is not None,
        is_settled=made_for is not None and made_for == fit_of(file).machine == _as_made_for(machine),
    )
    changes = _machine_changes(made_for, task)
    scheduled, found = fit_duet(file, machine.cores)
    changes += found
    with_clients, found = fit_clients(scheduled, task.cores)
    changes += found
    draft = _full_length_draft(task, with_clients)
    if draft is None and made_for is not None:
        draft = _asking_draft(task, file, with_clients, made_for)
    draft = draft or _shortened_draft(task, with_clients)
    if draft.wanted.aa_share and draft.layout is not None and draft.layout.blocks < VERDICT_BLOCKS_MIN:
        return _without_aa(fit_study(file.with_run(aa=False), machine, minutes))
    changes += level_changes(with_clients, draft.file, minutes)
    fitted, found = _applied(task, draft)
    changes += found
    changes += run_changes(scheduled, fitted, draft.layout, task.time_s, machine)
    before, after = costs_of(cases_of(draft.file)), costs_of(cases_of(fitted))
    changes += data_changes(before, after, task, None if made_for is None else made_for.memory_bytes)
    lost = _lost(task, file, draft.file, fitted, made_for)
    needed_bytes = None  # the memory with which the data keep their ratio to it, if that is lost
    if made_for is not None and any(change.key == DATA_TO_MEMORY for change in lost):
        was, now = (max(data_sizes(costs)) for costs in (before, after))
        needed_bytes = round(made_for.memory_bytes * now / was)
    if made_for is not None and (made_for != _as_made_for(machine) or draft.factor.value != 1):
        update = {"machine": _as_made_for(machine)}
        fitted = fitted.model_copy(update={"fit": fit_of(fitted).model_copy(update=update)})
    return Fitted(
        fitted, tuple(changes), tuple(lost), needed_bytes, tuple(_dropped_parts(with_clients, draft.file))
    )


def _dropped_parts(before: StudyFile, after: StudyFile) -> Iterator[str]:
    """Yield each factor with its dropped levels, for example ``scale 5000``."""
    for name, levels in before.factors.items():
        left = {level.name for level in after.factors[name]}
        if gone := [level.name for level in levels if level.name not in left]:
            yield f"{name} {', '.join(gone)}"


def _lost(
    task: FitTask, file: StudyFile, before: StudyFile, fitted: StudyFile, made_for: FittedTo | None
) -> list[FitChange]:
    """Return the changes that lose the question; ``before`` has the levels of the fitted file."""
    if made_for is None or task.is_settled:
        return []
    source = Asked(before, made_for.cores, made_for.memory_bytes)
    return losses(file, source, Asked(fitted, task.machine.cores, task.machine.memory_bytes))


def _asking_draft(task: FitTask, file: StudyFile, left: StudyFile, made_for: FittedTo) -> _Draft | None:
    """Return a draft that keeps the question, with windows for checkpoints and few levels dropped."""
    asking = replace(task, asks=not task.is_settled)
    for one in with_dropped_levels(left):
        draft = _laid_out(asking, one, VERDICT_BLOCKS_MIN)
        if draft is not None and not _lost(task, file, one, _applied(task, draft)[0], made_for):
            return draft
    return None


def _without_aa(fitted: Fitted) -> Fitted:
    """Disable A/A blocks, because a verdict has priority over the measurement of noise."""
    why = f"with A/A blocks, fewer than {VERDICT_BLOCKS_MIN} blocks of the arms would fit"
    return replace(fitted, changes=(*fitted.changes, FitChange("run.aa", "true", "false", why)))


def _as_made_for(machine: FitMachine) -> FittedTo:
    return FittedTo(cores=machine.cores, memory=machine.memory_bytes)


def _made_for(file: StudyFile) -> FittedTo | None:
    """Return the machine for which the numbers of the file are meant."""
    if fit_of(file).machine is not None:
        return fit_of(file).machine
    source = file.source.machine if file.source else None
    return None if source is None else FittedTo(cores=source.cores, memory=source.memory_bytes)


def _machine_changes(made_for: FittedTo | None, task: FitTask) -> list[FitChange]:
    if made_for is None or (task.cores == 1 and task.memory == 1):
        return []
    then, here = (f"{of.cores} cores, {format_size(of.memory_bytes)}" for of in (made_for, task.machine))
    return [FitChange("fit.machine", then, here, "machine to which the study is fitted")]


def _full_length_draft(task: FitTask, file: StudyFile) -> _Draft | None:
    """Return a draft with the lengths of the file, or None if it takes longer than the time budget."""
    budget_s = file.run.budget_s
    if budget_s is not None and budget_s > task.time_s:
        file, budget_s = file.with_run(budget_s=task.time_s), None
    cases = cases_of(file)
    factor = _factor(task, file, cases, None)
    sized = cases_of(fit_data(file, factor)[0])
    passes = min(task.time_s, file.run.budget_s or task.time_s) / pass_s(sized, task.machine)
    wanted = file.run.repeats or VERDICT_BLOCKS_MIN
    if passes < (min(wanted, BLOCKS_MIN) if budget_s is not None else wanted):
        return None
    return _Draft(file, factor, None, _wanted(task, file, cases, factor, None), None)


def _shortened_draft(task: FitTask, file: StudyFile) -> _Draft:
    """Return a draft with shorter windows, then fewer levels, then fewer blocks."""
    left = file
    for left in with_dropped_levels(file):
        if draft := _laid_out(task, left, VERDICT_BLOCKS_MIN):
            return draft
    for blocks in range(VERDICT_BLOCKS_MIN - 1, BLOCKS_MIN - 1, -1):
        if draft := _laid_out(task, left, blocks):
            return draft
    for thinner in with_fewer_levels(left):
        left = thinner
        if draft := _laid_out(task, left, BLOCKS_MIN):
            return draft
    draft = _draft(task, left, in_turns=True)
    return replace(draft, layout=shortest(draft.wanted))


def _laid_out(task: FitTask, file: StudyFile, blocks: int) -> _Draft | None:
    """Return a draft with slices if possible and windows are short; None if the blocks do not fit."""
    draft = _draft(task, file, in_turns=True)
    layout = lay_out(draft.wanted, blocks)
    is_new = draft.slice_s is not None and file.run.schedule not in TOGETHER
    if layout is not None and is_new and layout.window_s > LONG_WINDOW_S:
        draft = _draft(task, file, in_turns=False)
        layout = lay_out(draft.wanted, blocks)
    return None if layout is None else replace(draft, layout=layout)


def _draft(task: FitTask, file: StudyFile, *, in_turns: bool) -> _Draft:
    cases = cases_of(file)
    factor = _factor(task, file, cases, VERDICT_BLOCKS_MIN)
    slice_s = _slice_s(task, file, cases, factor) if in_turns or file.run.schedule in TOGETHER else None
    return _Draft(file, factor, None, _wanted(task, file, cases, factor, slice_s), slice_s)


def _factor(task: FitTask, file: StudyFile, cases: tuple[Case, ...], blocks: int | None) -> DataFactor:
    room = Room(
        task=task,
        study=cases[0].study,
        growing_s=_growing_s(task, file, cases, is_shortened=blocks is not None),
        blocks=blocks if task.is_from_elsewhere else None,
        aa_share=aa_share(cases, in_slices=not fit_of(file).keep_schedule),
    )
    return factor_of(costs_of(cases), room)


def _growing_s(task: FitTask, file: StudyFile, cases: tuple[Case, ...], *, is_shortened: bool) -> float:
    """Return the maximum time in which the data of a trial grow, before the window is known."""
    searched_s = max(search_s(case.study, task.machine) for case in cases)
    window_s = min(task.time_s, _longest_window_s(task, cases))
    if not is_shortened:
        return searched_s + window_s
    share_s = task.time_s / sum(len(case.arms) for case in cases)
    least_s = max(WINDOW_MIN_S, fit_of(file).window_min_s or 0.0)
    if cases[0].study.transactions is not None:
        # A server may be faster than forecast, so the transactions may take all of its time.
        return searched_s + max(share_s, min(window_s, least_s))
    slice_s = file.run.slice_s or _default_slice_s(task, file, cases)
    return searched_s + min(window_s, max(share_s / BLOCKS_MIN, least_s, (SLICES_MIN + 2) * slice_s))


def _longest_window_s(task: FitTask, cases: tuple[Case, ...]) -> float:
    return max(window_s(case.study, task.machine) for case in cases)


def _slice_s(task: FitTask, file: StudyFile, cases: tuple[Case, ...], factor: DataFactor) -> float | None:
    """Return the slice length, or None if the arms cannot take turns in slices."""
    costs, run = costs_of(cases), file.run
    if run.schedule in TOGETHER:
        return run.slice_s or slice_s_of(file.fleet.n)
    if fit_of(file).keep_schedule or run.transactions is not None or run.checkpoints is not None:
        return None
    slice_s = run.slice_s or _default_slice_s(task, file, cases)
    is_long_enough = _longest_window_s(task, cases) >= SLICES_MIN * slice_s
    fits = fit_in_memory_together(costs, factor.value, task.machine.memory_bytes, task.contrasted)
    return slice_s if is_long_enough and fits else None


def _default_slice_s(task: FitTask, file: StudyFile, cases: tuple[Case, ...]) -> float:
    most_clients = max(arm.clients for arm in arms_of(costs_of(cases)))
    return default_slice_s(task.machine, most_clients, file.fleet.n)


def _wanted(
    task: FitTask, file: StudyFile, cases: tuple[Case, ...], factor: DataFactor, slice_s: float | None
) -> RequestedLengths:
    costs, study = costs_of(cases), cases[0].study
    sized = cases_of(fit_data(file, factor)[0])
    return RequestedLengths(
        time_s=task.time_s,
        turns=sum(case.study.turns for case in cases),
        fixed_s=data_s(costs, study, factor.value)
        + trials_s(costs, study)
        + searches_s(sized, task.machine, slice_s),
        window_s=_longest_window_s(task, sized),
        warmup_s=study.warmup_s,
        slice_s=slice_s,
        blocks_max=file.run.repeats,
        least_s=max(fit_of(file).window_min_s or 0.0, _checkpoint_window_s(task, file, cases, slice_s)),
        aa_share=aa_share(cases, in_slices=slice_s is not None),
        may_be_same=study.stop == "verdict" and (slice_s is not None or study.schedule != "sequential"),
    )


def _checkpoint_window_s(
    task: FitTask, file: StudyFile, cases: tuple[Case, ...], slice_s: float | None
) -> float:
    """Return the shortest window with CHECKPOINTS_MIN checkpoints, if those of the source have as many."""
    writes = any(arm.writes for arm in arms_of(costs_of(cases)))
    if not (task.asks and writes) or max(checkpoints_of(file), default=0) < CHECKPOINTS_MIN:
        return 0.0
    alternates = slice_s is not None and file.run.schedule != "duet"
    return CHECKPOINT_WINDOW_S / (min(len(case.arms) for case in cases) if alternates else 1)


def _applied(task: FitTask, draft: _Draft) -> tuple[StudyFile, list[FitChange]]:
    """Return the file with data, settings and run of the draft, and the changes."""
    sized, changes = fit_data(draft.file, draft.factor)
    windows = 1.0
    if draft.layout is not None:
        alternates = draft.slice_s is not None and draft.file.run.schedule not in TOGETHER
        turns = len(cases_of(sized)[0].arms) if alternates else 1
        windows = min(1.0, turns * draft.layout.window_s / draft.wanted.window_s)
    tuned = sized
    if task.is_from_elsewhere:
        scales = Scales(draft.factor.value, task.cores, windows)
        tuned, found = fit_settings(sized, scales, task.contrasted)
        changes += found
    if draft.layout is None:
        return tuned, changes
    return fit_run(tuned, draft.layout, draft.wanted, draft.slice_s, task.machine), changes


# ----------------------------------------------------------------------
# Time and memory with which a fit keeps the question of its source.
# ----------------------------------------------------------------------

MINUTES_MAX = 14 * 24 * 60
"""Longest time to propose."""

PRECISION = 1.1
"""The proposed time is at most a tenth longer than needed."""

MB = 2**20

DISK_MAX_BYTES = 2**50
"""Largest disk to propose."""

MEMORY_MIN_BYTES = 512 * MB
"""Smallest memory limit to propose: a server with its connections needs a few hundred MB besides the page
cache, and the kernel would end it in less."""


@dataclass(frozen=True)
class Need:
    """Requirements that together keep the question. ``memory_bytes`` is an upper limit of the memory.

    ``disk_bytes``: free space, if this machine has less. ``dropped``: factors with levels that do not fit
    into ``minutes``, although ``[fit]`` allows to drop them.
    """

    minutes: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    dropped: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The need as text."""
        parts = []
        if self.minutes is not None:
            without = f", without {'; '.join(self.dropped)}" if self.dropped else ""
            parts.append(f"--minutes {self.minutes:g} ({format_duration(60 * self.minutes)}{without})")
        if self.memory_bytes is not None:
            size = f"{math.ceil(self.memory_bytes / MB)}MB"
            parts.append(f'run.memory_limit = "{size}" in a copy of the study file')
        if self.disk_bytes is not None:
            parts.append(f"{format_size(self.disk_bytes)} of free disk space (PGDYNO_CACHE)")
        return " and ".join(parts)


def needs_of(file: StudyFile, machine: FitMachine, minutes: float, fitted: Fitted) -> list[Need]:
    """Return alternative requirements, each of which keeps the question; empty if none is known.

    ``fitted`` is the fit of the file to the machine, which loses the question. More disk space is proposed
    only if no longer time is known to be enough.
    """
    found: list[Need | None] = [_less_memory(file, machine, minutes, fitted)]
    needed = _minutes(file, machine, minutes)
    if needed is not None:
        found.insert(0, Need(needed, dropped=fit_study(file, machine, needed).dropped))
    elif found == [None]:
        found = [_less_memory_for_longer(file, machine, minutes)]
    if all(need is None or need.minutes is None for need in found):
        found.append(_more_disk(file, machine, minutes))
    return [need for need in found if need is not None]


def _less_memory(file: StudyFile, machine: FitMachine, minutes: float, fitted: Fitted) -> Need | None:
    wanted_bytes = fitted.memory_bytes
    if wanted_bytes is None or not MEMORY_MIN_BYTES <= wanted_bytes < machine.memory_bytes:
        return None
    limited = replace(machine, memory_bytes=wanted_bytes)
    return Need(memory_bytes=wanted_bytes) if _keeps(file, limited, minutes) else None


def _less_memory_for_longer(file: StudyFile, machine: FitMachine, minutes: float) -> Need | None:
    while (minutes := 2 * minutes) <= MINUTES_MAX:
        try:
            fitted = fit_study(file, machine, minutes)
        except UsageError:  # the disk is too small for it
            continue
        if need := _less_memory(file, machine, minutes, fitted):
            return replace(need, minutes=minutes)
    return None


def _more_disk(file: StudyFile, machine: FitMachine, minutes: float) -> Need | None:
    needed = _minutes(file, replace(machine, disk_free_bytes=DISK_MAX_BYTES), minutes)
    if needed is None:
        return None
    low, high = machine.disk_free_bytes, DISK_MAX_BYTES
    while high / max(1, low) > PRECISION:
        middle = round(math.sqrt(max(1, low) * high))
        is_enough = _keeps(file, replace(machine, disk_free_bytes=middle), needed)
        low, high = (low, middle) if is_enough else (middle, high)
    kept = fit_study(file, replace(machine, disk_free_bytes=high), needed)
    return Need(needed, disk_bytes=high, dropped=kept.dropped)


def _minutes(file: StudyFile, machine: FitMachine, minutes: float) -> float | None:
    low, high = minutes, 2 * minutes
    while not _keeps(file, machine, high):
        if high > MINUTES_MAX:
            return None
        low, high = high, 2 * high
    while high / low > PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _keeps(file, machine, middle) else (middle, high)
    return float(math.ceil(high))


def _keeps(file: StudyFile, machine: FitMachine, minutes: float) -> bool:
    try:
        return not fit_study(file, machine, minutes).lost
    except UsageError:  # the disk is too small for it
        return False
