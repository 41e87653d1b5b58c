"""Waterfall chart of the time per transaction: from the baseline to an arm, by part."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pgdyno.analysis.causes.time_breakdown import TimePart, Waterfall
from pgdyno.estimate import signed, significant
from pgdyno.report.charts import Panel
from pgdyno.report.svg import Scale, drawing, element, line, nice_ticks, text, tick_labels
from pgdyno.report.why_section import WhyReport, in_order, part_name

WIDTH, LEFT, RIGHT, TOP = 470.0, 14.0, 14.0, 34.0
STEP, BAR = 34.0, 11.0
"""Height of a part and of its bar. The label is above the bar, so that it fits a narrow page."""

TEXT_MAX = 44
"""Maximum length of a statement; a longer one does not fit a narrow page."""

SHARE_MIN = 0.002
"""Minimum change with its own bar, as a share of the whole, unless the change is significant."""


def waterfalls(reasons: Sequence[WhyReport]) -> list[Panel]:
    """Return the charts of each arm: by resource and by statement."""
    found = []
    for one in reasons:
        a, b = one.why.baseline.name, one.why.arm.name
        for by, waterfall in (("resource", one.why.by_resource), ("statement", one.why.by_statement)):
            if waterfall is not None:
                title = f"Time per transaction, {a} to {b}, by {by}, µs"
                found.append(Panel(title, _drawn(waterfall, a, b)))
    return found


def _drawn(waterfall: Waterfall, a: str, b: str) -> Markup:
    whole = waterfall.total
    shown, left = _shown(waterfall)
    ends = _ends(whole.a_us, [*_added_us(shown), left])
    low, high = min(ends), max(ends)
    padding = 0.06 * (high - low) or 1.0
    x = Scale(low - padding, high + padding, LEFT, WIDTH - RIGHT)
    bottom = TOP + STEP * (len(shown) + 2 + bool(left)) + 6
    parts: list[Markup] = []
    ticks = nice_ticks(low - padding, high + padding, 6)
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        parts += [
            line(x(tick), TOP - 8, x(tick), bottom, class_="grid"),
            text(x(tick), bottom + 15, label, class_="middle small"),
        ]
    y = TOP
    parts += _level(a, whole.a_us, y, x)
    at_us = whole.a_us
    for part in shown:
        y += STEP
        parts += _step(part, at_us, y, x)
        at_us += part.b_us - part.a_us
    if left:
        y += STEP
        parts += _bar("other parts, none significant", left, at_us, y, x, "")
    parts += _level(b, whole.b_us, y + STEP, x)
    return drawing(WIDTH, bottom + 22, f"Time per transaction from {a} to {b}, by part", parts, "steps")


def _added_us(shown: Sequence[TimePart]) -> list[float]:
    return [part.b_us - part.a_us for part in shown]


def _shown(waterfall: Waterfall) -> tuple[list[TimePart], float]:
    """Return the parts with a bar, and the sum of the changes of all others."""
    least = SHARE_MIN * max(waterfall.total.a_us, waterfall.total.b_us)
    shown = [part for part in in_order(waterfall) if part.significant or abs(part.b_us - part.a_us) >= least]
    left = waterfall.total.b_us - waterfall.total.a_us - sum(_added_us(shown))
    return shown, left if len(shown) < len(waterfall.parts) else 0.0


def _ends(first_us: float, steps_us: Sequence[float]) -> list[float]:
    ends = [first_us]
    for step_us in steps_us:
        ends.append(ends[-1] + step_us)
    return ends


def _level(name: str, us: float, y: float, x: Scale) -> list[Markup]:
    """Return the label and mark of the first or last level."""
    return [
        text(LEFT, y, f"{name}: {significant(us, 3)} µs", class_="strong"),
        line(x(us), y + 5, x(us), y + 5 + BAR, class_="end"),
    ]


def _step(part: TimePart, at_us: float, y: float, x: Scale) -> list[Markup]:
    change = part.difference
    kind = "" if not part.significant else "less" if change.value < 0 else "more"
    value = signed(change.value, min(2, change.decimals), "µs")
    name = part_name(part.key, TEXT_MAX)
    drawn = _bar(f"{name}  {value}", change.value, at_us, y, x, kind, f", CI {change.signed_interval_text}")
    if change.low is not None and change.high is not None and part.significant:
        # The interval of this part, relative to the start of its bar.
        low, high = (x.inside(at_us + end) for end in (change.low, change.high))
        drawn.append(line(low, y + 5 + BAR / 2, high, y + 5 + BAR / 2, class_="whisker"))
    return drawn


def _bar(
    words: str, us: float, at_us: float, y: float, x: Scale, kind: str, interval: str = ""
) -> list[Markup]:
    left, right = sorted((x(at_us), x(at_us + us)))
    title = element("title", words + interval)
    place = {"x": left, "y": y + 5, "width": max(1.0, right - left), "height": BAR}
    return [
        text(LEFT, y, words, class_="part"),
        element("rect", title, **place, class_=f"step {kind}".strip()),
    ]
