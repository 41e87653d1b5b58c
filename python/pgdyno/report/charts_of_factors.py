"""Pictures of factors: what one changes at each level of another. Level lines: it does not depend."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.findings.factor_effects import Contrast, Effects
from pgdyno.estimate import Better, signed
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.svg import Scale, circle, drawing, line, nice_ticks, polyline, text

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
