"""Differential flame graphs: Brendan Gregg's idea of 2014, but a picture without a script.

A frame is as wide as the mean of both arms' CPU time per transaction in that function with all that it
called, so that what one of them lacks is seen, too. Red grew, blue shrank; the stronger, the larger its part
in the whole. Each says its numbers when pointed at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from markupsafe import Markup

from pgdyno.analysis.findings import Findings
from pgdyno.analysis.profile_comparison import ProfileComparison
from pgdyno.estimate import decimals_of, grouped, signed
from pgdyno.report.charts import Panel
from pgdyno.report.svg import drawing, element, text

WIDTH, ROW = 960.0, 16.0

NARROWEST = 1.0
"""Frames below this are left out: they could not be pointed at."""

LETTER = 6.0

STRONG_SHARE = 0.02
"""A change of so much of all CPU time has the full colour."""

EVEN_SHARE = 0.0005
"""Of all CPU time: a change below it has none."""


@dataclass
class Frame:
    """``a``, ``b``: µs per transaction of the baseline and the arm, with all that it called."""

    a: float = 0.0
    b: float = 0.0
    within: dict[str, Frame] = field(default_factory=dict)

    @property
    def width_us(self) -> float:
        """Adds up over the frames within."""
        return (self.a + self.b) / 2


def tree(profile: ProfileComparison) -> Frame:
    """All stacks together."""
    root = Frame()
    for stack, (a, b) in profile.stacks.items():
        at = root
        at.a, at.b = at.a + a, at.b + b
        for name in stack:
            at = at.within.setdefault(name, Frame())
            at.a, at.b = at.a + a, at.b + b
    return root


def flames(findings: Findings) -> list[Panel]:
    """One picture a comparison."""
    return [
        Panel(f"{profile.arm.name} against {profile.baseline.name}", _picture(profile))
        for profile in findings.profiles
        if profile.stacks
    ]


def _picture(profile: ProfileComparison) -> Markup:
    root = tree(profile)
    placed = list(_placed("all", root, 0.0, 0, WIDTH / root.width_us)) if root.width_us else []
    depth = max((level for _, _, _, level, _ in placed), default=0)
    parts = [
        _drawn(name, frame, x, (depth - level) * ROW, width, root.width_us)
        for name, frame, x, level, width in placed
    ]
    label = f"Differential flame graph: CPU time of {profile.arm.name} against {profile.baseline.name}"
    return drawing(WIDTH, (depth + 1) * ROW, label, parts, "flame")


def _placed(
    name: str, frame: Frame, x: float, level: int, scale: float
) -> Iterator[tuple[str, Frame, float, int, float]]:
    """(name, frame, x, level, width) of each frame that can be seen, those within by their names."""
    width = frame.width_us * scale
    if width < NARROWEST:
        return
    yield name, frame, x, level, width
    for inner, of in sorted(frame.within.items()):
        yield from _placed(inner, of, x, level + 1, scale)
        x += of.width_us * scale


def _drawn(name: str, frame: Frame, x: float, y: float, width: float, total_us: float) -> Markup:
    change = frame.b - frame.a
    share = abs(change) / total_us
    kind = "even" if share < EVEN_SHARE else "grew" if change > 0 else "shrank"
    strength = None if kind == "even" else round(0.15 + 0.75 * min(1.0, share / STRONG_SHARE), 2)
    told = f"{name}: {_us(frame.a)} → {_us(frame.b)} µs per transaction ({_signed(change)})"
    parts = [
        element("title", told),
        element("rect", "", class_="frame", x=round(x, 1), y=y, width=round(width, 1), height=ROW - 1),
        element(
            "rect",
            "",
            class_=kind,
            x=round(x, 1),
            y=y,
            width=round(width, 1),
            height=ROW - 1,
            fill_opacity=strength,
        ),
    ]
    letters = int((width - 4) / LETTER)
    if letters >= 3:
        short = name if len(name) <= letters else f"{name[: letters - 1]}…"
        parts.append(text(round(x + 2, 1), y + ROW - 5, short))
    return element("g", Markup("").join(parts))


def _us(us: float) -> str:
    return grouped(us, decimals_of(us, 3)) if us else "0"


def _signed(us: float) -> str:
    return signed(us, decimals_of(us, 2), "") if us else "0"
