"""Views of a file beside its series: crashes one by one, capacity searches, and parts of its report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup

from pgdyno.features.crash_disk.records import Crash, CrashArm, has_study, read_crash_test
from pgdyno.features.serve.index import State
from pgdyno.features.serve.pages import main_of
from pgdyno.report.document import Document, FileReport, Place, Section, Table
from pgdyno.report.plot import (
    Axis,
    Dots,
    Frame,
    Mark,
    Panel,
    Point,
    arm_class,
    linear,
    logarithmic,
    plot,
    trace,
)
from pgdyno.results.reader import Evidence
from pgdyno.results.results_file import open_for_reading, translated
from pgdyno.study.values import parse_limit
from pgdyno.units import ABSENT, NO_BREAK, group_digits, significant

TIMES, LATENCY, CAPACITY, CRASHES, MATRIX, FLAMES = (
    *("", "/latency", "/capacity", "/crashes", "/matrix", "/flames"),
)

NAMES: Mapping[str, str] = {
    TIMES: "Time series",
    LATENCY: "Latency",
    CAPACITY: "Capacity",
    CRASHES: "Crashes",
    MATRIX: "Versions",
    FLAMES: "Flame graphs",
}

PARTS: Mapping[str, Sequence[str]] = {
    CAPACITY: ("capacity", "client-capacity"),
    MATRIX: ("matrix",),
    FLAMES: ("flames", "cpu-by-function"),
}
"""Sections of the report that a view shows."""


@lru_cache(maxsize=64)
def views_of(path: Path, state: State) -> Mapping[str, str]:  # noqa: ARG001  # a key of the cache
    """Return the views for which a file has data. ``state`` is that of the file."""
    has = {CRASHES: read_crash_test(path, verify=False) is not None}
    if has[CRASHES] and not has_study(path):
        return {CRASHES: NAMES[CRASHES]}
    with Evidence(path, verify=False) as evidence:
        cases = [evidence.study(case) for case in evidence.cases()]
        has[CAPACITY] = cases[0].plan.capacity is not None
        arms = {tuple(arm.name for arm in of.plan.arms) for of in cases}
        has[MATRIX] = len(arms) == 1 < len(cases) and all(set(of.levels) == {"workload"} for of in cases)
    with closing(open_for_reading(path, verify=False)) as connection, translated(path):
        query = "SELECT 1 FROM reading WHERE probe = 'profile' LIMIT 1"
        has[FLAMES] = connection.execute(query).fetchone() is not None
    return {view: name for view, name in NAMES.items() if has.get(view, True)}


def parts_of(report: FileReport, view: str, address: str) -> Markup:
    """Return the sections of a report, of all cases, that a view shows. ``address``: page of the report."""
    sections = [*report.of(*PARTS[view])]
    for of in report.of("cases"):
        for name, part in of.parts.items():
            sections += [_named(section, name) for section in part.of(*PARTS[view])]
    page = _page(report.title, sections)

    def link(found: re.Match[str]) -> str:
        return found[0] if f'id="{found[1]}"' in page else f'href="{address}#{found[1]}"'

    return Markup(re.sub(r'href="#([^"]+)"', link, page))


def _named(section: Section, case: str) -> Section:
    return replace(section, title=f"{case}: {section.title}" if section.title else "")


def _page(title: str, sections: Sequence[Section]) -> Markup:
    """Return sections as in a report, without its head."""
    page = main_of(Document(title=title, sections=sections))
    return Markup(page.partition("</header>")[2])


# ----------------------------------------------------------------------
# Capacity searches: rate and latency of each step, with the limit and the capacity.
# ----------------------------------------------------------------------

SEARCH_NOTE = (
    "A line joins the steps of a search. A large dot is where it crosses the limit: the capacity. Steps with "
    "too many unanswered transactions have no latency and are not drawn."
)

WIDE = Frame(width=640.0, bottom=260.0)


def searches(path: Path, case: int, arms: Sequence[int], blocks: Sequence[int]) -> Markup:
    """Return the steps of the capacity searches of the chosen trials; empty without any."""
    with Evidence(path, verify=False) as evidence:
        names = [arm.name for arm in evidence.arms(case)]
        every = [of for of in evidence.trials(case) if of.arm in arms and of.block in blocks]
        found = [(of.arm, of.block, of.driver.capacity) for of in every if of.driver.capacity is not None]
    steps = [step for _, _, of in found for step in of.steps]
    known = [step.latency_ms for step in steps if 0 < step.latency_ms < math.inf]
    if not known:
        return Markup("")
    limit = parse_limit(found[0][2].limit)
    limit_ms, unit = 1e3 * limit.latency_s, "clients" if steps[0].clients else "tx/s"
    x = logarithmic([step.load for step in steps], unit)
    y = logarithmic([*known, limit_ms], f"{limit.percentile}, ms")
    marks: list[Mark] = [trace([(x.low, limit_ms), (x.high, limit_ms)], "zero")]
    rows = []
    for arm, block, of in found:
        place = f"{names[arm]}, block {block + 1}"
        tried = sorted(of.steps, key=lambda step: step.load)
        points = [
            Point(step.load, step.latency_ms, f"{place}: {significant(step.latency_ms, 3)} ms")
            for step in tried
            if 0 < step.latency_ms < math.inf
        ]
        marks.append(Dots(points, f"{arm_class(arm)} faint"))
        capacity = of.capacity_per_s
        if capacity is not None:
            title = f"{place}: capacity {group_digits(capacity, 0)} {unit}"
            marks.append(Dots([Point(capacity, limit_ms, title)], arm_class(arm), joined=False, radius=5.0))
        shown = ABSENT if capacity is None else group_digits(capacity, 0)
        rows.append([names[arm], str(block + 1), str(len(tried)), shown])
    numeric = ("block", "steps", f"capacity, {unit}")
    table = Table(f"Capacity by block, {limit}", ("arm", *numeric), rows, numeric=frozenset(numeric))
    picture = Panel(f"Steps of the searches, {limit}", plot("Latency by load", x, y, marks, WIDE))
    section = Section(
        "searches",
        "Capacity searches",
        tables=[table],
        plots=lambda: [picture],
        plots_size="effects",
        legend=names,
        plots_note=SEARCH_NOTE,
        place=Place.TOP,
    )
    return _page("", [section])


# ----------------------------------------------------------------------
# Crash tests: loss of each crash by its number, and by the commit rate before it.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A value of a crash; ``of`` returns None if it is unknown."""

    name: str
    of: Callable[[Crash], float | None]


OUTCOMES: Mapping[str, Measured] = {
    "lost": Measured("lost commits", lambda of: of.lost),
    "window": Measured(
        "loss window, ms", lambda of: None if of.lost is None else 1000 * (of.loss_window_s or 0.0)
    ),
    "recovery": Measured("recovery, s", lambda of: of.recovery_s),
    "replayed": Measured(
        "replayed WAL, MiB", lambda of: None if of.replayed_bytes is None else of.replayed_bytes / 2**20
    ),
}
"""Values of a crash by key in an address."""


def outcomes_of(crashes: Sequence[Crash]) -> dict[str, str]:
    """Return the recorded values of crashes: name by key."""
    return {key: one.name for key, one in OUTCOMES.items() if any(one.of(of) is not None for of in crashes)}


def speed(of: Crash) -> float | None:
    """Return the acknowledged commits per second before a crash."""
    return of.acknowledged / of.active_s if of.active_s > 0 else None


def crashes_part(arms: Sequence[CrashArm], crashes: Sequence[Crash], outcome: str) -> Markup:
    """Return two charts and a table of crashes: an outcome by crash, and by the commit rate before it."""
    measured, names = OUTCOMES[outcome], {of.arm: of.name for of in arms}
    known = [(of, value) for of in crashes if (value := measured.of(of)) is not None]
    panels = []
    if known:
        y = linear([0.0, *(value for _, value in known)], title=measured.name)
        by_number = [(of, float(of.number + 1), value) for of, value in known]
        by_speed = [(of, rate, value) for of, value in known if (rate := speed(of)) is not None]
        x = linear([of + 0.0 for _, of, _ in by_number], title="crash", padding=0.03)
        panels = [Panel("By crash", _dots("By crash", x, y, names, by_number, joined=True))]
        if by_speed:
            x = linear([0.0, *(rate for _, rate, _ in by_speed)], title="acknowledged commits/s before it")
            panels.append(
                Panel(
                    "By commit rate before the crash",
                    _dots("By commit rate", x, y, names, by_speed, joined=False),
                )
            )
    unknown = len(crashes) - len(known)
    note = f"Crashes without a known value, for example because no row was readable: {unknown}."
    section = Section(
        "crashes",
        measured.name.capitalize(),
        tables=[_crash_table(names, crashes)],
        plots=lambda: panels,
        legend=[names.get(arm, "") for arm in range(max(names, default=-1) + 1)],
        plots_note=note if unknown else "",
        place=Place.TOP,
    )
    return _page("", [section])


CRASH_FRAME = Frame(width=420.0, bottom=220.0)


def _dots(
    label: str,
    x: Axis,
    y: Axis,
    names: Mapping[int, str],
    values: Sequence[tuple[Crash, float, float]],
    *,
    joined: bool,
) -> Markup:
    marks: list[Mark] = []
    for arm, name in names.items():
        points = [
            Point(at, value, f"{name}, crash {of.number + 1}: {significant(value, 3)}")
            for of, at, value in values
            if of.arm == arm
        ]
        if points:
            marks.append(Dots(points, arm_class(arm), joined=joined))
    return plot(label, x, y, marks, CRASH_FRAME)


def _crash_table(names: Mapping[int, str], crashes: Sequence[Crash]) -> Table:
    numeric = ("crash", "load, s", "commits/s", "lost", "window, ms", "in doubt", "recovery, s")
    rows = [
        [
            names[of.arm],
            str(of.number + 1),
            group_digits(of.active_s, 2),
            _shown(speed(of), 0),
            _shown(of.lost, 0),
            _shown(None if of.loss_window_s is None else 1000 * of.loss_window_s, 1),
            _shown(of.in_doubt, 0),
            _shown(of.recovery_s, 2),
            "; ".join(f"{one.check}:{NO_BREAK}{one.text}" for one in of.corruption),
        ]
        for of in crashes
    ]
    return Table("Crashes", ("arm", *numeric, "corruption"), rows, numeric=frozenset(numeric))


def _shown(value: float | None, decimals: int) -> str:
    return ABSENT if value is None else group_digits(value, decimals)
