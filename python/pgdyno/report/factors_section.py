"""Factors section: main effects and interactions, in sentences, tables and charts."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.factor_effects import Contrast, Effects, LevelChange
from pgdyno.estimate import ABSENT, Better, Estimate, ci_text, given_percent, group_digits, signed
from pgdyno.report import result_tables
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.result_tables import Table, enumeration
from pgdyno.report.section import Section
from pgdyno.report.svg import Scale, circle, drawing, line, nice_ticks, polyline, text
from pgdyno.study.cases import setting_of
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule
from pgdyno.study.stopping_rule import INTERVAL_BLOCKS_MIN

PANELS_MAX = 6
"""Maximum number of charts; the tables have all pairs of factors."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300.0, 210.0, 46.0, 12.0, 22.0, 176.0
ASIDE = 5.0
"""Horizontal offset between the marks of two levels, in pixels."""


def effects_over(effects: Effects) -> list[Panel]:
    """Return one chart for each compared factor and each other factor."""
    pairs = [pair for pair in effects.simple_effects if effects.design.factor(pair[0]).compared]
    drawn = [(pair, picture) for pair in pairs if (picture := _picture(effects, *pair)) is not None]
    return [
        Panel(f"{_named(effects, factor)}, by {factor_name(other)}", picture)
        for (factor, other), picture in drawn[:PANELS_MAX]
    ]


def _named(effects: Effects, factor: str) -> str:
    """Return a heading, for example ``18 vs. 17: change of transactions per second``."""
    first, *others = effects.design.factor(factor).levels
    return f"{', '.join(others)} vs. {first}: change of {effects.design.metric.name}"


def _picture(effects: Effects, factor: str, other: str) -> Markup | None:
    lines: dict[str, list[tuple[str, Contrast]]] = {}
    for level, contrast in effects.simple_effects[factor, other]:
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
    parts.append(text(LEFT + width / 2, BOTTOM + 30, factor_name(other), class_="middle small"))
    order = effects.design.factor(factor).levels
    for i, (level, points) in enumerate(lines.items()):
        number = order.index(level)
        aside = (number - len(order) / 2) * ASIDE
        parts += _line([(at[of] + aside, of, contrast) for of, contrast in points], y, number)
        if len(lines) > 1:
            x = LEFT + width * i / len(lines)
            parts.append(line(x, TOP - 12, x + 12, TOP - 12, class_=f"curve {arm_class(number)}"))
            parts.append(text(x + 16, TOP - 9, level, class_="small"))
    title = f"Change by {factor_name(factor)} at each level of {factor_name(other)}"
    return drawing(WIDTH, HEIGHT, title, parts, "curves")


def _range(contrasts: Sequence[Contrast]) -> tuple[float, float]:
    values = [0.0]
    for contrast in contrasts:
        assert contrast.combined is not None
        values += _ends(contrast) or ()
        values.append(contrast.combined.percent(Better.NEITHER).value)
    padding = 0.06 * (max(values) - min(values)) or 1.0
    return min(values) - padding, max(values) + padding


def _ends(contrast: Contrast) -> tuple[float, float] | None:
    """Return the interval; None with a single pass."""
    assert contrast.combined is not None
    percent = contrast.combined.percent(Better.NEITHER)
    if percent.low is None or percent.high is None:
        return None
    return percent.low, percent.high


def _line(points: Sequence[tuple[float, str, Contrast]], y: Scale, number: int) -> list[Markup]:
    color = arm_class(number)
    parts, way = [], []
    for place, level, contrast in points:
        assert contrast.combined is not None
        x = round(place, 1)
        percent = contrast.combined.percent(Better.NEITHER)
        if ends := _ends(contrast):
            parts.append(line(x, y(ends[0]), x, y(ends[1]), class_=f"cap {color}"))
        title = f"{contrast.change.level}, {level}: {percent.signed_text} ({percent.signed_interval_text})"
        parts.append(circle(x, y(percent.value), 3.5, title, class_=f"dot {color}"))
        way.append((x, y(percent.value)))
    return [polyline(way, class_=f"curve {color}"), *parts]


HIGHER = {
    Verdict.FASTER: "higher",
    Verdict.SLOWER: "lower",
    Verdict.SAME: "same",
    Verdict.UNDECIDED: "undecided",
}
"""Verdict on a main effect. "Faster" would be misleading for factors such as the number of clients."""

INTERACTION_WORDS = {
    Verdict.FASTER: "depends",
    Verdict.SLOWER: "depends",
    Verdict.SAME: "same",
    Verdict.UNDECIDED: "undecided",
}

NOT_RUN = "not run"
"""Shown instead of a verdict if the required combinations were not run."""

ROWS_MAX = 12
"""Rows shown on a terminal; HTML collapses a longer table."""


def factors_section(effects: Effects, plan: Study) -> Section:
    """Return the section: a sentence for each factor, tables and charts."""
    made = [main_effects(effects, plan), interactions(effects, plan), effects_by_level(effects, plan)]
    return Section(
        title="Factors",
        sentences=[factor_sentence(effects, factor.name, plan) for factor in effects.design.factors],
        tables=[table for table in made if table.rows],
        panels=effects_over(effects),
        brief=[_brief(effects, factor.name, plan) for factor in effects.design.factors if factor.compared][
            :BRIEF_MAX
        ],
    )


BRIEF_MAX = 4
"""Maximum number of factors in the summary on the terminal, which leaves out those that make cases."""


def _brief(effects: Effects, factor: str, plan: Study) -> str:
    """Return ``Main effect of work_mem on tx/s: 64MB vs. 4MB +3.2% (95% CI …); it depends on jit.``"""
    known = [contrast for contrast in effects.of(factor) if contrast.combined is not None]
    first = effects.design.factor(factor).levels[0]
    changes = [f"{contrast.change.level} vs. {first} {_with_verdict(contrast, plan)}" for contrast in known]
    others = [of.name for of in effects.design.factors if of.name != factor]
    depends = [
        factor_name(other)
        for other in others
        if interaction_of(
            [c for c in effects.with_factor(factor) if c.by is not None and c.by.factor == other], plan
        )
        == "depends"
    ]
    metric = effects.design.metric.name
    text = f"Main effect of {factor_name(factor)} on {metric}: {'; '.join(changes) or NOT_RUN}"
    return f"{text}; it depends on {enumeration(depends)}." if depends else f"{text}."


def factor_sentence(effects: Effects, factor: str, plan: Study) -> str:
    """Return the average change by a factor and the factors on which it depends."""
    known = [contrast for contrast in effects.of(factor) if contrast.combined is not None]
    metric, first = effects.design.metric.name, effects.design.factor(factor).levels[0]
    others = [of.name for of in effects.design.factors if of.name != factor]
    unlike = [change.level for change in effects.not_compared if change.factor == factor]
    no_unit = (
        f"{metric} of {enumeration(unlike)} {'is' if len(unlike) == 1 else 'are'} not compared with {first}, "
        "because their transactions differ and have no common unit."
    )
    if unlike and not effects.of(factor):
        where = f"Interactions show how the other effects depend on {factor_name(factor)}."
        return f"{factor_name(factor)}: {no_unit} {where}"
    if not known:
        why = "no two levels have valid blocks in the same pass"
        return f"{factor_name(factor)}: effect unknown, because {why}."
    parts = [
        f"{contrast.change.level} {f'instead of {first} changes {metric} by' if i == 0 else 'by'} "
        f"{_with_verdict(contrast, plan)}"
        for i, contrast in enumerate(known)
    ]
    passes = max(contrast.combined.summary.n for contrast in known if contrast.combined)
    average = f"averaged over {enumeration(list(map(factor_name, others)))}, {counted_passes(passes)}"
    depends = _interactions_text(effects, factor, others, plan)
    left_out = f" {no_unit[:1].upper()}{no_unit[1:]}" if unlike else ""
    return f"{factor_name(factor)}: {enumeration(parts)}, {average}.{left_out} {depends}"


def factor_name(factor: str) -> str:
    """Return the name of a factor in texts: that of the setting, if it is one."""
    return setting_of(factor) or factor


def counted_passes(n: int) -> str:
    """Return a number of passes: ``1 pass``, ``8 passes``."""
    return f"{group_digits(n, 0)} {'pass' if n == 1 else 'passes'}"


def contrast_text(contrast: Contrast, better: Better) -> Estimate | None:
    """Return the change in percent; for an interaction, the change of the ratio."""
    return None if contrast.combined is None else contrast.combined.percent(better)


def _with_verdict(contrast: Contrast, plan: Study) -> str:
    change = contrast_text(contrast, Better.NEITHER)
    assert change is not None
    text = result_tables.change_text(change, "%", INTERVAL_BLOCKS_MIN)
    if change.low is None:
        return f"{text} (no CI yet)"
    verdict = contrast.verdict(plan)
    note = {Verdict.SAME: "; equivalent within the margin", Verdict.UNDECIDED: "; undecided"}.get(verdict, "")
    return f"{text} ({ci_text(change.confidence)} {change.signed_interval_text}{note})"


def _interactions_text(effects: Effects, factor: str, others: Sequence[str], plan: Study) -> str:
    """Return sentences on interactions; significant ones come first, because the average is misleading."""
    by_word: dict[str, list[str]] = {}
    sentences = []
    for other in others:
        found = [c for c in effects.with_factor(factor) if c.by is not None and c.by.factor == other]
        word = interaction_of(found, plan)
        by_word.setdefault(word, []).append(factor_name(other))
        if word == "depends":
            sentences.append(_largest_interaction(found, plan))
    if "same" in by_word:
        sentences.append(f"There is no interaction with {_or(by_word['same'])}, within the margin.")
    if "undecided" in by_word:
        sentences.append(f"The interaction with {_or(by_word['undecided'])} is undecided.")
    if NOT_RUN in by_word:
        sentences.append(
            f"The interaction with {_or(by_word[NOT_RUN])} is unknown: too few combinations were run."
        )
    return " ".join(sentences)


def _or(names: Sequence[str]) -> str:
    return " or ".join(names)


def interaction_of(contrasts: Sequence[Contrast], plan: Study) -> str:
    """Classify the interaction of two factors over all levels.

    Returns ``depends``, ``same``, ``undecided`` or ``not run``.
    """
    known = [contrast for contrast in contrasts if contrast.combined is not None]
    words = {INTERACTION_WORDS[contrast.verdict(plan)] for contrast in known}
    if not known:
        return NOT_RUN
    if "depends" in words:
        return "depends"
    return "same" if words == {"same"} and len(known) == len(contrasts) else "undecided"


def _largest_interaction(contrasts: Sequence[Contrast], plan: Study) -> str:
    """Return a sentence with the largest significant interaction."""
    sure = [c for c in contrasts if INTERACTION_WORDS[c.verdict(plan)] == "depends"]
    largest = max(sure, key=lambda c: abs(c.combined.summary.mean) if c.combined else 0.0)
    by, change = largest.by, contrast_text(largest, Better.NEITHER)
    assert by is not None and change is not None
    other = factor_name(by.factor)
    return (
        f"The average is misleading, because the effect depends on {other}: with {other} {by.level}, "
        f"the ratio of {largest.change.level} to {largest.change.first} is {_higher(change)} than with "
        f"{by.first} ({ci_text(change.confidence)} {change.signed_interval_text})."
    )


def _higher(change: Estimate) -> str:
    """Return the size and direction of a change, for example ``7.8% higher``."""
    size = f"{group_digits(abs(change.value), change.decimals)}%"
    return f"{size} {'higher' if change.value > 0 else 'lower'}"


def change_name(change: LevelChange) -> str:
    """Return the name of a change, for example ``clients 1 → 64``."""
    return f"{factor_name(change.factor)} {change.first} → {change.level}"


def main_effects(effects: Effects, plan: Study) -> Table:
    """Return a row for each level of each factor, compared with its first level."""
    rows = [
        [change_name(contrast.change), *_cells(contrast, HIGHER, effects, plan)] for contrast in effects.main
    ]
    metric = effects.design.metric
    return Table(
        title=f"Main effects: change of {metric.name} by factor ({metric.better.word} is better)",
        columns=("factor", *COLUMNS),
        rows=rows,
        note=(
            "Averages with equal weights over the combinations of the other factors that have both levels. "
            + _corrected(plan)
            + _over_time(effects)
        ),
        numeric=NUMERIC,
        dispensable=("passes", "combinations"),
        long=len(rows) > ROWS_MAX,
    )


def interactions(effects: Effects, plan: Study) -> Table:
    """Return a row for each pair of changes of two factors."""
    rows = []
    for contrast in effects.interactions:
        assert contrast.by is not None
        names = [change_name(contrast.change), change_name(contrast.by)]
        rows.append([*names, *_cells(contrast, INTERACTION_WORDS, effects, plan)])
    return Table(
        title="Interactions of factors",
        columns=("factor", "by", *COLUMNS),
        rows=rows,
        note=(
            "Change of the ratio of the first factor by the second factor; 0 means no interaction. "
            + _corrected(plan)
        ),
        numeric=NUMERIC,
        dispensable=("passes", "combinations"),
        long=len(rows) > ROWS_MAX,
    )


def effects_by_level(effects: Effects, plan: Study) -> Table:
    """Return the changes at each level, for compared factors with a significant interaction."""
    rows = []
    for (factor, other), found in effects.simple_effects.items():
        between = [c for c in effects.with_factor(factor) if c.by is not None and c.by.factor == other]
        if effects.design.factor(factor).compared and interaction_of(between, plan) == "depends":
            for level, contrast in found:
                cells = _cells(contrast, HIGHER, effects, plan)
                rows.append([change_name(contrast.change), f"{factor_name(other)} {level}", *cells])
    return Table(
        title="Effects by level of the interacting factor",
        columns=("factor", "at", *COLUMNS),
        rows=rows,
        note="CIs are corrected over all levels of the interacting factor (Holm).",
        numeric=NUMERIC,
        dispensable=("passes", "combinations"),
    )


COLUMNS = ("change, %", "verdict", "combinations", "passes")
NUMERIC = frozenset({"change, %", "combinations", "passes"})


def _cells(contrast: Contrast, words: dict[Verdict, str], effects: Effects, plan: Study) -> list[str]:
    change = contrast_text(contrast, effects.design.metric.better)
    if contrast.combined is None or change is None:
        return [ABSENT, NOT_RUN, f"0 of {contrast.combinations}", "0"]
    over = f"{len(contrast.combined.names)} of {contrast.combinations}"
    text = result_tables.with_interval(change, plan.confidence, INTERVAL_BLOCKS_MIN)
    return [text, words[contrast.verdict(plan)], over, str(change.n)]


def _corrected(plan: Study) -> str:
    return (
        "The CIs of this table are corrected (Holm); a CI without a confidence level has "
        f"{given_percent(plan.confidence)}."
    )


_WITHIN = {Schedule.SLICES: "in alternating slices", Schedule.DUET: "at the same time"}


def _over_time(effects: Effects) -> str:
    """Return a note on factors that make cases: their levels are compared between blocks."""
    cases = [factor_name(factor.name) for factor in effects.design.factors if not factor.compared]
    if not cases:
        return ""
    if effects.design.schedule is Schedule.SEQUENTIAL:
        return (
            f" Effects of {enumeration(cases)} include drift of the machine, because the cases ran one after "
            "another."
        )
    within = _WITHIN.get(effects.design.schedule, "one after another")
    return (
        f" Levels of {enumeration(cases)} are compared between the blocks of a pass. Levels of the other "
        f"factors are compared within a block, {within}."
    )
