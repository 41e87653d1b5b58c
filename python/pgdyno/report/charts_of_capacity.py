"""The limited latency over the rate, both logarithmic, with the limit drawn across."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from pgdyno.analysis.findings.capacity import UNIT, Capacity, Kept
from pgdyno.estimate import decimals_of, grouped
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.charts_of_scalability import BOTTOM, LEFT, RIGHT, TOP, WIDTH, height, legend
from pgdyno.report.svg import Scale, circle, drawing, line, log_ticks, polyline, text

ARMS_MAX = 6
"""In one picture; more are left to the tables."""


def latencies(found: Capacity) -> list[Panel]:
    """One picture of all arms; none where no latency is finite."""
    arms = found.arms[:ARMS_MAX]
    known = [latency for kept in arms for _, latency in _points(kept)]
    rates = sorted({rate for kept in arms for rate in kept.rates})
    if not known or len(rates) < 2:
        return []
    limit_ms = found.limit.latency_s * 1e3
    low, high = min([*known, limit_ms]) / 1.3, max([*known, limit_ms]) * 1.3
    title = f"p{100 * found.limit.quantile:.6g} over the rate, with its limit"
    return [Panel(title, _picture(arms, rates, (low, high), limit_ms))]


def _points(kept: Kept) -> list[tuple[float, float]]:
    return [
        (rate, level.value)
        for rate, level in kept.latency_ms.items()
        if level is not None and math.isfinite(level.value)
    ]


def _picture(
    arms: Sequence[Kept], rates: Sequence[float], span_ms: tuple[float, float], limit_ms: float
) -> Markup:
    x = Scale(rates[0] / 1.05, rates[-1] * 1.05, LEFT, WIDTH - RIGHT, log=True)
    y = Scale(*span_ms, BOTTOM, TOP, log=True)
    parts = [text(x(rate), BOTTOM + 15, grouped(rate, 0), class_="middle small") for rate in rates]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 29, UNIT, class_="middle small"))
    for tick in log_ticks(*span_ms):
        label = grouped(tick, decimals_of(tick, 1))
        parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid"))
        parts.append(text(LEFT - 5, y(tick) + 3.5, label, class_="end small"))
    parts.append(line(LEFT, y(limit_ms), WIDTH - RIGHT, y(limit_ms), class_="zero"))
    parts.append(text(LEFT + 4, y(limit_ms) - 4, "limit", class_="small"))
    parts.append(text(LEFT - 5, TOP - 10, "ms", class_="end small"))
    for number, kept in enumerate(arms):
        colour, points = arm_class(number), _points(kept)
        parts.append(polyline([(x(rate), y(ms)) for rate, ms in points], class_=f"curve {colour}"))
        for rate, ms in points:
            title = f"{kept.name}, {grouped(rate, 0)} {UNIT}: {grouped(ms, decimals_of(ms, 3))} ms"
            parts.append(circle(x(rate), y(ms), 3.2, title, class_=f"dot {colour}"))
    names = {kept.name: number for number, kept in enumerate(arms)}
    return drawing(WIDTH, height(len(names)), "Latency over the rate", [*parts, *legend(names)], "curves")
