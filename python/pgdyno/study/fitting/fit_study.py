"""Fit of a study to a machine and a time budget, which keeps the characteristic ratios. Pure.

Kept ratios: data : shared buffers : memory, clients per core, the shares of memory and cores in the settings,
checkpoints per window, warm-up : window. All other changes are reported. If the time is short: shorter
windows and warm-ups, then fewer levels if the file allows it, then fewer blocks. A fit that loses the
question of the source says so (``fit_question.py``). docs/explanation/fitting.md
explains the rules.

A fitted file is an ordinary study file; fitting it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pgdyno.study.cases import Case, cases_of
from pgdyno.study.fitting.fit_data import (
    DataFactor,
    Memories,
    Room,
    factor_of,
    fit_data,
    fit_in_memory_together,
    ratio_changes,
)
from pgdyno.study.fitting.fit_levels import FitChange, level_changes, with_dropped_levels, with_fewer_levels
from pgdyno.study.fitting.fit_question import Asked, losses, memory_needed_bytes
from pgdyno.study.fitting.fit_schedule import (
    BLOCKS_BETTER,
    BLOCKS_MIN,
    CHECKPOINT_WINDOW_S,
    CHECKPOINTS_MIN,
    SLICES_MIN,
    WINDOW_MIN_S,
    Layout,
    RequestedLengths,
    checkpoints_of,
    fit_clients,
    fit_duet,
    fit_run,
    lay_out,
    run_changes,
    shortest,
)
from pgdyno.study.fitting.fit_settings import Scales, contrasted_of, fit_settings
from pgdyno.study.forecast_cost import (
    aa_share,
    costs_of,
    data_s,
    pass_s,
    search_s,
    searches_s,
    sequential_trials,
    trials_s,
    window_s,
)
from pgdyno.study.schedule import TOGETHER
from pgdyno.study.sizing import MachineSize, default_slice_s, slice_s_of
from pgdyno.study.study_file import FittedTo, StudyFile
from pgdyno.units import format_size

LONG_WINDOW_S = 600.0
"""Trials of this length include checkpoints, and need not be close in time."""


@dataclass(frozen=True)
class FitMachine(MachineSize):
    """Machine to which a study is fitted: available cores, memory, and free space on the disk of the data."""

    disk_free_bytes: int


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
class _Fit:
    """Task of a fit. ``cores`` and ``memory`` are ratios of this machine to the source."""

    machine: FitMachine
    minutes: float
    cores: float
    memory: float
    contrasted: frozenset[str]
    is_from_elsewhere: bool  # the file names the machine of its numbers; else they are for this one
    is_settled: bool  # the file is already fitted to this machine
    asks: bool = False  # data and windows are large enough to keep the question of the source

    @property
    def time_s(self) -> float:
        return 60 * self.minutes


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
    task = _Fit(
        machine,
        minutes,
        machine.cores / made_for.cores if made_for else 1.0,
        machine.memory_bytes / made_for.memory_bytes if made_for else 1.0,
        contrasted_of(before),
        is_from_elsewhere=made_for is not None,
        is_settled=made_for is not None and made_for == file.fit.machine == _as_made_for(machine),
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
    if draft.wanted.aa_share and draft.layout is not None and draft.layout.blocks < BLOCKS_BETTER:
        return _without_aa(fit_study(_with_aa_disabled(file), machine, minutes))
    changes += level_changes(with_clients, draft.file, minutes)
    fitted, found = _applied(task, draft)
    changes += found
    changes += run_changes(scheduled, fitted, draft.layout, task.time_s, machine)
    memories = Memories(made_for.memory_bytes, machine.memory_bytes) if made_for else None
    before, after = costs_of(cases_of(draft.file)), costs_of(cases_of(fitted))
    changes += ratio_changes(before, after, memories, task.contrasted)
    lost = _lost(task, file, draft.file, fitted, made_for)
    needed_bytes = (
        None if made_for is None else memory_needed_bytes(lost, before, after, made_for.memory_bytes)
    )
    if made_for is not None and (made_for != _as_made_for(machine) or draft.factor.value != 1):
        update = {"machine": _as_made_for(machine)}
        fitted = fitted.model_copy(update={"fit": fitted.fit.model_copy(update=update)})
    return Fitted(
        fitted, tuple(changes), tuple(lost), needed_bytes, tuple(_dropped(with_clients, draft.file))
    )


def _dropped(before: StudyFile, after: StudyFile) -> Iterator[str]:
    """Yield each factor with its dropped levels, for example ``scale 5000``."""
    for name, levels in before.factors.items():
        left = {level.name for level in after.factors[name]}
        if gone := [level.name for level in levels if level.name not in left]:
            yield f"{name} {', '.join(gone)}"


def _lost(
    task: _Fit, file: StudyFile, before: StudyFile, fitted: StudyFile, made_for: FittedTo | None
) -> list[FitChange]:
    """Return the changes that lose the question; ``before`` has the levels of the fitted file."""
    if made_for is None or task.is_settled:
        return []
    source = Asked(before, made_for.cores, made_for.memory_bytes)
    return losses(file, source, Asked(fitted, task.machine.cores, task.machine.memory_bytes))


def _asking_draft(task: _Fit, file: StudyFile, left: StudyFile, made_for: FittedTo) -> _Draft | None:
    """Return a draft that keeps the question, with windows for checkpoints and few levels dropped."""
    asking = replace(task, asks=not task.is_settled)
    for one in with_dropped_levels(left):
        draft = _laid_out(asking, one, BLOCKS_BETTER)
        if draft is not None and not _lost(task, file, one, _applied(task, draft)[0], made_for):
            return draft
    return None


def _with_aa_disabled(file: StudyFile) -> StudyFile:
    return file.model_copy(update={"run": file.run.model_copy(update={"aa": False})})


def _without_aa(fitted: Fitted) -> Fitted:
    """Disable A/A blocks, because a verdict has priority over the measurement of noise."""
    why = f"with A/A blocks, fewer than {BLOCKS_BETTER} blocks of the arms would fit"
    return replace(fitted, changes=(*fitted.changes, FitChange("run.aa", "true", "false", why)))


def _as_made_for(machine: FitMachine) -> FittedTo:
    return FittedTo(cores=machine.cores, memory=machine.memory_bytes)


def _made_for(file: StudyFile) -> FittedTo | None:
    """Return the machine for which the numbers of the file are meant."""
    if file.fit.machine is not None:
        return file.fit.machine
    source = file.source.machine if file.source else None
    return None if source is None else FittedTo(cores=source.cores, memory=source.memory_bytes)


def _machine_changes(made_for: FittedTo | None, task: _Fit) -> list[FitChange]:
    if made_for is None or (task.cores == 1 and task.memory == 1):
        return []
    ours = task.machine
    return [
        FitChange(
            "fit.machine",
            f"{made_for.cores} cores, {format_size(made_for.memory_bytes)}",
            f"{ours.cores} cores, {format_size(ours.memory_bytes)}",
            "machine to which the study is fitted",
        )
    ]


def _full_length_draft(task: _Fit, file: StudyFile) -> _Draft | None:
    """Return a draft with the lengths of the file, or None if it takes longer than the time budget."""
    budget_s = file.run.budget_s
    if budget_s is not None and budget_s > task.time_s:
        run = file.run.model_copy(update={"budget_s": task.time_s})
        file, budget_s = file.model_copy(update={"run": run}), None
    cases = cases_of(file)
    factor = _factor(task, file, cases, None)
    sized = cases_of(fit_data(file, factor)[0])
    passes = min(task.time_s, file.run.budget_s or task.time_s) / pass_s(sized, task.machine)
    wanted = file.run.repeats or BLOCKS_BETTER
    if passes < (min(wanted, BLOCKS_MIN) if budget_s is not None else wanted):
        return None
    return _Draft(file, factor, None, _wanted(task, file, cases, factor, None), None)


def _shortened_draft(task: _Fit, file: StudyFile) -> _Draft:
    """Return a draft with shorter windows, then fewer levels, then fewer blocks."""
    left = file
    for left in with_dropped_levels(file):
        if draft := _laid_out(task, left, BLOCKS_BETTER):
            return draft
    for blocks in range(BLOCKS_BETTER - 1, BLOCKS_MIN - 1, -1):
        if draft := _laid_out(task, left, blocks):
            return draft
    for thinner in with_fewer_levels(left):
        left = thinner
        if draft := _laid_out(task, left, BLOCKS_MIN):
            return draft
    draft = _draft(task, left, in_turns=True)
    return replace(draft, layout=shortest(draft.wanted))


def _laid_out(task: _Fit, file: StudyFile, blocks: int) -> _Draft | None:
    """Return a draft with slices if possible and windows are short; None if the blocks do not fit."""
    draft = _draft(task, file, in_turns=True)
    layout = lay_out(draft.wanted, blocks)
    is_new = draft.slice_s is not None and file.run.schedule not in TOGETHER
    if layout is not None and is_new and layout.window_s > LONG_WINDOW_S:
        draft = _draft(task, file, in_turns=False)
        layout = lay_out(draft.wanted, blocks)
    return None if layout is None else replace(draft, layout=layout)


def _draft(task: _Fit, file: StudyFile, *, in_turns: bool) -> _Draft:
    cases = cases_of(file)
    factor = _factor(task, file, cases, BLOCKS_BETTER)
    slice_s = _slice_s(task, file, cases, factor) if in_turns or file.run.schedule in TOGETHER else None
    return _Draft(file, factor, None, _wanted(task, file, cases, factor, slice_s), slice_s)


def _factor(task: _Fit, file: StudyFile, cases: tuple[Case, ...], blocks: int | None) -> DataFactor:
    room = Room(
        study=cases[0].study,
        disk_bytes=task.machine.disk_free_bytes,
        cores=task.machine.cores,
        minutes=task.minutes,
        growing_s=_growing_s(task, file, cases, is_shortened=blocks is not None),
        blocks=blocks if task.is_from_elsewhere else None,
        is_settled=task.is_settled,
        scales_settings=task.is_from_elsewhere,
        keeps_buffers=task.asks,
        aa_share=aa_share(cases, in_slices=not file.fit.keep_schedule),
    )
    return factor_of(costs_of(cases), room, task.memory, task.contrasted)


def _growing_s(task: _Fit, file: StudyFile, cases: tuple[Case, ...], *, is_shortened: bool) -> float:
    """Return the maximum time in which the data of a trial grow, before the window is known."""
    searched_s = max(search_s(case.study, task.machine) for case in cases)
    return searched_s + _growing_in_window_s(task, file, cases, is_shortened=is_shortened)


def _growing_in_window_s(
    task: _Fit, file: StudyFile, cases: tuple[Case, ...], *, is_shortened: bool
) -> float:
    window_s = min(task.time_s, _longest_window_s(task, cases))
    if not is_shortened:
        return window_s
    share_s = task.time_s / sum(len(case.arms) for case in cases)
    least_s = max(WINDOW_MIN_S, file.fit.window_min_s or 0.0)
    if cases[0].study.transactions is not None:
        # A server may be faster than forecast, so the transactions may take all of its time.
        return max(share_s, min(window_s, least_s))
    slice_s = file.run.slice_s or _default_slice_s(task, file, cases)
    return min(window_s, max(share_s / BLOCKS_MIN, least_s, (SLICES_MIN + 2) * slice_s))


def _longest_window_s(task: _Fit, cases: tuple[Case, ...]) -> float:
    return max(window_s(case.study, task.machine) for case in cases)


def _slice_s(task: _Fit, file: StudyFile, cases: tuple[Case, ...], factor: DataFactor) -> float | None:
    """Return the slice length, or None if the arms cannot take turns in slices."""
    costs, run = costs_of(cases), file.run
    if run.schedule in TOGETHER:
        return run.slice_s or slice_s_of(file.fleet.n)
    if file.fit.keep_schedule or run.transactions is not None or run.checkpoints is not None:
        return None
    slice_s = run.slice_s or _default_slice_s(task, file, cases)
    is_long_enough = _longest_window_s(task, cases) >= SLICES_MIN * slice_s
    fits = fit_in_memory_together(costs, factor.value, task.machine.memory_bytes, task.contrasted)
    return slice_s if is_long_enough and fits else None


def _default_slice_s(task: _Fit, file: StudyFile, cases: tuple[Case, ...]) -> float:
    most_clients = max(arm.clients for case in costs_of(cases) for arm in case)
    return default_slice_s(task.machine, most_clients, file.fleet.n)


def _wanted(
    task: _Fit, file: StudyFile, cases: tuple[Case, ...], factor: DataFactor, slice_s: float | None
) -> RequestedLengths:
    costs, study = costs_of(cases), cases[0].study
    sized = cases_of(fit_data(file, factor)[0])
    return RequestedLengths(
        time_s=task.time_s,
        turns=sum(sequential_trials(case.study) for case in cases),
        fixed_s=data_s(costs, study, factor.value)
        + trials_s(costs, study)
        + searches_s(sized, task.machine, slice_s),
        window_s=_longest_window_s(task, sized),
        warmup_s=study.warmup_s,
        slice_s=slice_s,
        blocks_max=file.run.repeats,
        least_s=max(file.fit.window_min_s or 0.0, _checkpoint_window_s(task, file, cases, slice_s)),
        aa_share=aa_share(cases, in_slices=slice_s is not None),
    )


def _checkpoint_window_s(
    task: _Fit, file: StudyFile, cases: tuple[Case, ...], slice_s: float | None
) -> float:
    """Return the shortest window with CHECKPOINTS_MIN checkpoints, if those of the source have as many."""
    writes = any(arm.writes for case in costs_of(cases) for arm in case)
    if not (task.asks and writes) or max(checkpoints_of(file), default=0) < CHECKPOINTS_MIN:
        return 0.0
    alternates = slice_s is not None and file.run.schedule != "duet"
    return CHECKPOINT_WINDOW_S / (min(len(case.arms) for case in cases) if alternates else 1)


def _applied(task: _Fit, draft: _Draft) -> tuple[StudyFile, list[FitChange]]:
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
