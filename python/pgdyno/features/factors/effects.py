"""Main effects and interactions of the factors of a study: findings and section.

- Main effects and interactions of the factors of a study, from its cells.
- Factors section: main effects and interactions, in sentences, tables and charts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated

from markupsafe import Markup

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Verdict, judge, ok_by_block
from pgdyno.analysis.finding_fields import Hidden, MetricKey, about, in_json
from pgdyno.analysis.statistics.averages import Combined, combine
from pgdyno.analysis.statistics.intervals import Method, method_of, simultaneous
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.report import result_tables
from pgdyno.report.document import Section, Table
from pgdyno.report.json_format import Result
from pgdyno.report.plot import Axis, Dots, Panel, Point, arm_class, linear, plot
from pgdyno.report.result_tables import enumeration
from pgdyno.results.records import Trial
from pgdyno.study.cases import setting_of
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN, Study
from pgdyno.units import ABSENT, Better, Estimate, ci_text, confidence_percent, given_percent, group_digits

# ----------------------------------------------------------------------
# Main effects and interactions of the factors of a study, from its cells.
#
# The compared factors of a study file create arms, the others create cases. A cell is an arm of a case. Block
# p of every case runs in pass p, so values of one pass are close in time, and those of one case share the
# block.
#
# Values are on the log scale of the metric of the verdicts. A contrast is computed within a pass, from cells
# that are equal in all other factors:
#
# - the effect of level b of a factor against its first level a: d = y_b − y_a;
# - its dependence on another factor's level g against its first level f: d = (y_bg − y_ag) − (y_bf − y_af), a
#   ratio of ratios. It is symmetric in the two factors.
#
# Each is averaged over the combinations of the remaining factors with equal weights. Its interval is over the
# complete passes (``averages.combine``, by the method of the verdicts). This is the contrast of Yates ("The
# design and analysis of factorial experiments", 1937) with the study's interval on its values by pass.
# Unlike an analysis of variance, this does not require equal variances of all cells. Drift from pass to pass
# cancels. Drift from block to block also cancels for compared factors.
#
# If combinations were excluded or have no blocks, a contrast is averaged over those that have all two or four
# cells. Their number is reported. Without any, the contrast is not estimated. Filling gaps with a model
# without interactions would assume the result.
#
# Levels of a case factor with other transactions (scripts, a mix) have no common unit. Their throughput is
# not compared, only how the effects of other factors depend on them. Factors in ``compare`` are always
# compared: the study file asks for it.
#
# Holm's correction is over two families: all main effects of the study, and all its interactions. In each
# family the probability of one or more false claims is at most α.
# ----------------------------------------------------------------------

Levels = Mapping[str, str]
"""factor → name of its level."""


@dataclass(frozen=True)
class Factor:
    """A factor. ``levels`` are in the order of the study file; the first is the reference.

    ``compared``: it creates arms.
    """

    name: str
    levels: Sequence[str]
    compared: bool


@dataclass(frozen=True)
class FactorialCell:
    """Values of a cell. ``logs`` is pass → ln of the metric.

    ``stalled``: in some pass the arm completed nothing or failed, so the other passes would bias the result
    in its favor. ``work`` is what a transaction does (``WorkloadParameters.work``). ``is_biased``: a trend, a
    missed limit or a missed rate holds back its comparisons.
    """

    levels: Levels
    clients: int
    rate_per_s: float | None  # of an open loop
    logs: Mapping[int, float]
    stalled: bool
    work: str = ""
    is_biased: bool = False


@dataclass(frozen=True)
class FactorialDesign:
    """Factors of a study with the values of its cells. ``metric`` is also that of the verdicts."""

    factors: Sequence[Factor]
    cells: Sequence[FactorialCell]
    metric: Metric
    schedule: Schedule
    method: Method  # of intervals

    def factor(self, name: str) -> Factor:
        """Return the factor with this name."""
        return next(factor for factor in self.factors if factor.name == name)

    @cached_property
    def _by_levels(self) -> Mapping[frozenset[tuple[str, str]], FactorialCell]:
        return {frozenset(cell.levels.items()): cell for cell in self.cells}

    def at(self, levels: Levels) -> FactorialCell | None:
        """Return the cell with these levels of all factors, or None if it was not run."""
        return self._by_levels.get(frozenset(levels.items()))

    def have_other_work(self, change: LevelChange) -> bool:
        """Return whether the transactions of two levels differ, and the study file does not compare them."""
        if self.factor(change.factor).compared:
            return False
        pairs = (
            (
                self.at({**context, change.factor: change.first}),
                self.at({**context, change.factor: change.level}),
            )
            for context in self.contexts(change.factor)
        )
        return any(a is not None and b is not None and a.work != b.work for a, b in pairs)

    def contexts(self, *but: str) -> list[Levels]:
        """Return every combination of levels of all factors except these, run or not."""
        others = [factor for factor in self.factors if factor.name not in but]
        names = [factor.name for factor in others]
        return [
            dict(zip(names, chosen, strict=True))
            for chosen in itertools.product(*(factor.levels for factor in others))
        ]


Value = Callable[[Findings, Trial], float | None]


def design_of(cases: Sequence[Findings], value: Value | None = None) -> FactorialDesign | None:
    """Return the design; None if no factor varies, or if verdicts are about different metrics.

    ``value`` computes a trial's value that replaces the metric.
    """
    placed = [(levels, of, arm) for of in cases for arm, levels in enumerate(_levels_of_arms(of))]
    every = [levels for levels, _, _ in placed]
    names = list(dict.fromkeys(name for levels in every for name in levels))
    keys = {of.primary.key for of in cases}
    if not names or len(keys) != 1 or any(levels.keys() != set(names) for levels in every):
        return None
    compared = {name for of in cases for levels in _arms(of) for name in levels}
    factors = [Factor(name, _ordered(name, every), name in compared) for name in names]
    first = cases[0]
    return FactorialDesign(
        factors=[factor for factor in factors if len(factor.levels) > 1],
        cells=list(_cells(placed, {factor.name for factor in factors if len(factor.levels) > 1}, value)),
        metric=first.primary,
        schedule=first.study.plan.schedule,
        method=method_of(first.study.plan, first.trials),
    )


def _cells(
    placed: Iterable[tuple[Levels, Findings, int]], varying: set[str], value: Value | None
) -> Iterator[FactorialCell]:
    seen: list[Levels] = []
    for levels, of, arm in placed:
        own = {name: level for name, level in levels.items() if name in varying}
        if own not in seen:  # a duplicate arm checks the machine and is not another cell
            seen.append(own)
            values = _values(of, arm, value)
            known = {block: math.log(measured) for block, measured in values.items() if measured}
            plan = of.study.plan
            work = plan.driving(arm).workload.work()
            failed = any(trial.arm == arm and trial.failed_by_itself for trial in of.trials)
            stalled = failed or len(known) < len(values)
            clients = of.arms[arm].arm.clients
            biased = _is_biased(of, arm)
            yield FactorialCell(own, clients, plan.rate_per_s, known, stalled, work, biased)


def _is_biased(of: Findings, arm: int) -> bool:
    """Return whether comparisons are held back because of this arm, not only of their baseline."""
    name = of.arms[arm].arm.name
    return any(
        (one.is_unsteady and one.arm.arm == arm)
        or name in one.unconfirmed
        or any(missed.arm.arm == arm for missed in one.missed_rates)
        for one in of.comparisons
    )


def _arms(of: Findings) -> Sequence[Levels]:
    return [{factor: str(level) for factor, level in levels.items()} for levels in of.study.arm_levels]


def _levels_of_arms(of: Findings) -> list[Levels]:
    """Return the levels of each arm, including those of its case; empty if none are recorded."""
    case = {factor: str(level) for factor, level in of.study.levels.items()}
    return [{**levels, **case} for levels in _arms(of)[: len(of.arms)] if levels or case]


def _values(of: Findings, arm: int, value: Value | None) -> dict[int, float | None]:
    """Return block → metric, for blocks in which the arm's trial counts."""
    found = {}
    for block, by_arm in ok_by_block(of.trials).items():
        if arm in by_arm:
            # Slices have a partner in every other arm of the block.
            trials = by_arm.values() if of.study.plan.is_together else ()
            slices = min((len(trial.measured) for trial in trials), default=None)
            trial = by_arm[arm]
            whole = trial.measured[:slices]
            found[block] = value(of, trial) if value else of.primary.value(trial, whole)
    return found


def _ordered(name: str, every: Sequence[Levels]) -> list[str]:
    """Return a factor's levels in the order of the study file.

    Exclusions may remove the first level from the first cases. So the order is that of the combination of the
    other factors with the most levels.
    """
    contexts: dict[frozenset[tuple[str, str]], list[str]] = {}
    for levels in every:
        others = frozenset((other, level) for other, level in levels.items() if other != name)
        contexts.setdefault(others, []).append(levels[name])
    longest_first = sorted(contexts.values(), key=len, reverse=True)
    return list(dict.fromkeys(itertools.chain.from_iterable(longest_first)))


LogRatios = Mapping[int, float]


@dataclass(frozen=True)
class LevelChange:
    """Change from the first level of a factor to another one."""

    factor: str
    first: str
    level: str


@dataclass(frozen=True)
class Contrast:
    """A change; with ``by``, the ratio of the change after that other change to the change before it.

    ``combinations`` is the number of combinations of the remaining factors; ``combined.names`` are those with
    a value. ``combined`` is None if it cannot be estimated.
    """

    change: LevelChange
    by: Annotated[LevelChange | None, about("Change of the other factor of an interaction.")]
    combinations: int
    combined: Combined | None
    better: Hidden[Better]

    @in_json
    def percent(self) -> Estimate | None:
        """The change in percent; ``n`` is the number of passes."""
        return self.combined.percent(self.better) if self.combined else None

    def verdict(self, plan: Study) -> Verdict:
        """Return the verdict. Faster: the metric or the change is larger; same: within the margin."""
        if self.combined is None:
            return Verdict.UNDECIDED
        return judge(self.combined.summary, plan.margin)


@dataclass(frozen=True)
class ConditionalContrast:
    """Change at one level (``at``) of another factor (``other``)."""

    other: str
    at: str
    contrast: Contrast


@dataclass(frozen=True)
class Effects:
    """Effects of factors. ``main`` and ``interactions`` are each corrected as a family.

    ``not_compared`` are the changes between levels with other transactions, which have no main effect.
    ``simple_effects`` has the change of one factor at each level of another, corrected over these.
    """

    design: Hidden[FactorialDesign]
    main: Sequence[Contrast]
    interactions: Sequence[Contrast]
    not_compared: Annotated[
        Sequence[LevelChange], about("Between levels with other transactions, which have no common unit.")
    ]
    simple_effects: Hidden[
        Mapping[tuple[str, str], Sequence[tuple[str, Contrast]]]
    ]  # (factor, other) → (other's level, change)

    @in_json
    def metric(self) -> MetricKey:
        """The metric that changes."""
        return self.design.metric

    @in_json
    def factors(self) -> Sequence[Factor]:
        """The factors of the study."""
        return self.design.factors

    @in_json
    def changes_at_levels(self) -> list[ConditionalContrast]:
        """Changes of one factor at each level of another."""
        return [
            ConditionalContrast(other, level, contrast)
            for (_, other), found in self.simple_effects.items()
            for level, contrast in found
        ]

    def of(self, factor: str) -> list[Contrast]:
        """Return the main effects of a factor."""
        return [contrast for contrast in self.main if contrast.change.factor == factor]

    def between(self, factor: str, other: str) -> list[Contrast]:
        """Return the interactions of two factors, from the point of view of the first."""
        found = []
        for contrast in self.interactions:
            assert contrast.by is not None
            if (contrast.change.factor, contrast.by.factor) == (factor, other):
                found.append(contrast)
            elif (contrast.change.factor, contrast.by.factor) == (other, factor):
                found.append(replace(contrast, change=contrast.by, by=contrast.change))
        return found


def effects_in(cases: Sequence[Findings]) -> Effects | None:
    """Return the effects of the factors of a study; None unless several vary."""
    design = design_of(cases)
    return None if design is None else effects_of(design, cases[0].study.plan.confidence)


def effects_of(design: FactorialDesign, confidence: float) -> Effects | None:
    """Return the effects; None for a single factor, which the comparisons cover."""
    if len(design.factors) < 2:
        return None
    every = [change for factor in design.factors for change in factor_level_changes(factor)]
    unlike = [change for change in every if design.have_other_work(change)]
    return Effects(
        design=design,
        main=_family(design, [(change, None, {}) for change in every if change not in unlike], confidence),
        interactions=interactions_of(design, confidence),
        not_compared=unlike,
        simple_effects={
            (one.name, other.name): _at_each(design, one, other, confidence)
            for one, other in itertools.permutations(design.factors, 2)
        },
    )


def interactions_of(design: FactorialDesign, confidence: float) -> list[Contrast]:
    """Return the interactions of all pairs of factors, all levels against the first ones, as one family."""
    wanted: list[_Wanted] = [
        (change, by, {})
        for one, other in itertools.combinations(design.factors, 2)
        for change in factor_level_changes(one)
        for by in factor_level_changes(other)
    ]
    return _family(design, wanted, confidence)


def factor_level_changes(factor: Factor) -> list[LevelChange]:
    """Return the changes from the first level to each of the others."""
    return [LevelChange(factor.name, factor.levels[0], level) for level in factor.levels[1:]]


_Wanted = tuple[LevelChange, LevelChange | None, Levels]
"""A contrast: a change, the change of another factor, and fixed levels of other factors."""


def _family(design: FactorialDesign, wanted: Sequence[_Wanted], confidence: float) -> list[Contrast]:
    """Return the contrasts with intervals at the confidence of Holm's test. Empty ones are not tested."""
    found = [_ratios(design, *one) for one in wanted]
    there = [i for i, (_, ratios) in enumerate(found) if ratios]
    estimators = [partial(combine, found[i][1], method=design.method) for i in there]
    combined = dict(zip(there, simultaneous(estimators, confidence), strict=True))
    return [
        Contrast(change, by, combinations, combined.get(i), design.metric.better)
        for i, ((change, by, _), (combinations, _)) in enumerate(zip(wanted, found, strict=True))
    ]


def _at_each(
    design: FactorialDesign, one: Factor, other: Factor, confidence: float
) -> list[tuple[str, Contrast]]:
    alike = [change for change in factor_level_changes(one) if not design.have_other_work(change)]
    places = [(change, level) for change in alike for level in other.levels]
    found = _family(design, [(change, None, {other.name: level}) for change, level in places], confidence)
    return [(level, contrast) for (_, level), contrast in zip(places, found, strict=True)]


def _ratios(
    design: FactorialDesign, change: LevelChange, by: LevelChange | None, fixed: Levels
) -> tuple[int, dict[str, LogRatios]]:
    """Return the number of combinations of the remaining factors, and combination → pass → d."""
    contexts = design.contexts(change.factor, *fixed, *([by.factor] if by else []))
    ratios = {}
    for context in contexts:
        corners = _corners(design, {**context, **fixed}, change, by)
        if corners is not None and (found := _within_passes(corners)):
            ratios[", ".join(f"{factor} {level}" for factor, level in context.items())] = found
    return len(contexts), ratios


Corners = Sequence[tuple[int, FactorialCell]]
"""Cells with their signs in the contrast."""


def _corners(
    design: FactorialDesign, context: Levels, change: LevelChange, by: LevelChange | None
) -> Corners | None:
    """Return the cells of a contrast; None if one was not run, stalled or is biased."""
    sides: list[tuple[int, Levels]]
    sides = [(1, {change.factor: change.level}), (-1, {change.factor: change.first})]
    if by is not None:
        sides = [
            (sign * other, {**levels, by.factor: level})
            for sign, levels in sides
            for other, level in ((1, by.level), (-1, by.first))
        ]
    found = []
    for sign, levels in sides:
        cell = design.at({**context, **levels})
        if cell is None or cell.stalled or cell.is_biased:
            return None
        found.append((sign, cell))
    return found


def _within_passes(corners: Corners) -> LogRatios:
    """Return the contrast in the passes that have all cells."""
    passes = set.intersection(*(set(cell.logs) for _, cell in corners))
    return {number: sum(sign * cell.logs[number] for sign, cell in corners) for number in sorted(passes)}


# ----------------------------------------------------------------------
# Factors section: main effects and interactions, in sentences, tables and charts.
# ----------------------------------------------------------------------

PANELS_MAX = 6
"""Maximum number of charts; the tables have all pairs of factors."""

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
    levels, order = effects.design.factor(other).levels, list(effects.design.factor(factor).levels)
    marks, values = [], [0.0]
    for level, points in lines.items():
        dots = []
        for of, contrast in points:
            assert contrast.combined is not None
            change = contrast.combined.percent(Better.NEITHER)
            title = f"{level}, {of}: {change.signed_text} ({change.signed_interval_text})"
            dots.append(Point(levels.index(of), change.value, title, change.low, change.high))
            values += [end for end in (change.value, change.low, change.high) if end is not None]
        number = order.index(level)
        name, aside = level if len(lines) > 1 else "", (number - len(order) / 2) * ASIDE
        marks.append(Dots(dots, arm_class(number), name, aside))
    names = [(float(i), level) for i, level in enumerate(levels)]
    x = Axis(-0.5, len(levels) - 0.5, names, factor_name(other))
    title = f"Change by {factor_name(factor)} at each level of {factor_name(other)}"
    return plot(title, x, linear(values, unit="%"), marks)


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
        "factors",
        "Factors",
        [factor_sentence(effects, factor.name, plan) for factor in effects.design.factors],
        [table for table in made if table.rows],
        plots=partial(effects_over, effects),
        brief=briefs(effects, plan),
        order=40,
    )


BRIEF_MAX = 4
"""Maximum number of factors in the summary on the terminal, which leaves out those that make cases."""


def briefs(effects: Effects, plan: Study) -> list[str]:
    """Return the sentences of the first screen; empty if they repeat the average over cases."""
    compared = [factor for factor in effects.design.factors if factor.compared]
    found = {factor.name: _depends(effects, factor.name, plan) for factor in compared}
    if len(compared) == 1 and len(compared[0].levels) == 2 and not any(found.values()):
        return []
    known = [of for name in found for of in effects.of(name)]
    levels = sorted(
        {confidence_percent(of.combined.summary.confidence) for of in known if of.combined is not None}
    )
    texts = [_brief(effects, *of) for of in list(found.items())[:BRIEF_MAX]]
    at_least = "≥ " if len(levels) > 1 else ""
    return [f"Factors (CIs {at_least}{levels[0]}): {'; '.join(texts)}."] if levels else []


def _depends(effects: Effects, factor: str, plan: Study) -> list[str]:
    """Return the names of the factors on which a main effect depends."""
    others = [of.name for of in effects.design.factors if of.name != factor]
    return [
        factor_name(other)
        for other in others
        if interaction_of(effects.between(factor, other), plan) == "depends"
    ]


def _brief(effects: Effects, factor: str, depends: Sequence[str]) -> str:
    """Return ``work_mem 64MB vs. 4MB +3.2% [+1.2, +5.2], varies by jit``."""
    known = [contrast for contrast in effects.of(factor) if contrast.combined is not None]
    first = effects.design.factor(factor).levels[0]
    changes = [
        f"{of.change.level} vs. {first} {result_tables.change_text(percent, '%', INTERVAL_BLOCKS_MIN)}"
        + ("" if percent.low is None else f" {percent.signed_interval_text.replace('%', '')}")
        for of in known
        if of.combined and (percent := of.combined.percent(Better.NEITHER))
    ]
    text = f"{factor_name(factor)} {', '.join(changes) or NOT_RUN}"
    return f"{text}, varies by {', '.join(depends)}" if depends else text


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


def _with_verdict(contrast: Contrast, plan: Study) -> str:
    assert contrast.combined is not None
    change = contrast.combined.percent(Better.NEITHER)
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
        found = effects.between(factor, other)
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
    by, combined = largest.by, largest.combined
    assert by is not None and combined is not None
    change = combined.percent(Better.NEITHER)
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
        [change_name(contrast.change), *_effect_cells(contrast, HIGHER, effects, plan)]
        for contrast in effects.main
    ]
    metric = effects.design.metric
    title = f"Main effects: change of {metric.name} by factor ({metric.better.word} is better)"
    note = "Averages with equal weights over the combinations of the other factors that have both levels. "
    return _table(title, ["factor"], rows, note + _corrected(plan) + _over_time(effects))


def _table(title: str, columns: Sequence[str], rows: Sequence[list[str]], note: str) -> Table:
    return Table(
        title=title,
        columns=(*columns, *COLUMNS),
        rows=rows,
        note=note,
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
        rows.append([*names, *_effect_cells(contrast, INTERACTION_WORDS, effects, plan)])
    note = "Change of the ratio of the first factor by the second factor; 0 means no interaction. "
    return _table("Interactions of factors", ["factor", "by"], rows, note + _corrected(plan))


def effects_by_level(effects: Effects, plan: Study) -> Table:
    """Return the changes at each level, for compared factors with a significant interaction."""
    rows = []
    for (factor, other), found in effects.simple_effects.items():
        depends = interaction_of(effects.between(factor, other), plan) == "depends"
        if depends and effects.design.factor(factor).compared:
            for level, contrast in found:
                cells = _effect_cells(contrast, HIGHER, effects, plan)
                rows.append([change_name(contrast.change), f"{factor_name(other)} {level}", *cells])
    note = "CIs are corrected over all levels of the interacting factor (Holm)."
    table = _table("Effects by level of the interacting factor", ["factor", "at"], rows, note)
    return replace(table, long=False)


COLUMNS = ("change, %", "verdict", "combinations", "passes")
NUMERIC = frozenset({"change, %", "combinations", "passes"})


def _effect_cells(contrast: Contrast, words: dict[Verdict, str], effects: Effects, plan: Study) -> list[str]:
    if contrast.combined is None:
        return [ABSENT, NOT_RUN, f"0 of {contrast.combinations}", "0"]
    change = contrast.combined.percent(effects.design.metric.better)
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


RESULT = Result(
    "effects", Effects | None, "Of the factors, if several vary.", lambda of: effects_in(of.cases)
)
