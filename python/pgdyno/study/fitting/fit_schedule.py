"""Fit of clients, threads and rates to the cores; of blocks, windows and warm-ups to the minutes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pgdyno.study.cases import cases_of
from pgdyno.study.fitting.fit_levels import RATIO_TOLERANCE, Change, changed_values, ratio, with_levels
from pgdyno.study.fitting.fit_settings import RULES, quantity
from pgdyno.study.forecast_cost import costs_of, pass_s, transactions_per_s
from pgdyno.study.sizing import BLOCKS_WANTED, MAX_CLIENTS, Machine
from pgdyno.study.study_file import Run, StudyFile
from pgdyno.units import format_duration

MOST = {"clients": MAX_CLIENTS, "threads": 256}


def fit_clients(file: StudyFile, cores: float) -> tuple[StudyFile, list[Change]]:
    """``cores``: ours divided by the source's. Levels that become equal become one."""
    changes: list[Change] = []
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


def _fit_one(file: StudyFile, name: str, scaled: Callable[[Any], Any], changes: list[Change]) -> StudyFile:
    why = "as many for each core as at the source"
    fixed = getattr(file.drive, name)
    if fixed is not None and scaled(fixed) != fixed:
        changes.append(Change(f"drive.{name}", f"{fixed:g}", f"{scaled(fixed):g}", why))
        file = file.model_copy(update={"drive": file.drive.model_copy(update={name: scaled(fixed)})})
    if name in file.factors:
        before = file.factors[name]
        mapped = changed_values(before, scaled)
        if [level.value for level in mapped.levels] == [level.value for level in before]:
            return file
        if len(mapped.levels) < len(before):
            why += "; levels that are the same now are one"
        changes.append(Change(f"factors.{name}", _listed(before), _listed(mapped.levels), why))
        file = with_levels(file, name, mapped)
    return file


def _listed(levels: Any) -> str:
    return ", ".join(f"{level.value:g}" for level in levels)


BLOCKS_MIN = 2
"""One block has no spread at all."""

BLOCKS_BETTER = 5
"""Fewer give no verdict (docs/explanation/method.md)."""

DRIVEN_SHARE = 0.5
"""Of the time, that more than BLOCKS_BETTER blocks must leave for driving: a restore for each is not free."""

WINDOW_MIN_S = 10.0
"""Of a whole trial: connections, caches and the first WAL files settle in the first seconds."""

SLICES_MIN = 4
"""Of an arm in a block: two rounds and their mirror images."""

WARMUP_MIN_S = 2.0


@dataclass(frozen=True)
class Wanted:
    """What the file asks for, and what there is to share out. ``slice_s``: None where trials are not cut.

    ``least_s`` is the shortest window that the file allows; ``aa_share`` what A/A blocks take
    beside the others.
    """

    time_s: float
    turns: int  # trials of one block of every case that are driven one after the other
    fixed_s: float  # of them, beside being driven
    window_s: float
    warmup_s: float
    slice_s: float | None
    blocks_max: int | None
    least_s: float = 0.0
    aa_share: float = 0.0

    @property
    def window_min_s(self) -> float:
        """Never above what the file asks for; with slices an even number of them."""
        if self.slice_s is None:
            return min(self.window_s, max(WINDOW_MIN_S, self.least_s))
        pairs = math.ceil(max(SLICES_MIN, self.least_s / self.slice_s) / 2)
        return min(self.window_s, 2 * pairs * self.slice_s)

    def pass_s(self, window_s: float) -> float:
        """One block of every case with such windows."""
        return (1 + self.aa_share) * (self.fixed_s + self.driven_s(window_s))

    def driven_s(self, window_s: float) -> float:
        """Of it what the clients drive, without the A/A blocks."""
        return self.turns * (window_s + self.warmup_of(window_s))

    def warmup_of(self, window_s: float) -> float:
        """The same share of the window as in the file, in whole seconds; WARMUP_MIN_S at least."""
        if window_s >= self.window_s:
            return self.warmup_s
        share_s = float(round(window_s * self.warmup_s / self.window_s))
        return min(self.warmup_s, max(WARMUP_MIN_S, share_s))


@dataclass(frozen=True)
class Layout:
    """Blocks of every case, and the window and warm-up of each trial in them."""

    blocks: int
    window_s: float
    warmup_s: float


def lay_out(wanted: Wanted, least: int) -> Layout | None:
    """As many blocks as are worth it, at least so many; None: they do not fit even with the shortest windows.

    Windows stay as they are where BLOCKS_WANTED blocks of them fit, or as many as the file asks for.
    """
    most = wanted.blocks_max or BLOCKS_WANTED
    whole = math.floor(wanted.time_s / wanted.pass_s(wanted.window_s))
    if whole >= max(least, min(most, BLOCKS_WANTED)):
        return Layout(min(whole, most), wanted.window_s, wanted.warmup_s)
    for blocks in range(max(least, BLOCKS_WANTED), least - 1, -1):
        window_s = _window_s(wanted, wanted.time_s / blocks)
        if window_s is None:
            continue
        driven_s = blocks * wanted.driven_s(window_s)
        if blocks <= BLOCKS_BETTER or driven_s >= DRIVEN_SHARE * wanted.time_s:
            return Layout(blocks, window_s, wanted.warmup_of(window_s))
    return None


def shortest(wanted: Wanted) -> Layout:
    """BLOCKS_MIN blocks of the shortest windows, whether they fit or not."""
    window_s = wanted.window_min_s
    return Layout(BLOCKS_MIN, window_s, wanted.warmup_of(window_s))


def _window_s(wanted: Wanted, pass_s: float) -> float | None:
    """The longest window with which one block of every case takes no longer than that."""
    if wanted.pass_s(wanted.window_s) <= pass_s:
        return wanted.window_s
    if wanted.pass_s(wanted.window_min_s) > pass_s:
        return None
    step = 1.0 if wanted.slice_s is None else 2 * wanted.slice_s
    low, high = 0, math.ceil((wanted.window_s - wanted.window_min_s) / step)
    while high - low > 1:
        middle = (low + high) // 2
        fits = wanted.pass_s(wanted.window_min_s + middle * step) <= pass_s
        low, high = (middle, high) if fits else (low, middle)
    return wanted.window_min_s + low * step


def fit_duet(file: StudyFile, cores: int) -> tuple[StudyFile, list[Change]]:
    """A duet wants a core for either server; with one the arms take turns."""
    if file.run.schedule != "duet" or cores > 1:
        return file, []
    run = file.run.model_copy(update={"schedule": "slices"})
    why = "duet gives each of two servers half of the cores, and there is one"
    return file.model_copy(update={"run": run}), [Change("run.schedule", "duet", "slices", why)]


def fit_run(
    file: StudyFile, layout: Layout, wanted: Wanted, slice_s: float | None, machine: Machine
) -> StudyFile:
    """The file with blocks, windows, warm-ups and schedule of the layout."""
    run = file.run
    update: dict[str, object] = {}
    if slice_s is not None:
        update["schedule"] = "duet" if run.schedule == "duet" else "slices"
        if slice_s != 1.0:
            update["slice_s"] = slice_s
    if layout.window_s != wanted.window_s:
        update |= _window(file, layout, machine)
    update["repeats"] = layout.blocks
    fitted = file.model_copy(update={"run": run.model_copy(update=update)})
    needed_s = layout.blocks * pass_s(cases_of(fitted), machine)
    if fitted.run.schedule != "sequential":  # that ends by its repeats, whatever time they take
        is_enough = needed_s <= wanted.time_s  # else not even the least fits
        update["budget_s"] = wanted.time_s if is_enough else float(math.ceil(needed_s))
        if is_enough:
            update["repeats"] = None
    return file.model_copy(update={"run": run.model_copy(update=update)})


def _window(file: StudyFile, layout: Layout, machine: Machine) -> dict[str, object]:
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
    before: StudyFile, after: StudyFile, layout: Layout | None, time_s: float, machine: Machine
) -> Iterator[Change]:
    """What is different in ``[run]``, and in the checkpoints of a window."""
    was, now = before.run, after.run
    if was.schedule != now.schedule:
        why = "all servers fit into memory together, and short windows need neighbours in time"
        yield Change("run.schedule", was.schedule, now.schedule, why)
    if was.slice_s != now.slice_s:
        yield Change(
            "run.slice", _told(was.slice_s or 1.0), _told(now.slice_s or 1.0), "many clients per core"
        )
    yield from _lengths(before, after, format_duration(time_s))
    takes_s = now.budget_s or (now.repeats or 0) * pass_s(cases_of(after), machine)
    is_too_long = layout is not None and takes_s > time_s
    is_other = (was.repeats, was.budget_s) != (now.repeats, now.budget_s)
    if is_other or (is_too_long and was != now):
        why = _why_blocks(layout, time_s, is_too_long=is_too_long)
        yield Change("run.repeats", _ends(was), _ends(now, layout), why)
    yield from _checkpoints(before, after)


def _lengths(before: StudyFile, after: StudyFile, time: str) -> Iterator[Change]:
    was, now = before.run, after.run
    if was.checkpoints != now.checkpoints:
        why = f"with whole checkpoint cycles too few blocks fit into {time}"
        yield Change("run.checkpoints", f"{was.checkpoints}", "none, but a window", why)
    if was.transactions != now.transactions:
        why = f"as many as fit into {time} with few of them a second"
        yield Change("run.transactions", f"{was.transactions}", f"{now.transactions}", why)
    elif (was.window_s, was.rounds) != (now.window_s, now.rounds):
        yield Change(
            "run.window", _told(_run_window_s(before)), _told(_run_window_s(after)), f"what fits into {time}"
        )
    warmups = [cases_of(file)[0].study.warmup_s for file in (before, after)]
    if warmups[0] != warmups[1]:
        why = "the same share of the window, and 2 s at least"
        yield Change("run.warmup", _told(warmups[0]), _told(warmups[1]), why)


def _run_window_s(file: StudyFile) -> float:
    study = cases_of(file)[0].study
    return study.rounds * study.slice_s


def _told(seconds: float) -> str:
    return format_duration(seconds)


def _ends(run: Run, layout: Layout | None = None) -> str:
    if run.budget_s is None:
        return str(run.repeats)
    expected = f", about {layout.blocks}" if layout else f", at most {run.repeats}" if run.repeats else ""
    return f"what fits into {format_duration(run.budget_s)}{expected}"


def _why_blocks(layout: Layout | None, time_s: float, *, is_too_long: bool) -> str:
    if is_too_long:
        return f"not even {BLOCKS_MIN} blocks of the shortest windows fit into {format_duration(time_s)}"
    if layout is None or layout.blocks >= BLOCKS_BETTER:
        return "blocks of every case, as many as the time allows"
    return f"the time allows no more; fewer than {BLOCKS_BETTER} give no verdict"


def _checkpoints(before: StudyFile, after: StudyFile) -> Iterator[Change]:
    """Windows against the times between checkpoints, where the ratio could not be kept."""
    if before.run.transactions is not None:
        return
    windows = (_run_window_s(before), _run_window_s(after))
    for timeouts in zip(_timeouts_s(before), _timeouts_s(after), strict=False):
        was, now = windows[0] / timeouts[0], windows[1] / timeouts[1]
        if abs(now / was - 1) > RATIO_TOLERANCE:
            short = "; the window holds no checkpoint by time" if now < 1 <= was else ""
            why = f"every {_told(timeouts[1])} at the earliest, was every {_told(timeouts[0])}{short}"
            yield Change("window : checkpoint_timeout", ratio(was), ratio(now), why)


def _timeouts_s(file: StudyFile) -> list[float]:
    """Those that arms have, shortest first."""
    arms = (arm for case in costs_of(cases_of(file)) for arm in case if not arm.has_profile)
    texts = {arm.settings.get("checkpoint_timeout", "") for arm in arms}
    default = RULES["checkpoint_timeout"].default
    return sorted({quantity("checkpoint_timeout", text) or default for text in texts})
