"""Capacity: the highest rate of an open loop at which an arm keeps a latency limit.

Computed if ``rate`` is a factor of the study and the study has a latency limit (p99 < 20 ms). Each pass has a
block of every rate. Going up from the lowest rate, the capacity is between the last rate that meets the limit
and the first that misses it. It is interpolated in the logarithms of rate and latency. If the latency is
infinite because many transactions were never answered, the capacity is the geometric mean of the two rates.
Latency is measured from the intended start (ADR 6), and a transaction without an answer misses the limit
(``latency.limited_ms``).

A pass has one capacity per arm. Its logarithm is compared like any other metric: paired by pass, Student's
interval, several arms corrected (Holm). If a pass meets the limit at the highest rate, or misses it at the
lowest, only a bound of its capacity is known. Omitting such passes would bias the estimate, so none is given,
and the missing rates are reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pgdyno.analysis.comparison.verdict import Decision, decide
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.factor_effects import FactorialDesign, Levels, design_of
from pgdyno.analysis.findings.scalability import baseline_of, curve_name
from pgdyno.analysis.statistics.effect import Method, own_level, simultaneous, summarize
from pgdyno.estimate import Better, Estimate
from pgdyno.study.capacity_search import LatencyLimit, crossing, parse_limit

FACTOR = "rate"

UNIT = "tx/s"


@dataclass(frozen=True)
class ArmCapacity:
    """Capacity of one combination of the other factors. ``by_pass``: pass → capacity, tx/s.

    ``above`` is the number of passes that met the limit at the highest rate, ``below`` of those that missed
    it at the lowest. With any of these, or without a complete pass, ``capacity`` is None. ``latency_ms``:
    rate → the limited quantile, infinite if it was so in any pass; None for a rate without blocks.
    """

    name: str
    by_pass: Mapping[int, float]
    above: int
    below: int
    rates: Sequence[float]
    latency_ms: Mapping[float, Estimate | None]
    capacity: Estimate | None


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
    return ArmCapacity(
        name=curve_name(context),
        by_pass=known,
        above=above,
        below=below,
        rates=rates,
        latency_ms={
            rate: _level([cell.logs[number] for number in passes], confidence)
            for rate, cell in zip(rates, cells, strict=True)
        },
        capacity=None if above or below else own_level(known, UNIT, Better.MORE, confidence),
    )


def _level(logs: Sequence[float], confidence: float) -> Estimate | None:
    """Return the latency in ms over the passes."""
    if any(math.isinf(value) for value in logs):
        return Estimate(math.inf, "ms", len(logs), Better.LESS)
    return own_level({i: math.exp(v) for i, v in enumerate(logs)}, "ms", Better.LESS, confidence)


def _changes(
    pairs: Sequence[tuple[str, str]],
    arms: Mapping[str, ArmCapacity],
    confidence: float,
    margin: float,
    method: Method,
) -> list[CapacityChange]:
    logs = []
    for name, baseline in pairs:
        one, other = arms[name].by_pass, arms[baseline].by_pass
        logs.append([math.log(one[number] / other[number]) for number in sorted(set(one) & set(other))])
    there = [(pair, d) for pair, d in zip(pairs, logs, strict=True) if d]
    summaries = simultaneous([partial(summarize, d, method=method) for _, d in there], confidence)
    return [
        CapacityChange(*pair, summary.percent(Better.MORE), decide(summary, Better.MORE, margin, confidence))
        for (pair, _), summary in zip(there, summaries, strict=True)
    ]
