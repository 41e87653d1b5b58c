"""Differential flame graphs: Brendan Gregg's idea of 2014, but a picture without a script.

A frame is as wide as the mean of both arms' CPU time per transaction in that function with all that it
called, so that what one of them lacks is seen, too. Red grew, blue shrank, beyond noise; the stronger, the
larger its part in the whole. What may be noise has no colour: a picture of two equal arms would be full of
it. Each says its numbers when pointed at.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from pgdyno.analysis.causes.cpu_profiles import Frame, ProfileComparison
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.estimate import decimals_of, grouped, signed
from pgdyno.report.charts import Panel
from pgdyno.report.svg import drawing, element, text

WIDTH, ROW = 960.0, 16.0

NARROWEST = 1.0
"""Frames below this are left out: they could not be pointed at."""

LETTER = 6.0

STRONG_SHARE = 0.02
"""A change of so much of all CPU time has the full colour."""


def flames(findings: Findings) -> list[Panel]:
    """One picture a comparison."""
    return [
        Panel(f"{profile.arm.name} vs. {profile.baseline.name}", _picture(profile))
        for profile in findings.profiles
        if profile.frames.mean_us
    ]


def _picture(profile: ProfileComparison) -> Markup:
    root = profile.frames
    placed = list(_placed(root, 0.0, 0, WIDTH / root.mean_us))
    depth = max(level for _, _, level, _ in placed)
    parts = [
        _drawn(frame, x, (depth - level) * ROW, width, root.mean_us) for frame, x, level, width in placed
    ]
    label = f"Differential flame graph: CPU time of {profile.arm.name} vs. {profile.baseline.name}"
    return drawing(WIDTH, (depth + 1) * ROW, label, parts, "flame")


def _placed(frame: Frame, x: float, level: int, scale: float) -> Iterator[tuple[Frame, float, int, float]]:
    """(frame, x, level, width) of each that can be seen."""
    width = frame.mean_us * scale
    if width < NARROWEST:
        return
    yield frame, x, level, width
    for inner in frame.within:
        yield from _placed(inner, x, level + 1, scale)
        x += inner.mean_us * scale


def _drawn(frame: Frame, x: float, y: float, width: float, total_us: float) -> Markup:
    change, name = frame.change_us, frame.name
    kind = ("grew" if change > 0 else "shrank") if frame.differs else "even"
    strength = round(0.25 + 0.65 * min(1.0, abs(change) / total_us / STRONG_SHARE), 2)
    sure = "" if frame.differs else ", which may be noise"
    told = (
        f"{name}: {_us(frame.baseline_us)} → {_us(frame.arm_us)} µs per transaction ({_signed(change)}{sure})"
    )
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
            fill_opacity=strength if frame.differs else None,
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
