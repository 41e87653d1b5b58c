"""The picture over several hosts: each one's estimate and interval, the pooled one under them."""

from __future__ import annotations

import math

from markupsafe import Markup

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.findings.host_findings import HostsFindings
from pgdyno.analysis.findings.pooled_hosts import OverHosts
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.estimate import Better, Estimate, given_percent, signed
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.svg import Scale, circle, drawing, element, line, nice_ticks, text

PANELS_MAX = 24
"""Cases and arms that are drawn; the table has all."""

HOST_COLOUR, POOLED_COLOUR = arm_class(0), arm_class(1)

NAME_LENGTH_MAX = 18

REACH_MAX = 4.0
"""An interval that reaches further out than so many times the estimates is cut off, with an arrow: two hosts
can have one of hundreds of per cent, in which nothing else would be seen."""


def forest(findings: HostsFindings) -> list[Panel]:
    """One picture for each case and arm, of the primary metric."""
    margin = findings.first.first.study.plan.margin
    chosen = [*findings.averages, *findings.primary][:PANELS_MAX]
    low, high = _range(chosen, margin)
    return [
        Panel(
            f"{over.arm} vs. {over.baseline}: change of {over.name}"
            + (f", {over.case}" if over.case else ""),
            _picture(over, margin, low, high),
        )
        for over in chosen
    ]


def _rows(over: OverHosts) -> list[tuple[str, Estimate, str]]:
    """Name, estimate, colour. An own interval of few blocks is left out, as in the words and tables."""
    rows = []
    for of in over.pooled.hosts:
        own = of.spread.percent(over.better)
        if own.n < BLOCKS_MIN:
            own = Estimate(own.value, own.unit, own.n, own.better)
        rows.append((of.host, own, HOST_COLOUR))
    return [*rows, ("pooled", over.percent, POOLED_COLOUR)]


def _range(chosen: list[OverHosts], margin: float) -> tuple[float, float]:
    """Of all estimates and hosts' own intervals; the pooled intervals only as far as they are drawn."""
    own = [-125 * margin, 125 * margin, 0.0]
    pooled: list[float] = []
    for over in chosen:
        for name, estimate, _ in _rows(over):
            ends = [end for end in (estimate.low, estimate.high) if end is not None]
            own.append(estimate.value)
            (pooled if name == "pooled" else own).extend(ends)
    reach = REACH_MAX * max(map(abs, own))
    values = [*own, *(min(max(end, -reach), reach) for end in pooled)]
    room = 0.04 * (max(values) - min(values))
    return min(values) - room, max(values) + room


def _picture(over: OverHosts, margin: float, low: float, high: float) -> Markup:
    width, left, right, top, step = 560.0, 130.0, 14.0, 52.0, 26.0
    rows = _rows(over)
    bottom = top + step * len(rows)
    x = Scale(low, high, left, width - right)
    less = over.better is Better.LESS
    limit = math.log1p(margin)
    inner, outer = x(percent_of(-limit)), x(percent_of(limit))
    parts = [
        element("rect", x=inner, y=top - 6, width=outer - inner, height=bottom - top + 6, class_="margin"),
        text((inner + outer) / 2, top - 14, f"margin ±{given_percent(margin)}", class_="quiet middle"),
        text(left, 18, f"← {'faster' if less else 'slower'}", class_="quiet"),
        text(width - right, 18, f"{'slower' if less else 'faster'} →", class_="quiet end"),
    ]
    for tick in nice_ticks(low, high, 7):
        parts += [
            line(x(tick), top - 6, x(tick), bottom, class_="zero" if abs(tick) < 1e-9 else "grid"),
            text(x(tick), bottom + 17, signed(tick, 0 if tick == int(tick) else 1, "%"), class_="middle"),
        ]
    for i, (name, estimate, colour) in enumerate(rows):
        parts += _row(name, estimate, colour, top + step * (i + 0.5), left, x)
    label = f"{over.arm} on {len(rows) - 1} hosts, pooled {over.percent.signed_text}"
    return drawing(width, bottom + 26, label, parts, "effect")


def _row(name: str, estimate: Estimate, colour: str, y: float, left: float, x: Scale) -> list[Markup]:
    parts = []
    if estimate.low is not None and estimate.high is not None:
        ends = [min(max(end, x.low), x.high) for end in (estimate.low, estimate.high)]
        parts.append(line(x(ends[0]), y, x(ends[1]), y, class_=f"interval {colour}"))
        for drawn, end, arrow in zip(ends, (estimate.low, estimate.high), "◂▸", strict=True):
            if drawn == end:
                parts.append(line(x(end), y - 7, x(end), y + 7, class_=f"cap {colour}"))
            else:
                parts.append(text(x(drawn), y + 5, arrow, class_="middle quiet"))
    said = f"{name}: {estimate.signed_text}, interval {estimate.signed_interval_text}"
    parts.append(circle(x(estimate.value), y, 5, said, class_=f"dot {colour}"))
    short = name if len(name) <= NAME_LENGTH_MAX else f"{name[: NAME_LENGTH_MAX - 1]}…"
    parts.append(text(left - 10, y + 4, short, class_="end strong" if name == "pooled" else "end"))
    return parts
