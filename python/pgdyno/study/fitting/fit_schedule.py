"""Fit of clients, threads and rates to the cores, and of blocks, windows and warm-ups to the time budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pgdyno.study.cases import cases_of
from pgdyno.study.defaults import SLICE_S, WINDOW_S
from pgdyno.study.fitting.fit_levels import RATIO_TOLERANCE, FitChange, changed_values, ratio, with_levels
from pgdyno.study.fitting.fit_settings import CHECKPOINT_TIMEOUT_MIN_S, RULES, quantity
from pgdyno.study.forecast_cost import costs_of, pass_s, transactions_per_s
from pgdyno.study.schedule import Schedule
from pgdyno.study.sizing import BLOCKS_TARGET, MAX_CLIENTS, MAX_THREADS, MachineSize
from pgdyno.study.study_file import Run, StudyFile
from pgdyno.units import format_duration

MOST = {"clients": MAX_CLIENTS, "threads": MAX_THREADS}


def fit_clients(file: StudyFile, cores: float) -> tuple[StudyFile, list[FitChange]]:
    """Scale clients, threads and rates by ``cores``, the ratio to the source. Equal levels merge."""
    changes: list[FitChange] = []
    if cores == 1:
        return file, changes
    for name in ("clients", "threads", "rate"):
        file = _fit_one(file, name, _scaled_by(name, cores), changes)
    return file, changes


def _scaled_by(name: str, cores: float) -> Callable[[Any], Any]:
    def whole(number: int) -> int:
        return min(MOST[name], max(1, int(number * cores + 0.5)))

    def rate(number: float) -> float:
        return float(f"{number * cores:.3g}")

    return rate if name == "rate" else whole


def _fit_one(file: StudyFile, name: str, scaled: Callable[[Any], Any], changes: list[FitChange]) -> StudyFile:
    why = "same number per core as at the source"
    fixed = getattr(file.drive, name)
    if fixed is not None and scaled(fixed) != fixed:
        changes.append(FitChange(f"drive.{name}", f"{fixed:g}", f"{scaled(fixed):g}", why))
        file = file.model_copy(update={"drive": file.drive.model_copy(update={name: scaled(fixed)})})
    if name in file.factors:
        before = file.factors[name]
        mapped = changed_values(before, scaled)
        if [level.value for level in mapped.levels] == [level.value for level in before]:
            return file
        if len(mapped.levels) < len(before):
            why += "; equal levels merged"
        changes.append(FitChange(f"factors.{name}", _listed(before), _listed(mapped.levels), why))
        file = with_levels(file, name, mapped)
    return file


def _listed(levels: Any) -> str:
    return ", ".join(f"{level.value:g}" for level in levels)


BLOCKS_MIN = 2
"""Minimum number of blocks: one block has no SD."""

BLOCKS_BETTER = 5
"""Number of blocks that a verdict requires (docs/explanation/method.md)."""

DRIVEN_SHARE = 0.5
"""Minimum share of load in the time with more than BLOCKS_BETTER blocks, because each block needs a
restore."""

WINDOW_MIN_S = 10.0
"""Minimum window of a trial without slices: connections, caches and the first WAL files settle in seconds."""

SLICES_MIN = 4
SLICES_MIN_S = 4.0
"""Minimum number and time of slices per arm and block: two rounds and their mirror images."""

WARMUP_MIN_S = 2.0

CHECKPOINTS_MIN = 2.0
"""Timed checkpoints of a window, of which the first one is complete. A window of a source with more of them
has at least this number."""

CHECKPOINT_WINDOW_S = CHECKPOINTS_MIN * CHECKPOINT_TIMEOUT_MIN_S


@dataclass(frozen=True)
class RequestedLengths:
    """Lengths in the file, and the available time. ``slice_s`` is None for trials without slices.

    ``least_s`` is the minimum window of the file; ``aa_share`` is the time of A/A blocks as a share of the
    other blocks.
    """

    time_s: float
    turns: int  # trials of one block of every case that run one after another
    fixed_s: float  # time of these trials without load
    window_s: float
    warmup_s: float
    slice_s: float | None
    blocks_max: int | None
    least_s: float = 0.0
    aa_share: float = 0.0

    @property
    def window_min_s(self) -> float:
        """Minimum window, at most that of the file; with slices, an even number of them."""
        if self.slice_s is None:
            return min(self.window_s, max(WINDOW_MIN_S, self.least_s))
        pairs = math.ceil(max(SLICES_MIN, max(SLICES_MIN_S, self.least_s) / self.slice_s) / 2)
        return min(self.window_s, 2 * pairs * self.slice_s)

    @property
    def window_max_s(self) -> float:
        """Maximum window: that of the file; with slices WINDOW_S, because many short blocks decide sooner."""
        if self.slice_s is None:
            return self.window_s
        pair_s = 2 * self.slice_s
        return min(self.window_s, max(self.window_min_s, pair_s * round(WINDOW_S / pair_s)))

    def pass_s(self, window_s: float) -> float:
        """Return the time of one block of every case with this window."""
        return (1 + self.aa_share) * (self.fixed_s + self.driven_s(window_s))

    def driven_s(self, window_s: float) -> float:
        """Return the load time of one block of every case, without A/A blocks."""
        return self.turns * (window_s + self.warmup_of(window_s))

    def warmup_of(self, window_s: float) -> float:
        """Return the warm-up with the file's share of the window, in whole seconds, at least WARMUP_MIN_S."""
        if window_s >= self.window_s:
            return self.warmup_s
        share_s = float(round(window_s * self.warmup_s / self.window_s))
        return min(self.warmup_s, max(WARMUP_MIN_S, share_s))


@dataclass(frozen=True)
class Layout:
    """Number of blocks per case, and window and warm-up of each trial."""

    blocks: int
    window_s: float
    warmup_s: float


def lay_out(wanted: RequestedLengths, least: int) -> Layout | None:
    """Return a layout of at least ``least`` blocks, or None if they do not fit with the shortest windows.

    Windows have their maximum length if BLOCKS_TARGET blocks fit, or the number of blocks in the file.
    """
    most = wanted.blocks_max or BLOCKS_TARGET
    window_s = wanted.window_max_s
    whole = math.floor(wanted.time_s / wanted.pass_s(window_s))
    if whole >= max(least, min(most, BLOCKS_TARGET)):
        blocks = min(whole, most) if wanted.slice_s is None else whole
        return Layout(blocks, window_s, wanted.warmup_of(window_s))
    for blocks in range(max(least, BLOCKS_TARGET), least - 1, -1):
        shorter_s = _window_s(wanted, wanted.time_s / blocks)
        if shorter_s is None:
            continue
        driven_s = blocks * wanted.driven_s(shorter_s)
        if blocks <= BLOCKS_BETTER or driven_s >= DRIVEN_SHARE * wanted.time_s:
            return Layout(blocks, shorter_s, wanted.warmup_of(shorter_s))
    return None


def shortest(wanted: RequestedLengths) -> Layout:
    """Return BLOCKS_MIN blocks of the shortest windows, even if they do not fit."""
    window_s = wanted.window_min_s
    return Layout(BLOCKS_MIN, window_s, wanted.warmup_of(window_s))


def _window_s(wanted: RequestedLengths, pass_s: float) -> float | None:
    """Return the longest window with which one block of every case takes at most ``pass_s``."""
    most_s = wanted.window_max_s
    if wanted.pass_s(most_s) <= pass_s:
        return most_s
    if wanted.pass_s(wanted.window_min_s) > pass_s:
        return None
    step = 1.0 if wanted.slice_s is None else 2 * wanted.slice_s
    low, high = 0, math.ceil((most_s - wanted.window_min_s) / step)
    while high - low > 1:
        middle = (low + high) // 2
        fits = wanted.pass_s(wanted.window_min_s + middle * step) <= pass_s
        low, high = (middle, high) if fits else (low, middle)
    return wanted.window_min_s + low * step


def fit_duet(file: StudyFile, cores: int) -> tuple[StudyFile, list[FitChange]]:
    """Replace the schedule duet on a machine with one core, because a duet requires two."""
    if file.run.schedule != "duet" or cores > 1:
        return file, []
    run = file.run.model_copy(update={"schedule": "slices"})
    why = "duet requires at least 2 cores"
    return file.model_copy(update={"run": run}), [FitChange("run.schedule", "duet", "slices", why)]


def fit_run(
    file: StudyFile, layout: Layout, wanted: RequestedLengths, slice_s: float | None, machine: MachineSize
) -> StudyFile:
    """Return the file with blocks, windows, warm-ups and schedule of the layout."""
    run = file.run
    update: dict[str, object] = {}
    if slice_s is not None:
        update["schedule"] = "duet" if run.schedule == "duet" else "slices"
        if slice_s != SLICE_S:
            update["slice_s"] = slice_s
    if layout.window_s != wanted.window_s:
        update |= _window(file, layout, machine)
    update["repeats"] = layout.blocks
    fitted = file.model_copy(update={"run": run.model_copy(update=update)})
    needed_s = layout.blocks * pass_s(cases_of(fitted), machine)
    if fitted.run.schedule != "sequential":  # which ends after its repeats
        is_enough = needed_s <= wanted.time_s  # else not even the minimum fits
        update["budget_s"] = wanted.time_s if is_enough else float(math.ceil(needed_s))
        if is_enough:
            update["repeats"] = None
    return file.model_copy(update={"run": run.model_copy(update=update)})


def _window(file: StudyFile, layout: Layout, machine: MachineSize) -> dict[str, object]:
    shortest_s = cases_of(file)[0].study.warmup_min_s
    warmup: dict[str, object] = {"warmup_s": layout.warmup_s}
    if shortest_s is not None:
        warmup["warmup_min_s"] = min(shortest_s, layout.warmup_s)
    if file.run.transactions is None:
        return {"window_s": layout.window_s, "rounds": None, "checkpoints": None, **warmup}
    studies = [case.study for case in cases_of(file)]
    number = min(layout.window_s * transactions_per_s(study, machine) / study.clients for study in studies)
    return {"transactions": _two_digits(number), **warmup}


def _two_digits(number: float) -> int:
    """Rounded down, so that the time is kept."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return max(1, int(number / unit + 1e-9) * unit)


def run_changes(
    before: StudyFile, after: StudyFile, layout: Layout | None, time_s: float, machine: MachineSize
) -> Iterator[FitChange]:
    """Yield the changes in ``[run]`` and in the number of checkpoints per window."""
    was, now = before.run, after.run
    if was.schedule != now.schedule:
        why = "all servers fit into memory together, and short windows should be close in time"
        yield FitChange("run.schedule", was.schedule, now.schedule, why)
    if was.slice_s != now.slice_s:
        yield FitChange(
            "run.slice",
            format_duration(was.slice_s or SLICE_S),
            format_duration(now.slice_s or SLICE_S),
            "many clients per core",
        )
    yield from _lengths(before, after, format_duration(time_s))
    takes_s = now.budget_s or (now.repeats or 0) * pass_s(cases_of(after), machine)
    is_too_long = layout is not None and takes_s > time_s
    is_other = (was.repeats, was.budget_s) != (now.repeats, now.budget_s)
    if is_other or (is_too_long and was != now):
        why = _why_blocks(layout, time_s, is_too_long=is_too_long)
        yield FitChange("run.repeats", _ends(was), _ends(now, layout), why)
    yield from _checkpoints(before, after)


def _lengths(before: StudyFile, after: StudyFile, time: str) -> Iterator[FitChange]:
    was, now = before.run, after.run
    if was.checkpoints != now.checkpoints:
        why = f"with whole checkpoint cycles, too few blocks fit into {time}"
        yield FitChange("run.checkpoints", f"{was.checkpoints}", "a window in seconds", why)
    if was.transactions != now.transactions:
        why = f"number that fits into {time} at a low rate"
        yield FitChange("run.transactions", f"{was.transactions}", f"{now.transactions}", why)
    elif (was.window_s, was.rounds) != (now.window_s, now.rounds):
        then, here = (format_duration(_run_window_s(file)) for file in (before, after))
        yield FitChange("run.window", then, here, f"fits into {time}")
    warmups = [cases_of(file)[0].study.warmup_s for file in (before, after)]
    if warmups[0] != warmups[1]:
        why = "same share of the window, at least 2 s"
        yield FitChange("run.warmup", format_duration(warmups[0]), format_duration(warmups[1]), why)


def _run_window_s(file: StudyFile) -> float:
    study = cases_of(file)[0].study
    return study.rounds * study.slice_s


def _ends(run: Run, layout: Layout | None = None) -> str:
    if run.budget_s is None:
        return str(run.repeats)
    expected = f", about {layout.blocks}" if layout else f", at most {run.repeats}" if run.repeats else ""
    return f"as many as fit into {format_duration(run.budget_s)}{expected}"


def _why_blocks(layout: Layout | None, time_s: float, *, is_too_long: bool) -> str:
    if is_too_long:
        return f"not even {BLOCKS_MIN} blocks of the shortest windows fit into {format_duration(time_s)}"
    if layout is None or layout.blocks >= BLOCKS_BETTER:
        return "blocks of every case within the time budget"
    return f"the time budget allows no more; a verdict needs {BLOCKS_BETTER}"


def _checkpoints(before: StudyFile, after: StudyFile) -> Iterator[FitChange]:
    """Yield the changes of the ratio of window and checkpoint_timeout."""
    if before.run.transactions is not None:
        return
    timeouts_s = zip(_timeouts_s(before), _timeouts_s(after), strict=False)
    ratios = zip(checkpoints_of(before), checkpoints_of(after), strict=False)
    for timeouts, (was, now) in zip(timeouts_s, ratios, strict=False):
        if abs(now / was - 1) > RATIO_TOLERANCE:
            short = "; the window has no timed checkpoint" if now < 1 <= was else ""
            then, here = map(format_duration, timeouts)
            why = f"a timed checkpoint every {here}, instead of every {then}{short}"
            yield FitChange("window : checkpoint_timeout", ratio(was), ratio(now), why)


def checkpoints_of(file: StudyFile) -> list[float]:
    """Return the number of timed checkpoints of a window, by checkpoint_timeout, shortest first.

    Servers whose slices alternate run all the time. None for a number of transactions.
    """
    if file.run.transactions is not None:
        return []
    study = cases_of(file)[0].study
    turns = len(study.arms) if study.schedule == Schedule.SLICES else 1
    return [turns * _run_window_s(file) / timeout_s for timeout_s in _timeouts_s(file)]


def _timeouts_s(file: StudyFile) -> list[float]:
    """Return the values of checkpoint_timeout of the arms, shortest first."""
    arms = (arm for case in costs_of(cases_of(file)) for arm in case if not arm.has_profile)
    texts = {arm.settings.get("checkpoint_timeout", "") for arm in arms}
    default = RULES["checkpoint_timeout"].default
    return sorted({quantity("checkpoint_timeout", text) or default for text in texts})
