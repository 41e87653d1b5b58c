"""Factors section: main effects and interactions, in sentences, tables and charts."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, Verdict
from pgdyno.analysis.findings.factor_effects import Change, Contrast, Effects
from pgdyno.estimate import ABSENT, Better, Estimate, ci_text, given_percent, grouped, signed
from pgdyno.report import result_tables
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.result_tables import Table, listed
from pgdyno.report.section import Section
from pgdyno.report.svg import Scale, circle, drawing, line, nice_ticks, polyline, text
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule

PANELS_MAX = 6
"""More pairs of factors are left to the tables."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300.0, 210.0, 46.0, 12.0, 22.0, 176.0
ASIDE = 5.0
"""Pixels by which the marks of one level stand beside those of another."""


def effects_over(effects: Effects) -> list[Panel]:
    """Of each compared factor over each other one."""
    pairs = [pair for pair in effects.at if effects.design.factor(pair[0]).compared]
    drawn = [(pair, picture) for pair in pairs if (picture := _picture(effects, *pair)) is not None]
    return [
        Panel(f"{_named(effects, factor)}, by {other}", picture)
        for (factor, other), picture in drawn[:PANELS_MAX]
    ]


def _named(effects: Effects, factor: str) -> str:
    """``18 against 17: change of transactions per second``."""
    first, *others = effects.design.factor(factor).levels
    return f"{', '.join(others)} vs. {first}: change of {effects.design.metric.name}"


def _picture(effects: Effects, factor: str, other: str) -> Markup | None:
    lines: dict[str, list[tuple[str, Contrast]]] = {}
    for level, contrast in effects.at[factor, other]:
        if contrast.combined is not None:
            lines.setdefault(contrast.change.level, []).append((level, contrast))
    if not lines:
        return None
    low, high = _range([contrast for points in lines.values() for _, contrast in points])
    y = Scale(low, high, BOTTOM, TOP)
    levels = effects.design.factor(other).levels
    width = WIDTH - LEFT - RIGHT
    at = {level: LEFT + width * (i + 0.5) / len(levels) for i, level in enumerate(levels)}
    parts = []
    for tick in nice_ticks(low, high, 5):
        label = signed(tick, 0 if tick == int(tick) else 1, "%")
        parts += [
            line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid" if tick else "zero"),
            text(LEFT - 5, y(tick) + 3.5, label, class_="end small"),
        ]
    parts += [text(round(x, 1), BOTTOM + 15, level, class_="middle small") for level, x in at.items()]
    parts.append(text(LEFT + width / 2, BOTTOM + 30, other, class_="middle small"))
    order = effects.design.factor(factor).levels
    for i, (level, points) in enumerate(lines.items()):
        number = order.index(level)
        aside = (number - len(order) / 2) * ASIDE
        parts += _line([(at[of] + aside, of, contrast) for of, contrast in points], y, number)
        if len(lines) > 1:
            x = LEFT + width * i / len(lines)
            parts.append(line(x, TOP - 12, x + 12, TOP - 12, class_=f"curve {arm_class(number)}"))
            parts.append(text(x + 16, TOP - 9, level, class_="small"))
    return drawing(WIDTH, HEIGHT, f"Change by {factor} at each level of {other}", parts, "curves")


def _range(contrasts: Sequence[Contrast]) -> tuple[float, float]:
    values = [0.0]
    for contrast in contrasts:
        assert contrast.combined is not None
        values += _ends(contrast) or ()
        values.append(contrast.combined.percent(Better.NEITHER).value)
    room = 0.06 * (max(values) - min(values)) or 1.0
    return min(values) - room, max(values) + room


def _ends(contrast: Contrast) -> tuple[float, float] | None:
    """Of the interval, where as many passes as in words and tables allow one."""
    assert contrast.combined is not None
    percent = contrast.combined.percent(Better.NEITHER)
    if percent.low is None or percent.high is None or percent.n < BLOCKS_MIN:
        return None
    return percent.low, percent.high


def _line(points: Sequence[tuple[float, str, Contrast]], y: Scale, number: int) -> list[Markup]:
    colour = arm_class(number)
    parts, way = [], []
    for place, level, contrast in points:
        assert contrast.combined is not None
        x = round(place, 1)
        percent = contrast.combined.percent(Better.NEITHER)
        if ends := _ends(contrast):
            parts.append(line(x, y(ends[0]), x, y(ends[1]), class_=f"cap {colour}"))
        title = f"{contrast.change.level}, {level}: {percent.signed_text} ({percent.signed_interval_text})"
        parts.append(circle(x, y(percent.value), 3.5, title, class_=f"dot {colour}"))
        way.append((x, y(percent.value)))
    return [polyline(way, class_=f"curve {colour}"), *parts]


HIGHER = {
    Verdict.FASTER: "higher",
    Verdict.SLOWER: "lower",
    Verdict.SAME: "same",
    Verdict.UNDECIDED: "undecided",
}
"""Of a main effect. What is faster under one number of clients than under another nobody asks."""

DEPENDS = {
    Verdict.FASTER: "depends",
    Verdict.SLOWER: "depends",
    Verdict.SAME: "same",
    Verdict.UNDECIDED: "undecided",
}

NOT_RUN = "not run"
"""In place of a verdict: the combinations that it takes are not there."""

ROWS_MAX = 12
"""Of a longer table the terminal shows so many, and the page folds it away."""


def factors_section(effects: Effects, plan: Study) -> Section:
    """All that is said of them."""
    made = [main_effects(effects, plan), interactions(effects, plan), where_it_depends(effects, plan)]
    return Section(
        title="Factors",
        sentences=[sentence(effects, factor.name, plan) for factor in effects.design.factors],
        tables=[table for table in made if table.rows],
        panels=effects_over(effects),
    )


def sentence(effects: Effects, factor: str, plan: Study) -> str:
    """What a factor changes on the average, and on what that depends."""
    contrasts = effects.of(factor)
    known = [contrast for contrast in contrasts if contrast.combined is not None]
    metric, first = effects.design.metric.name, contrasts[0].change.first
    if not known:
        return f"{factor}: what it changes cannot be told, as no two of its levels have blocks alongside."
    others = [of.name for of in effects.design.factors if of.name != factor]
    parts = [
        f"{contrast.change.level} {f'instead of {first} changes {metric} by' if i == 0 else 'by'} "
        f"{_with_verdict(contrast, plan)}"
        for i, contrast in enumerate(known)
    ]
    passes = max(contrast.combined.spread.n for contrast in known if contrast.combined)
    average = f"on the average over {listed(others)}, {counted_passes(passes)}"
    return f"{factor}: {listed(parts)}, {average}. {_dependence(effects, factor, others, plan)}"


def counted_passes(n: int) -> str:
    """``1 pass``, ``8 passes``."""
    return f"{grouped(n, 0)} {'pass' if n == 1 else 'passes'}"


def percent(contrast: Contrast, better: Better) -> Estimate | None:
    """In percent; of an interaction, of the ratio after against the ratio before."""
    return None if contrast.combined is None else contrast.combined.percent(better)


def _with_verdict(contrast: Contrast, plan: Study) -> str:
    change = percent(contrast, Better.NEITHER)
    assert change is not None
    text = result_tables.change_text(change, "%")
    if change.low is None or change.n < BLOCKS_MIN:
        return f"{text} (no CI yet)"
    verdict = contrast.verdict(plan.margin)
    said = {Verdict.SAME: "; equivalent within the margin", Verdict.UNDECIDED: "; undecided"}.get(verdict, "")
    return f"{text} ({ci_text(change.confidence)} {change.signed_interval_text}{said})"


def _dependence(effects: Effects, factor: str, others: Sequence[str], plan: Study) -> str:
    """The average misleads where it depends on something: that is said first."""
    by_word: dict[str, list[str]] = {}
    said = []
    for other in others:
        found = [c for c in effects.with_factor(factor) if c.by is not None and c.by.factor == other]
        word = dependence_of(found, plan.margin)
        by_word.setdefault(word, []).append(other)
        if word == "depends":
            said.append(_misleading(found, plan))
    if "same" in by_word:
        said.append(f"It does not depend on {listed(by_word['same'])}, within the margin.")
    if "undecided" in by_word:
        said.append(f"Whether it depends on {_or(by_word['undecided'])} is undecided.")
    if NOT_RUN in by_word:
        said.append(
            f"Whether it depends on {_or(by_word[NOT_RUN])} cannot be told: too few combinations were run."
        )
    return " ".join(said)


def _or(names: Sequence[str]) -> str:
    return " or ".join(names)


def dependence_of(contrasts: Sequence[Contrast], margin: float) -> str:
    """Of a factor on another, over all their levels: ``depends``, ``same``, ``undecided`` or ``not run``."""
    known = [contrast for contrast in contrasts if contrast.combined is not None]
    words = {DEPENDS[contrast.verdict(margin)] for contrast in known}
    if not known:
        return NOT_RUN
    if "depends" in words:
        return "depends"
    return "same" if words == {"same"} and len(known) == len(contrasts) else "undecided"


def _misleading(contrasts: Sequence[Contrast], plan: Study) -> str:
    """By the largest difference of which that is sure."""
    sure = [c for c in contrasts if DEPENDS[c.verdict(plan.margin)] == "depends"]
    largest = max(sure, key=lambda c: abs(c.combined.spread.mean) if c.combined else 0.0)
    by, change = largest.by, percent(largest, Better.NEITHER)
    assert by is not None and change is not None
    return (
        f"That average misleads, as it depends on {by.factor}: with {by.factor} {by.level} the ratio of "
        f"{largest.change.level} to {largest.change.first} is {_higher(change)} than with {by.first} "
        f"({ci_text(change.confidence)} {change.signed_interval_text})."
    )


def _higher(change: Estimate) -> str:
    """``7.8% higher``."""
    size = f"{grouped(abs(change.value), change.decimals)}%"
    return f"{size} {'higher' if change.value > 0 else 'lower'}"


def change_name(change: Change) -> str:
    """``clients 1 → 64``."""
    return f"{change.factor} {change.first} → {change.level}"


def main_effects(effects: Effects, plan: Study) -> Table:
    """A row a level after the first of its factor."""
    rows = [
        [change_name(contrast.change), *_cells(contrast, HIGHER, effects, plan)] for contrast in effects.main
    ]
    metric = effects.design.metric
    return Table(
        title=f"What each factor changes in {metric.name} ({metric.better.word} is better)",
        columns=("factor", *COLUMNS),
        rows=rows,
        note=(
            "Averaged with equal weight over the combinations of the other factors that have both levels. "
            + _hold_together(plan)
            + _over_time(effects)
        ),
        numeric=NUMERIC,
        dispensable=("passes", "combinations"),
        long=len(rows) > ROWS_MAX,
        rows_on_terminal=ROWS_MAX,
    )


def interactions(effects: Effects, plan: Study) -> Table:
    """A row for each pair of changes."""
    rows = []
    for contrast in effects.interactions:
        assert contrast.by is not None
        names = [change_name(contrast.change), change_name(contrast.by)]
        rows.append([*names, *_cells(contrast, DEPENDS, effects, plan)])
    return Table(
        title="Whether it depends on the other factors",
        columns=("factor", "by", *COLUMNS),
        rows=rows,
        note=(
            "By how much the one ratio is larger after the other change than before it; 0 where neither "
            "depends on the other. " + _hold_together(plan)
        ),
        numeric=NUMERIC,
        dispensable=("passes", "combinations"),
        long=len(rows) > ROWS_MAX,
        rows_on_terminal=ROWS_MAX,
    )


def where_it_depends(effects: Effects, plan: Study) -> Table:
    """The changes level by level, of compared factors whose effect depends on another."""
    rows = []
    for (factor, other), found in effects.at.items():
        between = [c for c in effects.with_factor(factor) if c.by is not None and c.by.factor == other]
        if effects.design.factor(factor).compared and dependence_of(between, plan.margin) == "depends":
            for level, contrast in found:
                cells = _cells(contrast, HIGHER, effects, plan)
                rows.append([change_name(contrast.change), f"{other} {level}", *cells])
    return Table(
        title="Level by level, where it depends",
        columns=("factor", "at", *COLUMNS),
        rows=rows,
        note="The changes of one factor at all levels of another hold together (Holm).",
        numeric=NUMERIC,
        dispensable=("passes", "combinations"),
    )


COLUMNS = ("change, %", "verdict", "combinations", "passes")
NUMERIC = frozenset({"change, %", "combinations", "passes"})


def _cells(contrast: Contrast, words: dict[Verdict, str], effects: Effects, plan: Study) -> list[str]:
    change = percent(contrast, effects.design.metric.better)
    if contrast.combined is None or change is None:
        return [ABSENT, NOT_RUN, f"0 of {contrast.among}", "0"]
    over = f"{len(contrast.combined.names)} of {contrast.among}"
    text = result_tables.with_interval(change, plan.confidence)
    return [text, words[contrast.verdict(plan.margin)], over, str(change.n)]


def _hold_together(plan: Study) -> str:
    return (
        "The changes of this table hold together (Holm): an interval without a confidence has "
        f"{given_percent(plan.confidence)}."
    )


_WITHIN = {Schedule.SLICES: "take turns within a block", Schedule.DUET: "run at the same time"}


def _over_time(effects: Effects) -> str:
    """What makes cases is compared between blocks, not within them."""
    cases = [factor.name for factor in effects.design.factors if not factor.compared]
    if not cases:
        return ""
    if effects.design.schedule is Schedule.SEQUENTIAL:
        return (
            f" What {listed(cases)} changes holds the machine's drift, too: the cases ran one after another."
        )
    within = _WITHIN.get(effects.design.schedule, "share a block")
    return f" Levels of {listed(cases)} are compared between blocks of a pass, those of the others {within}."
