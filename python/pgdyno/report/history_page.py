"""A history as one HTML file: a picture for each series, with its segments and changes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pgdyno.analysis.findings.history_changes import History, Point, Series
from pgdyno.estimate import decimals_of, grouped, signed
from pgdyno.report import history as wording
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.history import HistoryReport
from pgdyno.report.svg import Scale, circle, drawing, line, nice_ticks, text
from pgdyno.report.visible import visible

PANELS_MAX = 200
"""Series that are drawn; the table has all."""

LEVEL_COLOUR, EFFECT_COLOUR = arm_class(0), arm_class(1)


def to_html(report: HistoryReport) -> str:
    """A whole document, which asks nobody for anything. What comes from files is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = files(__package__)
    template = environment.from_string(folder.joinpath("history.html.j2").read_text("utf-8"))
    document = template.render(
        style=folder.joinpath("report.css").read_text("utf-8"),
        histories=[
            {
                "heading": wording.heading(history),
                "sentences": wording.sentences(history),
                "changed": any(series.changes for series in history.series),
                "table": wording.overview(history),
                "panels": panels(history),
            }
            for history in report.histories
        ],
        skipped=report.skipped,
    )
    return visible(document)


def panels(history: History) -> list[Panel]:
    """Those with a change first."""
    ordered = sorted(history.series, key=lambda series: not series.changes)
    return [
        Panel(f"{wording.subject(series)}: {series.key.name}", _picture(series))
        for series in ordered[:PANELS_MAX]
    ]


def _picture(series: Series) -> Markup:
    width, height, left, right, top, bottom = 640.0, 226.0, 64.0, 14.0, 26.0, 180.0
    points, relative = series.points, series.key.is_change
    low, high = _range(points)
    begin, end = points[0].created_unix_s, points[-1].created_unix_s
    x, y = Scale(begin, end, left + 8, width - right - 8), Scale(low, high, bottom, top)
    parts: list[Markup] = []
    for tick in nice_ticks(low, high, 5):
        label = signed(tick, decimals_of(tick, 2), "%") if relative else grouped(tick, decimals_of(tick, 4))
        zero = "zero" if relative and abs(tick) < 1e-9 else "grid"
        parts.append(line(left, y(tick), width - right, y(tick), class_=zero))
        parts.append(text(left - 6, y(tick) + 4, label, class_="end"))
    parts.append(text(left, bottom + 20, wording.day(begin), class_="quiet"))
    parts.append(text(width - right, bottom + 20, wording.day(end), class_="quiet end"))
    unit = "%" if relative else points[-1].estimate.unit
    parts.append(text(left, 14, f"{unit}, {series.better} is better", class_="quiet"))
    colour = EFFECT_COLOUR if relative else LEVEL_COLOUR
    for change in series.changes:
        at, said = x(points[change.at].created_unix_s), f"{change.verdict} {change.percent.signed_text}"
        parts.append(line(at, top, at, bottom, class_="zero"))
        parts.append(text(at, bottom + 36, said, class_="middle strong"))
    for point in points:
        parts += _point(point, x, y, colour)
    parts += _means(series, x, y, colour)
    label = (
        f"{wording.subject(series)}: {series.key.name}, {len(points)} files, {len(series.changes)} changes"
    )
    return drawing(width, height, label, parts, "effect")


def _range(points: Sequence[Point]) -> tuple[float, float]:
    """Of values, and of intervals as far as they do not drown the values."""
    values = [point.estimate.value for point in points]
    spread = max(values) - min(values)
    ends = [
        end
        for point in points
        for end in (point.estimate.low, point.estimate.high)
        if end is not None and min(values) - spread <= end <= max(values) + spread
    ]
    values += ends
    room = 0.06 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    return min(values) - room, max(values) + room


def _point(point: Point, x: Scale, y: Scale, colour: str) -> list[Markup]:
    of, at = point.estimate, x(point.created_unix_s)
    told = of.signed_text if point.is_change else of.value_text
    said = f"{point.file}, {wording.day(point.created_unix_s)}: {told}, interval {of.interval_text}"
    parts = []
    if of.low is not None and of.high is not None:
        low, high = (min(max(end, y.low), y.high) for end in (of.low, of.high))
        parts.append(line(at, y(low), at, y(high), class_=f"tick faint {colour}"))
    return [*parts, circle(at, y(of.value), 3.4, said, class_=f"dot {colour}")]


def _means(series: Series, x: Scale, y: Scale, colour: str) -> list[Markup]:
    """Of each segment: as the mean of the values drawn, so that the line lies among its dots."""
    edges = [0, *(change.at for change in series.changes), len(series.points)]
    parts = []
    for begin, end in pairwise(edges):
        of = series.points[begin:end]
        mean = sum(point.estimate.value for point in of) / len(of)
        first, last = x(of[0].created_unix_s), x(of[-1].created_unix_s)
        parts.append(line(first, y(mean), last, y(mean), class_=f"rate {colour}"))
    return parts
