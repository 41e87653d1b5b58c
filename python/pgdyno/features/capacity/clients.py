"""The search of a capacity by clients: findings and section.

The steps of all blocks have the doubled numbers of clients in common. Throughput and latency at these numbers
are the curve of an arm. A number that some block did not try is omitted: only blocks in which smaller
numbers met the limit try larger ones, so the others would bias its level. The capacity of an arm is its
geometric mean over the blocks. If a search ended without a capacity, only a bound of that block is known, and
no mean is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from markupsafe import Markup

from pgdyno.analysis.case_findings import CaseResult, Findings
from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.statistics.intervals import Method, method_of, own_level
from pgdyno.report.document import Section, Table
from pgdyno.report.plot import Axis, Dots, Panel, Point, Scale, arm_class, line, logarithmic, plot
from pgdyno.results.records import CapacitySearch, TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.study.values import LatencyLimit, bracket, medians, parse_limit
from pgdyno.units import (
    NO_BREAK,
    Better,
    Estimate,
    ci_text,
    counted,
    given_percent,
    group_digits,
    significant,
)


@dataclass(frozen=True)
class ClientsPoint:
    """A point of the curve of an arm: throughput and the limited quantile at a number of clients."""

    clients: int
    throughput: Estimate
    latency: Annotated[
        Estimate | None, about("Null if the quantile falls on an unanswered transaction in some block.")
    ]


@dataclass(frozen=True)
class ArmClients:
    """Capacity of an arm in clients, with its curve."""

    arm: str
    blocks: int
    clients_max: int
    kept_at_max: Annotated[
        int, about("Number of blocks in which the maximum number of clients met the limit.")
    ]
    missed_at_fewest: Annotated[int, about("Number of blocks in which the fewest clients missed the limit.")]
    undecided: Annotated[int, about("Number of blocks whose search ended without either, or without a step.")]
    capacity: Estimate | None
    points: Sequence[ClientsPoint]


@dataclass(frozen=True)
class ClientCapacity:
    """Capacities of the arms of a case. ``quantile`` is limited to ``latency_ms``."""

    quantile: float
    latency_ms: float
    arms: Sequence[ArmClients]

    @property
    def limit(self) -> LatencyLimit:
        """The limit."""
        return LatencyLimit(self.quantile, self.latency_ms / 1e3)


def find_client_capacity(findings: Findings) -> ClientCapacity | None:
    """Return the capacities; None if the study does not search for clients."""
    plan = findings.study.plan
    if plan.capacity is None or not plan.searches_clients:
        return None
    limit, method = parse_limit(plan.capacity), method_of(plan, findings.trials)
    arms = []
    for of in findings.arms:
        searches = {
            trial.block: trial.driver.capacity
            for trial in findings.trials
            if trial.arm == of.arm.arm
            and trial.status is TrialStatus.OK
            and trial.driver.capacity is not None
        }
        if searches:
            arms.append(arm_clients(of.arm.name, searches, limit, of.arm.clients, plan.confidence, method))
    return ClientCapacity(limit.quantile, 1e3 * limit.latency_s, arms)


def arm_clients(
    name: str,
    searches: dict[int, CapacitySearch],
    limit: LatencyLimit,
    clients_max: int,
    confidence: float,
    method: Method,
) -> ArmClients:
    """Return the capacity and the curve of an arm from the searches of its blocks."""
    ends = {block: bracket(search.steps, limit) for block, search in searches.items()}
    found = {block: search.capacity_per_s for block, search in searches.items()}
    known = {block: number for block, number in found.items() if number is not None}
    at_max = sum(high is None and low is not None and low.load >= clients_max for low, high in ends.values())
    at_fewest = sum(low is None and high is not None for low, high in ends.values())
    steps = {block: {of.clients: of for of in medians(search.steps)} for block, search in searches.items()}
    shared = set.intersection(*(set(of) for of in steps.values()))
    points = []
    for clients in sorted(n for n in shared if n is not None):
        rates = {block: of[clients].rate_per_s for block, of in steps.items()}
        latencies = {block: of[clients].latency_ms for block, of in steps.items()}
        throughput = own_level(rates, "tx/s", Better.MORE, confidence, method)
        is_finite = all(0 < ms < math.inf for ms in latencies.values())
        latency = own_level(latencies, "ms", Better.LESS, confidence, method) if is_finite else None
        assert throughput is not None
        points.append(ClientsPoint(clients, throughput, latency))
    is_whole = len(known) == len(searches)
    return ArmClients(
        arm=name,
        blocks=len(searches),
        clients_max=clients_max,
        kept_at_max=at_max,
        missed_at_fewest=at_fewest,
        undecided=len(searches) - len(known) - at_max - at_fewest,
        capacity=own_level(known, "clients", Better.MORE, confidence, method) if is_whole else None,
        points=points,
    )


RESULT = CaseResult(
    "client_capacity",
    ClientCapacity | None,
    "If each block searches for the capacity by clients.",
    "noise",
    find_client_capacity,
)


def case_sections(findings: Findings) -> Iterator[Section]:
    """Yield the section of a case whose blocks search for clients."""
    found: ClientCapacity | None = findings.feature_findings[RESULT.name]
    if found is not None and found.arms:
        yield clients_section(found, findings.study.plan)


def clients_section(found: ClientCapacity, plan: Study) -> Section:
    """Return the section: a sentence for each arm, the curve as table and charts."""
    return Section(
        "client-capacity",
        f"Capacity: clients with {found.limit}",
        [clients_sentence(of, found) for of in found.arms],
        [table for table in (curve_table(found, plan),) if table.rows],
        plots=lambda: curve_charts(found),
        after="levels",
    )


def clients_sentence(of: ArmClients, found: ClientCapacity) -> str:
    """Return a sentence with the capacity of an arm, or with the bound and the remedy."""
    blocks, limit = counted(of.blocks, "block"), found.limit
    if of.capacity is not None:
        estimate = of.capacity
        number, interval = significant(estimate.value, 3), "no CI yet"
        if has_interval(estimate):
            number = group_digits(estimate.value, estimate.decimals)
            interval = f"{ci_text(estimate.confidence)} {estimate.interval_text}"
        return f"{of.arm} meets {limit} with up to {number} clients ({interval}, {blocks}; interpolated)."
    parts = []
    if of.kept_at_max:
        parts.append(
            f"{of.kept_at_max} of {blocks} meet {limit} with {of.clients_max} clients, the maximum of the "
            "search: use more --clients"
        )
    if of.missed_at_fewest:
        fewest = min((point.clients for point in of.points), default=1)
        parts.append(
            f"{of.missed_at_fewest} of {blocks} exceed {limit} with {counted(fewest, 'client')}, the fewest "
            "of the search: use a looser limit"
        )
    if of.undecided:
        parts.append(f"the search of {of.undecided} of {blocks} has too few transactions or steps")
    return f"{of.arm}: capacity unknown: {'; '.join(parts)}."


def curve_table(found: ClientCapacity, plan: Study) -> Table:
    """Return throughput and latency by arm and number of clients."""
    numeric = ("clients", "tx/s", f"{found.limit.percentile}, ms")
    return Table(
        title="Throughput and latency by clients",
        columns=("arm", *numeric),
        rows=[
            [of.arm, group_digits(point.clients, 0), _level(point.throughput), _level(point.latency)]
            for of in found.arms
            for point in of.points
        ],
        note=(
            "Steps of the search that every block of the arm has; geometric means over the blocks with "
            f"{given_percent(plan.confidence)} CI. ∞: in at least one block, the percentile falls on an "
            "unanswered transaction."
        ),
        numeric=frozenset(numeric),
        dispensable=("tx/s",),
    )


def _level(level: Estimate | None) -> str:
    if level is None:
        return "∞"
    if not has_interval(level):
        return significant(level.value, 3)
    interval = level.interval_text.replace(" ", NO_BREAK)
    return f"{group_digits(level.value, level.decimals)}{NO_BREAK}{interval}"


def has_interval(level: Estimate) -> bool:
    """Return whether the interval is shown: that of fewer blocks than a verdict needs is too wide."""
    return level.low is not None and level.n >= VERDICT_BLOCKS_MIN


def curve_charts(found: ClientCapacity) -> list[Panel]:
    """Return charts of throughput and of the limited latency by clients, or none with too few points."""
    numbers = sorted({point.clients for of in found.arms for point in of.points})
    if len(numbers) < 2:
        return []
    x = Axis(
        numbers[0] / 1.1, numbers[-1] * 1.1, [(n, group_digits(n, 0)) for n in numbers], "clients", log=True
    )
    rates = [[(point.clients, point.throughput) for point in of.points] for of in found.arms]
    latencies = [
        [(point.clients, point.latency) for point in of.points if point.latency] for of in found.arms
    ]
    panels = [_panel("Throughput by clients", found, x, rates, "tx/s", None)]
    if any(latencies):
        title = f"{found.limit.percentile} by clients, with the limit"
        panels.append(_panel(title, found, x, latencies, "ms", found.latency_ms))
    return panels


def _panel(
    title: str,
    found: ClientCapacity,
    x: Axis,
    curves: Sequence[Sequence[tuple[int, Estimate]]],
    unit: str,
    limit: float | None,
) -> Panel:
    values = [level.value for curve in curves for _, level in curve]
    y = logarithmic([*values, *([limit] if limit else [])], unit, factor=1.3)

    def at_limit(across: Scale, up: Scale) -> list[Markup]:
        return [line(across.start, up(limit), across.end, up(limit), class_="zero")] if limit else []

    marks = [
        Dots(
            [
                Point(
                    n,
                    level.value,
                    f"{of.arm}, {counted(n, 'client')}: {_level(level)} {unit}",
                    *((level.low, level.high) if has_interval(level) else ()),
                )
                for n, level in curve
            ],
            arm_class(number),
            of.arm,
        )
        for number, (of, curve) in enumerate(zip(found.arms, curves, strict=True))
    ]
    return Panel(title, plot(title, x, y, [at_limit, *marks]))
