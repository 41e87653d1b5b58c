"""The little SVG that our charts need: scales, ticks, elements. Every text and attribute is escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Scale:
    """From a value in ``low .. high`` to a place in ``start .. end``; on a log axis where ``log``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place, rounded to a tenth of a pixel."""
        low, high = self._flat(self.low), self._flat(self.high)
        share = (self._flat(value) - low) / (high - low) if high != low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def inside(self, value: float) -> float:
        """The place, or the end of the scale where it lies beyond."""
        return self(min(max(value, self.low), self.high))

    def _flat(self, value: float) -> float:
        return math.log10(value) if self.log else value


def nice_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round values within low .. high, about so many: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within low .. high, with their 2 and 5 where there are fewer than three."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        within = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(within) >= 3:
            return within
    return within


def element(name: str, content: str = "", /, **attributes: object) -> Markup:
    """``class_`` is class, underscores are hyphens; None leaves an attribute out."""
    written = Markup("").join(
        Markup(' {}="{}"').format(Markup(key.rstrip("_").replace("_", "-")), value)
        for key, value in attributes.items()
        if value is not None
    )
    # Names are ours; content is escaped unless it is markup already.
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, escape(content))


def text(x: float, y: float, content: str, **attributes: object) -> Markup:
    """A text with its baseline at y."""
    return element("text", content, **{"x": x, "y": y, **attributes})


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    """A straight line."""
    return element("line", "", **{"x1": x1, "y1": y1, "x2": x2, "y2": y2, **attributes})


def polyline(points: Sequence[tuple[float, float]], **attributes: object) -> Markup:
    """A line through points."""
    return element("polyline", "", points=" ".join(f"{x:g},{y:g}" for x, y in points), **attributes)


def circle(x: float, y: float, r: float, title: str = "", **attributes: object) -> Markup:
    """A dot, with a text that shows when pointed at."""
    return element("circle", element("title", title) if title else "", cx=x, cy=y, r=r, **attributes)


def drawing(width: float, height: float, label: str, parts: Iterable[Markup], class_: str) -> Markup:
    """A whole picture; ``label`` is what it says to who cannot see it."""
    return element(
        "svg",
        Markup("").join(parts),
        viewBox=f"0 0 {width:g} {height:g}",
        class_=class_,
        role="img",
        aria_label=label,
    )
