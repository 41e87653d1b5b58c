"""How a study is run in its time: what the layout makes of the file's ``[run]``, and of checkpoints in it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pgdyno.study.cases import cases_of
from pgdyno.study.cost import costs_of, pass_s, transactions_per_s
from pgdyno.study.file import Run, StudyFile
from pgdyno.study.fitting.change import RATIO_TOLERANCE, Change, ratio
from pgdyno.study.fitting.settings import RULES, quantity
from pgdyno.study.fitting.time import BLOCKS_BETTER, BLOCKS_MIN, Layout, Wanted
from pgdyno.study.sizing import Machine
from pgdyno.units import format_duration


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
            "run.window", _told(_window_s(before)), _told(_window_s(after)), f"what fits into {time}"
        )
    warmups = [cases_of(file)[0].study.warmup_s for file in (before, after)]
    if warmups[0] != warmups[1]:
        why = "the same share of the window, and 2 s at least"
        yield Change("run.warmup", _told(warmups[0]), _told(warmups[1]), why)


def _window_s(file: StudyFile) -> float:
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
    windows = (_window_s(before), _window_s(after))
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
