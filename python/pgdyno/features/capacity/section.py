"""The capacity of each arm: findings and section.

- Capacity: the highest rate of an open loop at which an arm keeps a latency limit.
- Capacity section: the highest rate that meets the latency limit, with tables and charts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from markupsafe import Markup

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Decision, Verdict, decide
from pgdyno.analysis.finding_fields import ShownAs, about
from pgdyno.analysis.statistics.intervals import Method, own_level, simultaneous, summarize
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.features.factors.effects import HIGHER, FactorialDesign, Levels, counted_passes, design_of
from pgdyno.features.factors.scalability import baseline_of, curve_name
from pgdyno.report import result_tables
from pgdyno.report.document import Section, Table
from pgdyno.report.json_format import Result
from pgdyno.report.plot import Axis, Dots, Panel, Point, Scale, arm_class, line, logarithmic, plot, text
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.study.values import LatencyLimit, crossing, parse_limit
from pgdyno.units import (
    ABSENT,
    NO_BREAK,
    Better,
    Estimate,
    ci_text,
    decimals_of,
    given_percent,
    group_digits,
    significant,
)

# ----------------------------------------------------------------------
# Capacity: the highest rate of an open loop at which an arm keeps a latency limit.
#
# Computed if ``rate`` is a factor of the study and the study has a latency limit (p99 < 20 ms). Each pass has
# a block of every rate. Going up from the lowest rate, the capacity is between the last rate that meets the
# limit and the first that misses it. It is interpolated in the logarithms of rate and latency. If the latency
# is infinite because many transactions were never answered, the capacity is the geometric mean of the two
# rates. Latency is measured from the intended start (ADR 6), and a transaction without an answer misses the
# limit (``latency.limited_ms``).
#
# A pass has one capacity per arm. Its logarithm is compared like any other metric: paired by pass, several
# arms corrected (Holm). If a pass meets the limit at the highest rate, or misses it at the
# lowest, only a bound of its capacity is known. Omitting such passes would bias the estimate, so none is
# given, and the missing rates are reported.
# ----------------------------------------------------------------------

FACTOR = "rate"

UNIT = "tx/s"


def _by_rate(latency_ms: Mapping[float, Estimate | None]) -> dict[str, Estimate | None]:
    return {f"{rate:g}": level for rate, level in latency_ms.items()}


@dataclass(frozen=True)
class ArmCapacity:
    """Capacity of one combination of the other factors. ``by_pass``: pass → capacity, tx/s.

    ``above`` is the number of passes that met the limit at the highest rate, ``below`` of those that missed
    it at the lowest. With any of these, without a complete pass, or with ``failed_at``, ``capacity`` is None.
    ``latency_ms``: rate → the limited quantile, infinite if it was so in any pass; None for a rate without
    blocks.
    """

    name: str
    by_pass: Mapping[int, float]
    above: Annotated[int, about("Number of passes in which every rate kept the limit.")]
    below: Annotated[int, about("Number of passes in which no rate kept the limit.")]
    rates: Sequence[float]
    latency_ms: Annotated[
        Mapping[float, Estimate | None],
        ShownAs(dict[str, Estimate | None], _by_rate),
        about("By rate. The value of an infinite latency is null."),
    ]
    capacity: Estimate | None
    failed_at: Annotated[Sequence[float], about("Rates at which the arm failed in a pass.")] = ()


@dataclass(frozen=True)
class CapacityChange:
    """Change of an arm's capacity from its baseline."""

    name: str
    baseline: str
    percent: Estimate
    decision: Decision


@dataclass(frozen=True)
class Capacity:
    """Capacities of all arms."""

    limit: LatencyLimit
    text: str
    arms: Sequence[ArmCapacity]
    changes: Sequence[CapacityChange]


def capacity_of(cases: Sequence[Findings]) -> Capacity | None:
    """Return the capacities; None if the study has no latency limit or does not vary the rate."""
    plan = cases[0].study.plan
    text = plan.capacity
    if text is None:
        return None
    design = design_of(cases, lambda of, trial: of.limited_ms.get(trial.trial))
    if design is None or not any(factor.name == FACTOR for factor in design.factors):
        return None
    limit = parse_limit(text)
    contexts = design.contexts(FACTOR)
    arms = {curve_name(context): _kept(design, context, limit, plan.confidence) for context in contexts}
    pairs = [(curve_name(of), curve_name(baseline_of(design, of, FACTOR))) for of in contexts]
    known = [pair for pair in pairs if pair[0] != pair[1] and all(arms[name].capacity for name in pair)]
    return Capacity(
        limit=limit,
        text=text,
        arms=list(arms.values()),
        changes=_changes(known, arms, plan.confidence, plan.margin, design.method),
    )


def _kept(design: FactorialDesign, context: Levels, limit: LatencyLimit, confidence: float) -> ArmCapacity:
    levels = next(factor.levels for factor in design.factors if factor.name == FACTOR)
    cells = [cell for level in levels if (cell := design.at({**context, FACTOR: level})) is not None]
    cells.sort(key=lambda cell: cell.rate_per_s or 0.0)
    rates = [cell.rate_per_s or 0.0 for cell in cells]
    passes = sorted(set.intersection(*(set(cell.logs) for cell in cells))) if cells else []
    aim = math.log(limit.latency_s * 1e3)
    found = {number: crossing(rates, [cell.logs[number] for cell in cells], aim) for number in passes}
    above = sum(rate == math.inf for rate in found.values())
    below = sum(rate == 0 for rate in found.values())
    known = {number: rate for number, rate in found.items() if 0 < rate < math.inf}
    # The other passes would favor an arm that failed.
    failed_at = [rate for rate, cell in zip(rates, cells, strict=True) if cell.stalled]
    is_known = not (above or below or failed_at)
    return ArmCapacity(
        name=curve_name(context),
        by_pass=known,
        above=above,
        below=below,
        rates=rates,
        latency_ms={
            rate: _level([cell.logs[number] for number in passes], confidence, design.method)
            for rate, cell in zip(rates, cells, strict=True)
        },
        capacity=own_level(known, UNIT, Better.MORE, confidence, design.method) if is_known else None,
        failed_at=failed_at,
    )


def _level(logs: Sequence[float], confidence: float, method: Method) -> Estimate | None:
    """Return the latency in ms over the passes."""
    if any(math.isinf(value) for value in logs):
        return Estimate(math.inf, "ms", len(logs), Better.LESS)
    return own_level({i: math.exp(v) for i, v in enumerate(logs)}, "ms", Better.LESS, confidence, method)


def _changes(
    pairs: Sequence[tuple[str, str]],
    arms: Mapping[str, ArmCapacity],
    confidence: float,
    margin: float,
    method: Method,
) -> list[CapacityChange]:
    there = []
    for pair in pairs:
        one, other = (arms[name].by_pass for name in pair)
        if d := [math.log(one[number] / other[number]) for number in sorted(set(one) & set(other))]:
            there.append((pair, d))
    summaries = simultaneous([partial(summarize, d, method=method) for _, d in there], confidence)
    return [
        CapacityChange(*pair, summary.percent(Better.MORE), decide(summary, Better.MORE, margin))
        for (pair, _), summary in zip(there, summaries, strict=True)
    ]


# ----------------------------------------------------------------------
# Capacity section: the highest rate that meets the latency limit, with tables and charts.
# ----------------------------------------------------------------------

ARMS_MAX = 6
"""Maximum number of arms in the chart; the tables have all."""


def latency_chart(found: Capacity) -> list[Panel]:
    """Return one chart of all arms, or none if no latency is finite."""
    arms = found.arms[:ARMS_MAX]
    known = [latency for kept in arms for _, latency in _points(kept)]
    rates = sorted({rate for kept in arms for rate in kept.rates})
    if not known or len(rates) < 2:
        return []
    limit_ms = found.limit.latency_s * 1e3
    title = f"{found.limit.percentile} by rate, with the limit"
    return [Panel(title, _picture(arms, rates, logarithmic([*known, limit_ms], "ms", factor=1.3), limit_ms))]


def _points(kept: ArmCapacity) -> list[tuple[float, float]]:
    return [
        (rate, level.value)
        for rate, level in kept.latency_ms.items()
        if level is not None and math.isfinite(level.value)
    ]


def _picture(arms: Sequence[ArmCapacity], rates: Sequence[float], y: Axis, limit_ms: float) -> Markup:
    labels = [(rate, group_digits(rate, 0)) for rate in rates]
    x = Axis(rates[0] / 1.05, rates[-1] * 1.05, labels, UNIT, log=True)

    def limit(across: Scale, up: Scale) -> list[Markup]:
        at = up(limit_ms)
        return [
            line(across.start, at, across.end, at, class_="zero"),
            text(across.start + 4, at - 4, "limit", class_="small"),
        ]

    of_arms = [
        Dots(
            [
                Point(rate, ms, f"{kept.name}, {group_digits(rate, 0)} {UNIT}: {significant(ms, 3)} ms")
                for rate, ms in _points(kept)
            ],
            arm_class(number),
            kept.name,
        )
        for number, kept in enumerate(arms)
    ]
    return plot("Latency by rate", x, y, [limit, *of_arms])


def sections(findings: StudyFindings) -> Iterator[Section]:
    """Yield the section of a study with a latency limit."""
    if found := capacity_of(findings.cases):
        yield capacity_section(found, findings.first.study.plan)


def capacity_section(found: Capacity, plan: Study) -> Section:
    """Return the section: sentences, tables and chart."""
    made = [capacities(found, plan), limit_latency_table(found)]
    title = f"Capacity: highest rate with {found.limit}"
    sentences = [
        *(capacity_sentence(kept, found) for kept in found.arms),
        *(capacity_change_sentence(change) for change in found.changes),
    ]
    return Section(
        "capacity",
        title,
        sentences,
        [table for table in made if table.rows],
        plots=partial(latency_chart, found),
        brief=[f"{title}: {'; '.join(_brief(kept, found) for kept in found.arms)}."],
        order=30,
    )


def _brief(kept: ArmCapacity, found: Capacity) -> str:
    """Return the capacity of an arm and its change, for example ``18: 1,464 tx/s, +13.7% (95% CI …)``."""
    if kept.capacity is None:
        return f"{kept.name}: unknown"
    changes = [result_tables.change_with_ci(of.percent) for of in found.changes if of.name == kept.name]
    return ", ".join([f"{kept.name}: {_rate(kept.capacity)}{NO_BREAK}{UNIT}", *changes])


def capacity_sentence(kept: ArmCapacity, found: Capacity) -> str:
    """Return a sentence with the capacity, or with the rates that the study lacks."""
    passes = len(kept.by_pass) + kept.above + kept.below
    if kept.failed_at:
        rates = result_tables.enumeration([group_digits(rate, 0) for rate in kept.failed_at])
        return f"{kept.name}: capacity unknown, because it failed in a pass at {rates}{NO_BREAK}{UNIT}."
    if not passes:
        return f"{kept.name}: capacity unknown, because no pass has enough transactions at every rate."
    ends = (
        (kept.above, "meet", -1, "highest rate of the study (add higher rates)"),
        (kept.below, "exceed", 0, "lowest rate of the study (add lower rates)"),
    )
    parts = [
        f"{n} of {counted_passes(passes)} {verb} {found.limit} at "
        f"{group_digits(kept.rates[end], 0)}{NO_BREAK}{UNIT}, the {which}"
        for n, verb, end, which in ends
        if n
    ]
    if parts or kept.capacity is None:
        return f"{kept.name}: capacity unknown: {'; '.join(parts)}."
    rate = f"{_rate(kept.capacity)}{NO_BREAK}{UNIT}"
    return f"{kept.name} meets {found.limit} up to {rate} ({_interval(kept.capacity)})."


def _rate(capacity: Estimate) -> str:
    decimals = decimals_of(capacity.value, 3) if capacity.n < VERDICT_BLOCKS_MIN else capacity.decimals
    return group_digits(capacity.value, decimals)


def _interval(estimate: Estimate, text: str | None = None) -> str:
    if estimate.low is None or estimate.n < VERDICT_BLOCKS_MIN:
        return f"no CI yet, {counted_passes(estimate.n)}"
    interval = f"{ci_text(estimate.confidence)} {text or estimate.interval_text}"
    return f"{interval}, {counted_passes(estimate.n)}"


def capacity_change_sentence(change: CapacityChange) -> str:
    """Return the change and its verdict, for example ``18 vs. 17: capacity +4.2% (…): higher.``"""
    decision = change.decision
    verdict = HIGHER[decision.verdict]
    if decision.verdict is Verdict.SAME:
        verdict = f"equivalent (margin {given_percent(decision.margin)})"
    size = result_tables.change_text(change.percent, "%")
    interval = _interval(change.percent, change.percent.signed_interval_text)
    return f"{change.name} vs. {change.baseline}: capacity {size} ({interval}): {verdict}."


def capacities(found: Capacity, plan: Study) -> Table:
    """Return a row for each arm: capacity, change, verdict."""
    changes = {change.name: change for change in found.changes}
    numeric = (f"capacity, {UNIT}", "change, %", "passes")
    rows = []
    for kept in found.arms:
        change, capacity = changes.get(kept.name), kept.capacity
        cell = ABSENT
        if capacity is not None:
            cell = _rate(capacity)
            if capacity.low is not None and capacity.n >= VERDICT_BLOCKS_MIN:
                cell += f"{NO_BREAK}{result_tables.with_no_break_spaces(capacity.interval_text)}"
        rows.append(
            [
                kept.name,
                cell,
                result_tables.with_interval(change.percent, plan.confidence) if change else "",
                HIGHER[change.decision.verdict] if change else "",
                str(len(kept.by_pass) + kept.above + kept.below),
            ]
        )
    return Table(
        title="Capacity (higher is better)",
        columns=("arm", *numeric[:2], "verdict", numeric[2]),
        rows=rows,
        note=(
            "In each pass, the latency is interpolated between the highest rate that meets the limit and the "
            "next rate, which exceeds it. Unanswered transactions exceed the limit. The CIs of the changes "
            f"are corrected (Holm); a CI without a confidence level has {given_percent(plan.confidence)}."
        ),
        numeric=frozenset(numeric),
        dispensable=("passes",),
    )


def limit_latency_table(found: Capacity) -> Table:
    """Return the percentile of the limit at each rate, one row per arm."""
    rates = sorted({rate for kept in found.arms for rate in kept.rates})
    columns = [f"{group_digits(rate, 0)}{NO_BREAK}{UNIT}" for rate in rates]
    rows = [[kept.name, *(_latency(kept.latency_ms.get(rate)) for rate in rates)] for kept in found.arms]
    return Table(
        title=f"{found.limit.percentile} at each rate, ms (lower is better)",
        columns=("arm", *columns),
        rows=rows,
        note=(
            "Geometric means over the passes; latency counts from the intended start. ∞: in at least one "
            "pass, the percentile falls on an unanswered transaction."
        ),
        numeric=frozenset(columns),
    )


def _latency(level: Estimate | None) -> str:
    if level is None:
        return ABSENT
    return "∞" if math.isinf(level.value) else significant(level.value, 3)


RESULT = Result(
    "capacity", Capacity | None, "If the study limits the latency.", lambda of: capacity_of(of.cases)
)
