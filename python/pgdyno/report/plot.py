"""Charts as SVG.

- SVG for the charts: scales, ticks and elements. All text and attributes are escaped here.
- Charts of a report: effect by block, latency by percentile. Charts over time are in timelines.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from pgdyno.units import group_digits, signed

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


@dataclass(frozen=True)
class Panel:
    """A chart with its heading."""

    title: str
    picture: Markup


def arm_class(arm: int) -> str:
    """Return the CSS class with the color of an arm."""
    return f"arm{arm % COLORS}"
