"""Pictures of curves: throughput over clients with the law drawn through it, and ratios to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.findings.scalability import Curve, Difference, Scalability
from pgdyno.estimate import Estimate, decimals_of, grouped, signed
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.svg import Scale, circle, drawing, line, log_ticks, nice_ticks, polyline, text

CURVES_MAX = 6
"""In one picture; more are left to the tables."""

STEPS = 60
"""Of a curve's line."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300.0, 216.0, 50.0, 12.0, 24.0, 176.0
LEGEND_LINE = 12.0


def curves(found: Scalability) -> list[Panel]:
    """Throughput, and where there is a baseline the ratios to it."""
    shown = found.curves[:CURVES_MAX]
    panels = [Panel(f"{found.metric.name}, with the law", _throughput(shown, found.metric.unit))]
    compared = {curve.name: number for number, curve in enumerate(shown)}
    differences = [of for of in found.differences if of.name in compared]
    if differences:
        panels.append(Panel("change from the baseline, as measured", _ratios(differences, compared)))
    return panels


def _clients_axis(clients: Sequence[int]) -> tuple[Scale, list[Markup]]:
    low, high = min(clients), max(clients)
    x = Scale(low / 1.15, high * 1.15, LEFT, WIDTH - RIGHT, log=True)
    parts = [text(x(n), BOTTOM + 15, str(n), class_="middle small") for n in clients]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 29, "clients", class_="middle small"))
    return x, parts


def _numbers(every: Sequence[Sequence[int]]) -> list[int]:
    return sorted({n for clients in every for n in clients})


def legend(names: Mapping[str, int]) -> list[Markup]:
    """Below the picture, a line each."""
    parts = []
    for i, (name, number) in enumerate(names.items()):
        y = BOTTOM + 44 + LEGEND_LINE * i
        parts.append(line(LEFT, y - 3, LEFT + 14, y - 3, class_=f"curve {arm_class(number)}"))
        parts.append(text(LEFT + 19, y, name, class_="small"))
    return parts


def height(names: int) -> float:
    """Of a picture with so many names below it."""
    return HEIGHT + LEGEND_LINE * names


def _throughput(shown: Sequence[Curve], unit: str) -> Markup:
    x, parts = _clients_axis(_numbers([curve.clients for curve in shown]))
    values = [end for curve in shown for level in curve.measured.values() for end in _ends(level)]
    y = Scale(min(values) / 1.1, max(values) * 1.1, BOTTOM, TOP, log=True)
    for tick in log_ticks(min(values) / 1.1, max(values) * 1.1):
        label = grouped(tick, decimals_of(tick, 1))
        parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid"))
        parts.append(text(LEFT - 5, y(tick) + 3.5, label, class_="end small"))
    parts.append(text(LEFT - 5, TOP - 10, unit, class_="end small"))
    for number, curve in enumerate(shown):
        colour = arm_class(number)
        at = np.geomspace(curve.clients[0], curve.clients_max, STEPS)
        way = [(x(n), y(float(rate))) for n, rate in zip(at, curve.law.at(at), strict=True)]
        parts.append(polyline(way, class_=f"curve {colour}"))
        for clients, level in curve.measured.items():
            low, high = _ends(level)
            title = f"{curve.name}, {clients} clients: {level.value_text} ({level.interval_text})"
            parts.append(line(x(clients), y(low), x(clients), y(high), class_=f"cap {colour}"))
            parts.append(circle(x(clients), y(level.value), 3.2, title, class_=f"dot {colour}"))
    names = {curve.name: number for number, curve in enumerate(shown)}
    return drawing(WIDTH, height(len(names)), "Throughput over clients", [*parts, *legend(names)], "curves")


def _ratios(differences: Sequence[Difference], numbers: Mapping[str, int]) -> Markup:
    x, parts = _clients_axis(_numbers([list(of.ratios) for of in differences]))
    values = [0.0, *(end for of in differences for ratio in of.ratios.values() for end in _ends(ratio))]
    room = 0.06 * (max(values) - min(values)) or 1.0
    low, high = min(values) - room, max(values) + room
    y = Scale(low, high, BOTTOM, TOP)
    for tick in nice_ticks(low, high, 5):
        label = signed(tick, 0 if tick == int(tick) else 1, "%")
        parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid" if tick else "zero"))
        parts.append(text(LEFT - 5, y(tick) + 3.5, label, class_="end small"))
    for i, of in enumerate(differences):
        colour = arm_class(numbers[of.name])
        aside = 4.0 * (i - (len(differences) - 1) / 2)
        way = [(x(clients) + aside, y(ratio.value)) for clients, ratio in of.ratios.items()]
        parts.append(polyline(way, class_=f"curve {colour}"))
        for (at, place), (clients, ratio) in zip(way, of.ratios.items(), strict=True):
            ends = _ends(ratio)
            title = f"{of.name}, {clients} clients: {ratio.signed_text} ({ratio.signed_interval_text})"
            parts.append(line(at, y(ends[0]), at, y(ends[1]), class_=f"cap {colour}"))
            parts.append(circle(at, place, 3.2, title, class_=f"dot {colour}"))
    names = {of.name: numbers[of.name] for of in differences}
    return drawing(WIDTH, height(len(names)), "Change over clients", [*parts, *legend(names)], "curves")


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Of its interval, where as many passes as in words and tables allow one; else the value twice."""
    if estimate.low is None or estimate.high is None or estimate.n < BLOCKS_MIN:
        return estimate.value, estimate.value
    return estimate.low, estimate.high
