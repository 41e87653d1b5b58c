"""Charts of a published table: one of the published values, and one of those measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from pgdyno.analysis.findings.published_tables import MeasuredCell, MeasuredTable
from pgdyno.estimate import significant
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.svg import Scale, circle, drawing, line, log_ticks, polyline, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 312.0, 216.0, 62.0, 12.0, 24.0, 176.0
LEGEND_LINE = 12.0

Value = Callable[[MeasuredCell], float | None]


def source_charts(table: MeasuredTable) -> list[Panel]:
    """Return the charts of the values of a table.

    Each has its own logarithmic scale, because levels depend on the machine.
    """
    kinds: Sequence[tuple[str, Value]] = (
        ("published", lambda cell: cell.value),
        ("here", lambda cell: cell.measured.value if cell.measured else None),
    )
    pictures = [(name, _lines(table, value)) for name, value in kinds]
    return [Panel(f"{table.title}, {name}", picture) for name, picture in pictures if picture is not None]


def _lines(table: MeasuredTable, value: Value) -> Markup | None:
    curves = {
        title: [
            (r, v)
            for r, row in enumerate(table.rows)
            if not row[c].is_change and (v := value(row[c])) is not None and v > 0
        ]
        for c, title in enumerate(table.columns)
    }
    curves = {title: points for title, points in curves.items() if points}
    if not curves:
        return None
    every = [v for points in curves.values() for _, v in points]
    low, high = min(every) / 1.2, max(every) * 1.2
    y = Scale(low, high, BOTTOM, TOP, log=True)
    x = Scale(-0.4, len(table.rows) - 0.6, LEFT, WIDTH - RIGHT)
    parts = [text(x(r), BOTTOM + 15, row[0].text, class_="middle small") for r, row in enumerate(table.rows)]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 29, table.columns[0], class_="middle small"))
    for tick in log_ticks(low, high):
        parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid"))
        label = significant(tick, 1)
        parts.append(text(LEFT - 5, y(tick) + 3.5, label, class_="end small"))
    for number, (title, points) in enumerate(curves.items()):
        color = arm_class(number)
        parts.append(polyline([(x(r), y(v)) for r, v in points], class_=f"curve {color}"))
        for r, v in points:
            said = f"{title}, {table.rows[r][0].text}: {significant(v, 3)}"
            parts.append(circle(x(r), y(v), 3.2, said, class_=f"dot {color}"))
        place = BOTTOM + 44 + LEGEND_LINE * number
        parts.append(line(LEFT, place - 3, LEFT + 14, place - 3, class_=f"curve {color}"))
        parts.append(text(LEFT + 19, place, title, class_="small"))
    return drawing(WIDTH, HEIGHT + LEGEND_LINE * len(curves), table.title, parts, "curves")
