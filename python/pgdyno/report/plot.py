"""Charts as SVG.

- SVG for the charts: scales, ticks and elements. All text and attributes are escaped here.
- Charts of a report: effect by block, latency by percentile. Charts over time are in timelines.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.analysis.telemetry.percentiles import curve_ms
from pgdyno.report.result_tables import kind_text
from pgdyno.units import Better, Estimate, given_percent, group_digits, signed, significant

# ----------------------------------------------------------------------
# SVG for the charts: scales, ticks and elements. All text and attributes are escaped here.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Mapping of a value in ``low .. high`` to a position in ``start .. end``, on a log axis if ``log``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the position, rounded to a tenth of a pixel."""
        low, high = self._flat(self.low), self._flat(self.high)
        share = (self._flat(value) - low) / (high - low) if high != low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def inside(self, value: float) -> float:
        """Return the position, clipped to the scale."""
        return self(min(max(value, self.low), self.high))

    def _flat(self, value: float) -> float:
        return math.log10(value) if self.log else value


def nice_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Return about ``wanted`` round values within low .. high: multiples of 1, 2 or 5 times 10 to a power."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_labels(ticks: Sequence[float], signed_unit: str | None = None) -> list[str]:
    """Return the labels of an axis, all with the decimals that its step needs.

    With ``signed_unit`` they have a sign and this unit.
    """
    digits = next(
        (n for n in range(12) if all(math.isclose(round(t, n), t, abs_tol=1e-12) for t in ticks)), 12
    )
    if signed_unit is not None:
        return [signed(tick, digits, signed_unit) for tick in ticks]
    return [group_digits(tick, digits) for tick in ticks]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten within low .. high; if there are fewer than three, also multiples of them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        within = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(within) >= 3:
            return within
    return within


def element(name: str, content: str = "", /, **attributes: object) -> Markup:
    """Return an element. ``class_`` means class, underscores become hyphens, and None omits an attribute."""
    written = Markup("").join(
        Markup(' {}="{}"').format(Markup(key.rstrip("_").replace("_", "-")), value)
        for key, value in attributes.items()
        if value is not None
    )
    # Names are constants; content is escaped unless it is markup.
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, escape(content))


def text(x: float, y: float, content: str, **attributes: object) -> Markup:
    """Return a text with its baseline at y."""
    return element("text", content, **{"x": x, "y": y, **attributes})


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    """Return a straight line."""
    return element("line", "", **{"x1": x1, "y1": y1, "x2": x2, "y2": y2, **attributes})


def polyline(points: Sequence[tuple[float, float]], **attributes: object) -> Markup:
    """Return a line through points."""
    return element("polyline", "", points=" ".join(f"{x:g},{y:g}" for x, y in points), **attributes)


def circle(x: float, y: float, r: float, title: str = "", **attributes: object) -> Markup:
    """Return a dot with a tooltip."""
    return element("circle", element("title", title) if title else "", cx=x, cy=y, r=r, **attributes)


def drawing(width: float, height: float, label: str, parts: Iterable[Markup], class_: str) -> Markup:
    """Return a complete chart; ``label`` is its description for screen readers."""
    return element(
        "svg",
        Markup("").join(parts),
        viewBox=f"0 0 {width:g} {height:g}",
        class_=class_,
        role="img",
        aria_label=label,
    )


# ----------------------------------------------------------------------
# Charts of a report: effect by block, latency by percentile. Charts over time are in timelines.py.
#
# Colors are CSS classes (``arm0``, ``arm1``, …), defined by the style sheet for light and dark mode.
# ----------------------------------------------------------------------

COLORS = 6
"""Number of different colors; further arms reuse them."""

DOTS_MAX = 40
"""Maximum number of points of a line that are also drawn as dots; more would hide the line."""


NAMES_MAX = 12
"""Maximum number of blocks with a label each; beyond it, every fifth block has one."""


@dataclass(frozen=True)
class Panel:
    """A chart with its heading."""

    title: str
    picture: Markup


def arm_class(arm: int) -> str:
    """Return the CSS class with the color of an arm."""
    return f"arm{arm % COLORS}"


def effects(findings: Findings) -> list[Panel]:
    """Return one chart per comparison on a common axis: interval, margin, and the ratio of each block."""
    drawn = [comparison for comparison in findings.comparisons if comparison.primary]
    if not drawn:
        return []
    low, high = _percent_range(drawn)
    metric = findings.primary.name
    return [
        Panel(f"{c.arm.name} vs. {c.baseline.name}: change of {metric}", _effect(c, low, high)) for c in drawn
    ]


def _percent_range(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    values = [0.0]
    for comparison in comparisons:
        limit = 100 * comparison.margin
        values += [-1.25 * limit, 1.25 * limit]
        if comparison.primary:
            percent = comparison.primary.percent
            values += _interval(percent) or ()
            values += [percent_of(d) for d in comparison.primary.log_ratios.values()]
    padding = 0.04 * (max(values) - min(values))
    return min(values) - padding, max(values) + padding


def _interval(percent: Estimate) -> tuple[float, float] | None:
    """Return the interval; None with a single block."""
    if percent.low is None or percent.high is None:
        return None
    return percent.low, percent.high


def _effect(comparison: Comparison, low: float, high: float) -> Markup:
    effect = comparison.primary
    assert effect is not None
    width, left, right, top = 520.0, 70.0, 14.0, 62.0
    blocks = sorted(effect.log_ratios.items())
    each = len(blocks) <= NAMES_MAX
    step = 16.0 if each else 13.0 if len(blocks) <= DOTS_MAX else max(3.0, 13.0 * DOTS_MAX / len(blocks))
    first = top + 44
    bottom = first + step * len(blocks)
    x = Scale(low, high, left, width - right)
    limit = math.log1p(comparison.margin)
    inner, outer = x(percent_of(-limit)), x(percent_of(limit))
    less = effect.percent.better is Better.LESS
    parts = [
        element("rect", x=inner, y=top - 6, width=outer - inner, height=bottom - top + 6, class_="margin"),
        text(
            (inner + outer) / 2,
            top - 14,
            f"margin ±{given_percent(comparison.margin)}",
            class_="quiet middle",
        ),
        text(left, 18, f"← {'faster' if less else 'slower'}", class_="quiet"),
        text(width - right, 18, f"{'slower' if less else 'faster'} →", class_="quiet end"),
    ]
    for tick in nice_ticks(low, high, 7):
        parts += [
            line(x(tick), top - 6, x(tick), bottom, class_="zero" if abs(tick) < 1e-9 else "grid"),
            text(x(tick), bottom + 17, signed(tick, 0 if tick == int(tick) else 1, "%"), class_="middle"),
        ]
    percent, color = effect.percent, arm_class(comparison.arm.arm)
    y = top + 14
    value = f"{percent.signed_text}, CI {percent.signed_interval_text}"
    if interval := _interval(percent):
        ends = {"x1": x(interval[0]), "y1": y, "x2": x(interval[1]), "y2": y}
        parts.append(element("line", element("title", value), **ends, class_=f"interval {color}"))
        parts += [line(x(end), y - 7, x(end), y + 7, class_=f"cap {color}") for end in interval]
    parts.append(circle(x(percent.value), y, 6, value, class_=f"dot {color}"))
    parts.append(text(left - 10, y + 4, "estimate", class_="end strong"))
    for i, (block, d) in enumerate(blocks):
        y = first + step * i
        of_block = f"block {block + 1}: {signed(percent_of(d), 2, '%')}"
        parts.append(circle(x(percent_of(d)), y, 3.2, of_block, class_=f"dot {color}"))
        if each or i == 0 or i == len(blocks) - 1 or (len(blocks) <= DOTS_MAX and (block + 1) % 5 == 0):
            parts.append(text(left - 10, y + 4, f"block {block + 1}", class_="end quiet"))
    return drawing(width, bottom + 26, f"Effect of {comparison.arm.name}: {value}", parts, "effect")


def latency_charts(findings: Findings) -> list[Panel]:
    """Return one chart per kind of transaction: latency by percentile, both axes logarithmic."""
    panels = []
    for kind in findings.kinds:
        curves = {of.arm.arm: curve_ms(of.latency[kind]) for of in findings.arms if kind in of.latency}
        known = {arm: curve for arm, curve in curves.items() if curve and curve[0][1] > 0}
        if known:
            names = {of.arm.arm: of.arm.name for of in findings.arms}
            panels.append(Panel(kind_text(kind), _curves(known, names)))
    return panels


NAMED_SHARES = {0.5: "p50", 0.1: "p90", 0.01: "p99", 1e-3: "p99.9", 1e-4: "p99.99"}
"""Shares of transactions beyond a percentile, with the names on the axis and in tooltips."""


def _curves(curves: dict[int, list[tuple[float, float]]], names: Mapping[int, str]) -> Markup:
    width, height, left, right, top, bottom = 300.0, 196.0, 42.0, 10.0, 20.0, 176.0
    least = min(share for curve in curves.values() for share, _ in curve)
    values = [value for curve in curves.values() for _, value in curve]
    x = Scale(0.5, least, left, width - right, log=True)
    y = Scale(min(values) * 0.9, max(values) * 1.1, bottom, top, log=True)
    parts = []
    for tick in log_ticks(min(values) * 0.9, max(values) * 1.1):
        label = significant(tick, 1)
        parts += [
            line(left, y(tick), width - right, y(tick), class_="grid"),
            text(left - 5, y(tick) + 3.5, label, class_="end small"),
        ]
    for share, name in NAMED_SHARES.items():
        if share >= least:
            parts += [
                line(x(share), top, x(share), bottom, class_="grid"),
                text(x(share), bottom + 14, name, class_="middle small"),
            ]
    parts.append(text(left - 5, top - 8, "ms", class_="end small"))
    for arm, curve in curves.items():
        parts.append(polyline([(x(share), y(v)) for share, v in curve], class_=f"curve {arm_class(arm)}"))
    for arm, curve in curves.items():
        for share, name in NAMED_SHARES.items():
            # The first point at or beyond the share, as the points of a curve are discrete.
            beyond = next((point for point in curve if point[0] <= share * (1 + 1e-9)), None)
            if beyond is not None:
                value = significant(beyond[1], 3)
                title = f"{names[arm]}, {name}: {value} ms"
                dot = circle(x(beyond[0]), y(beyond[1]), 2.4, title, class_=f"dot {arm_class(arm)}")
                parts.append(dot)
    return drawing(width, height, "Latency by percentile", parts, "curves")
