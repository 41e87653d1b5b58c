"""Charts as SVG, made without a chart library: a page needs neither scripts nor a network.

- SVG for the charts: scales, ticks and elements. All text and attributes are escaped here.
- Charts: axes with ticks and labels, marks, and a legend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.units import Better, given_number, given_percent, group_digits, signed

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
    """Return at least three ticks: powers of ten, else multiples of them, else those of a linear axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        within = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(within) >= TICKS_MIN:
            return within
    return nice_ticks(low, high, TICKS_MIN)


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
    return element("text", content, x=round(x, 1), y=round(y, 1), **attributes)


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

LINE_HEIGHT = 12.0
"""Distance of the lines of labels in pixels."""

NAME_MAX = 90.0
"""Maximum room for names beside the ends of their lines, in pixels; longer ones are below the chart."""

KEY, KEY_GAP = 14.0, 5.0
"""Length of the piece of line before a name, and the gaps around it."""


def label_width(words: str) -> float:
    """Return the width of a label in pixels, at most for usual fonts."""
    return LETTER_WIDTH * (len(words) + sum(map(words.count, WIDE)) / 2)


def wrapped(words: str, room: float) -> list[str]:
    """Return lines that fit the room, broken at spaces and within names of settings where possible."""
    lines = [""]
    for part in re.split(r"(?<=[ ,=_])", words):
        for piece in [part] if label_width(part.rstrip()) <= room else part:
            if lines[-1] and label_width(lines[-1] + piece.rstrip()) > room:
                lines.append("")
            lines[-1] += piece
    return [one.strip() for one in lines]


def spread(places: Sequence[float], low: float, high: float) -> list[float]:
    """Move ascending places within low .. high until they have the distance of lines."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + LINE_HEIGHT if found else low))
    for i in reversed(range(len(found))):
        found[i] = min(found[i], high - LINE_HEIGHT * (len(found) - 1 - i))
    return found


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
    ticks = [(tick, given_number(float(f"{tick:.12g}"))) for tick in log_ticks(low, high)]
    return Axis(low, high, ticks, title, log=True)


@dataclass(frozen=True)
class Frame:
    """Size of a chart, and the place of its axes, in pixels. Labels are below ``bottom``."""

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
    marks: Sequence[Mark],
    frame: Frame = MEDIUM,
    *,
    band: tuple[float, float] | None = None,
    class_: str = "curves",
) -> Markup:
    """Return a chart; ``band``: a range of x behind the marks. Lines have names at their ends, or below."""
    widest = max((label_width(shown) for _, shown in y.ticks), default=0.0)
    left, right, top, bottom = max(frame.left, widest + 5), frame.width - frame.right, frame.top, frame.bottom
    lines = [mark for mark in marks if isinstance(mark, Dots) and mark.name and mark.points]
    named = sorted(lines, key=lambda of: -of.points[-1].y)
    room = max((label_width(of.name) + KEY + KEY_GAP for of in named), default=0.0)
    is_beside = room <= NAME_MAX and len(named) * LINE_HEIGHT <= bottom - top
    right -= room if is_beside else 0.0
    across, up = Scale(x.low, x.high, left, right, x.log), Scale(y.low, y.high, bottom, top, y.log)
    parts = []
    if band is not None:
        begin, end = map(across, band)
        parts.append(element("rect", x=begin, y=top, width=end - begin, height=bottom - top, class_="margin"))
    for tick, shown in y.ticks:
        parts.append(line(left, up(tick), right, up(tick), class_=_line_class(tick, y)))
        parts.append(text(left - 5, up(tick) + 3.5, shown, class_="end small"))
    if x.grid:
        parts += [line(across(at), top, across(at), bottom, class_=_line_class(at, x)) for at, _ in x.ticks]
    parts += row_of_labels([(across(at), shown) for at, shown in x.ticks], bottom + 15, frame.width)
    if y.title:
        parts.append(text(max(left - 5, label_width(y.title) + 2), top - 10, y.title, class_="end small"))
    below = bottom + 15 + frame.below
    for one in wrapped(x.title, frame.width) if x.title else ():
        below += 14
        parts += row_of_labels([((left + right) / 2, one)], below, frame.width)
    parts += [part for mark in marks for part in mark(across, up)]
    for of, end in zip(named, spread([up(of.points[-1].y) for of in named], top, bottom), strict=True):
        start, at = (right + KEY_GAP, end) if is_beside else (2, below + LINE_HEIGHT)
        name = list(_name(of, start, at, frame.width - start))
        parts += name
        below += 0 if is_beside else LINE_HEIGHT * (len(name) - 1)
    return drawing(frame.width, below + 10, label, parts, class_)


def _name(of: Dots, x: float, y: float, room: float) -> Iterator[Markup]:
    """Yield a piece of a line, then the lines of its name."""
    yield line(x, y, x + KEY, y, class_=f"curve {of.color}")
    for i, one in enumerate(wrapped(of.name, room - KEY - KEY_GAP)):
        yield text(x + KEY + KEY_GAP, y + 3.5 + i * LINE_HEIGHT, one, class_="small")


def row_of_labels(
    labels: Iterable[tuple[float, str]], y: float, width: float, class_: str = "middle small"
) -> Iterator[Markup]:
    """Yield labels around their places, moved into the picture, without those that would overlap."""
    free = -math.inf
    for place, shown in labels:
        half = label_width(shown) / 2
        at = max(half, min(place, width - half))
        if at - half > free:
            yield text(at, y, shown, class_=class_)
            free = at + half


def _line_class(tick: float, axis: Axis) -> str:
    return "zero" if abs(tick) < 1e-9 and not axis.log else "grid"


@dataclass(frozen=True)
class Point:
    """A value with its interval and tooltip. ``x_ends``: interval of x."""

    x: float
    y: float
    title: str = ""
    low: float | None = None
    high: float | None = None
    x_ends: Sequence[float] = ()


def trace(points: Sequence[tuple[float, float]], class_: str) -> Mark:
    """Return a line through points."""
    return lambda x, y: [polyline([(x(a), y(b)) for a, b in points], class_=class_)]


@dataclass(frozen=True)
class Dots:
    """Dots with their intervals, joined by a line that has a name; ``aside`` moves it by some pixels."""

    points: Sequence[Point]
    color: str
    name: str = ""
    aside: float = 0.0
    joined: bool = True
    radius: float = 3.2

    def __call__(self, x: Scale, y: Scale) -> Iterator[Markup]:
        places = [(round(x(of.x) + self.aside, 1), y(of.y)) for of in self.points]
        if self.joined:
            yield polyline(places, class_=f"curve {self.color}")
        for of, (at, up) in zip(self.points, places, strict=True):
            if of.low is not None and of.high is not None:
                yield line(at, y.inside(of.low), at, y.inside(of.high), class_=f"cap {self.color}")
            if of.x_ends:
                yield line(x(of.x_ends[0]), up, x(of.x_ends[1]), up, class_=f"cap {self.color}")
            yield circle(at, up, self.radius, of.title, class_=f"dot {self.color}")


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


ROW_LABEL_MAX, ROW_LABEL_SCALE, ROW_LABEL_LINES = 200.0, 12 / 10.5, 2
"""Maximum room for the labels of rows; size of their letters against others; lines, the last one cut."""


def row_label(words: str, x: float, y: float, class_: str = "") -> Iterator[Markup]:
    """Yield the lines of a label that ends at x, around y."""
    lines = wrapped(words, x / ROW_LABEL_SCALE)
    if len(lines) > ROW_LABEL_LINES:
        lines = [*lines[: ROW_LABEL_LINES - 1], f"{lines[ROW_LABEL_LINES - 1][:-1]}…"]
    for i, one in enumerate(lines):
        yield text(x, y + 4 + LINE_HEIGHT * (i - (len(lines) - 1) / 2), one, class_=f"end {class_}".strip())


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
    yield from row_label(row.label, left, y, row.style)
