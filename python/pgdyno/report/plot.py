"""Charts as SVG, made without a chart library: a page needs neither scripts nor a network.

- SVG for the charts: scales, ticks and elements. All text and attributes are escaped here.
- Charts: axes with ticks and labels, marks, and a legend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.units import Better, given_percent, group_digits, signed, significant

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


TICKS_MIN = 3

WANTED_MAX = 20
"""Numbers beyond it are not tried: they have no further ticks only if the range is lost in rounding."""


def nice_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Return about ``wanted`` multiples of 1, 2 or 5 times a power of 10 in low .. high, at least three."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    ticks = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return ticks if len(ticks) >= TICKS_MIN or wanted > WANTED_MAX else nice_ticks(low, high, 2 * wanted)


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
# Charts: axes with ticks and labels, marks, and a legend.
#
# Colors are CSS classes (``arm0``, ``arm1``, …), defined by the style sheet for light and dark mode.
# ----------------------------------------------------------------------

COLORS = 6
"""Number of different colors; further arms reuse them."""

DOTS_MAX = 40
"""Maximum number of points of a line that are also drawn as dots; more would hide the line."""

LETTER_WIDTH = 6.8
"""Width of a digit of a label in pixels, at most: 6.7 for DejaVu Sans of 10.5 pixels in Chromium."""

WIDE = "%+−mwMW"
"""Letters that are at most 1.5 times as wide."""

LEGEND_LINE = 12.0


def label_width(words: str) -> float:
    """Return the width of a label in pixels, at most for usual fonts."""
    return LETTER_WIDTH * (len(words) + sum(map(words.count, WIDE)) / 2)


def arm_class(arm: int) -> str:
    """Return the CSS class with the color of an arm."""
    return f"arm{arm % COLORS}"


@dataclass(frozen=True)
class Panel:
    """A chart with its heading."""

    title: str
    picture: Markup


@dataclass(frozen=True)
class Axis:
    """The range of an axis, with the labels at some of its values."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()
    title: str = ""
    log: bool = False
    grid: bool = False  # also lines at the ticks of a horizontal axis


NO_AXIS = Axis(0.0, 1.0)
"""For marks with places of their own."""


def linear(
    values: Iterable[float], n: int = 5, unit: str | None = None, title: str = "", *, padding: float = 0.06
) -> Axis:
    """Return an axis around values with about ``n`` ticks. With ``unit``, labels have a sign and the unit."""
    low, high = min(known := list(values)), max(known)
    margin = padding * (high - low) or (1.0 if padding else 0.0)
    ticks = nice_ticks(low - margin, high + margin, n)
    return Axis(low - margin, high + margin, list(zip(ticks, tick_labels(ticks, unit), strict=True)), title)


def logarithmic(values: Iterable[float], title: str = "", *, factor: float = 1.1) -> Axis:
    """Return a logarithmic axis around values."""
    low, high = min(known := list(values)) / factor, max(known) * factor
    return Axis(low, high, [(tick, significant(tick, 1)) for tick in log_ticks(low, high)], title, log=True)


@dataclass(frozen=True)
class Frame:
    """Size of a chart, and the place of its axes, in pixels. Labels and legend are below ``bottom``."""

    width: float = 300.0
    left: float = 50.0
    right: float = 12.0
    top: float = 24.0
    bottom: float = 176.0
    below: float = 0.0  # room for marks below the labels of the horizontal axis


MEDIUM = Frame()

Mark = Callable[[Scale, Scale], Iterable[Markup]]
"""Draws on the two scales."""


def plot(
    label: str,
    x: Axis,
    y: Axis,
    marks: Iterable[Mark],
    frame: Frame = MEDIUM,
    *,
    legend: Mapping[str, int] | None = None,
    band: tuple[float, float] | None = None,
    class_: str = "curves",
) -> Markup:
    """Return a chart. ``legend`` maps names to numbers of colors; ``band``: a range of x behind the marks."""
    widest = max((label_width(shown) for _, shown in y.ticks), default=0.0)
    left, right, top, bottom = max(frame.left, widest + 5), frame.width - frame.right, frame.top, frame.bottom
    across, up = Scale(x.low, x.high, left, right, x.log), Scale(y.low, y.high, bottom, top, y.log)
    parts = []
    if band is not None:
        begin, end = map(across, band)
        parts.append(element("rect", x=begin, y=top, width=end - begin, height=bottom - top, class_="margin"))
    for tick, shown in y.ticks:
        parts.append(line(left, up(tick), right, up(tick), class_=_line_class(tick, y)))
        parts.append(text(left - 5, up(tick) + 3.5, shown, class_="end small"))
    free = -math.inf
    for tick, shown in x.ticks:
        at, half = across(tick), label_width(shown) / 2
        if x.grid:
            parts.append(line(at, top, at, bottom, class_=_line_class(tick, x)))
        at = round(max(half, min(at, frame.width - half)), 1)
        if at - half > free:
            parts.append(text(at, bottom + 15, shown, class_="middle small"))
            free = at + half
    if y.title:
        is_short = label_width(y.title) < left
        at, class_of_title = (left - 5, "end small") if is_short else (2, "small")
        parts.append(text(at, top - 8, y.title, class_=class_of_title))
    below = bottom + 15 + frame.below
    if x.title:
        below += 14
        parts.append(text((left + right) / 2, below, x.title, class_="middle small"))
    parts += [part for mark in marks for part in mark(across, up)]
    for name, number in (legend or {}).items():
        below += LEGEND_LINE
        parts.append(line(left, below, left + 14, below, class_=f"curve {arm_class(number)}"))
        parts.append(text(left + 19, below + 3, name, class_="small"))
    return drawing(frame.width, below + 10, label, parts, class_)


def _line_class(tick: float, axis: Axis) -> str:
    return "zero" if abs(tick) < 1e-9 and not axis.log else "grid"


@dataclass(frozen=True)
class Point:
    """A value with its interval and tooltip."""

    x: float
    y: float
    title: str = ""
    low: float | None = None
    high: float | None = None


def trace(points: Sequence[tuple[float, float]], class_: str) -> Mark:
    """Return a line through points."""
    return lambda x, y: [polyline([(x(a), y(b)) for a, b in points], class_=class_)]


def dotted(
    points: Sequence[Point], color: str, *, aside: float = 0.0, joined: bool = True, radius: float = 3.2
) -> Mark:
    """Return dots with their intervals, joined by a line; ``aside`` moves them by some pixels."""

    def draw(x: Scale, y: Scale) -> Iterator[Markup]:
        if joined:
            yield polyline([(x(of.x) + aside, y(of.y)) for of in points], class_=f"curve {color}")
        for of in points:
            at = round(x(of.x) + aside, 1)
            if of.low is not None and of.high is not None:
                yield line(at, y.inside(of.low), at, y.inside(of.high), class_=f"cap {color}")
            yield circle(at, y(of.y), radius, of.title, class_=f"dot {color}")

    return draw


@dataclass(frozen=True)
class Row:
    """A row of ``estimates``: a dot with its interval, and the label at the left."""

    label: str
    value: float
    title: str
    color: str
    low: float | None = None
    high: float | None = None
    height: float = 26.0
    radius: float = 5.0
    style: str = ""  # class of the label


ROW_LABEL_MAX, ROW_LABEL_SCALE = 200.0, 12 / 10.5
"""Maximum room for the labels of rows, longer ones are squeezed; size of their letters against others."""


def estimates(
    label: str, rows: Sequence[Row], span: tuple[float, float], margin: float, better: Better
) -> Markup:
    """Return a chart of changes in percent, one per row, against the equivalence margin.

    ``span`` is the range of the axis; an interval that extends beyond it has an arrow.
    """
    widest = max(label_width(row.label) for row in rows) * ROW_LABEL_SCALE
    left = min(ROW_LABEL_MAX, max(112.0, widest + 14))
    frame = Frame(540.0, left, 14.0, 52.0, 52.0 + sum(row.height for row in rows))
    limit = math.log1p(margin)
    inner, outer = percent_of(-limit), percent_of(limit)
    ticks = nice_ticks(*span, 7)
    less = better is Better.LESS

    def draw(x: Scale, _: Scale) -> Iterator[Markup]:
        yield text(
            x((inner + outer) / 2), frame.top - 8, f"margin ±{given_percent(margin)}", class_="quiet middle"
        )
        yield text(frame.left, 18, f"← {'faster' if less else 'slower'}", class_="quiet")
        yield text(frame.width - frame.right, 18, f"{'slower' if less else 'faster'} →", class_="quiet end")
        y = frame.top
        for row in rows:
            y += row.height
            yield from _row(row, x, y - row.height / 2, frame.left - 10)

    axis = Axis(*span, list(zip(ticks, tick_labels(ticks, "%"), strict=True)), grid=True)
    return plot(label, axis, NO_AXIS, [draw], frame, band=(inner, outer), class_="effect")


def _row(row: Row, x: Scale, y: float, left: float) -> Iterator[Markup]:
    if row.low is not None and row.high is not None:
        title = element("title", row.title)
        ends = {"x1": x.inside(row.low), "y1": y, "x2": x.inside(row.high), "y2": y}
        yield element("line", title, **ends, class_=f"interval {row.color}")
        for end, arrow in ((row.low, "◂"), (row.high, "▸")):
            if x.low <= end <= x.high:
                yield line(x(end), y - 7, x(end), y + 7, class_=f"cap {row.color}")
            else:
                yield text(x.inside(end), y + 5, arrow, class_="middle quiet")
    yield circle(x(row.value), y, row.radius, row.title, class_=f"dot {row.color}")
    is_long = label_width(row.label) * ROW_LABEL_SCALE > left - 4
    squeezed = {"textLength": left - 4, "lengthAdjust": "spacingAndGlyphs"} if is_long else {}
    yield text(left, y + 4, row.label, class_=f"end {row.style}".strip(), **squeezed)
