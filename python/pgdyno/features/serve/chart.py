"""The effect chart of a report as a file: SVG with its own colors, for light paper."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from markupsafe import Markup

from pgdyno import report
from pgdyno.report.document import Document, FileReport
from pgdyno.report.plot import Panel, element

SCALE = 1.5
"""CSS pixels per unit of a chart, as wide as in a report."""

TITLE_HEIGHT = 24.0


def effect_panels(found: FileReport) -> list[Panel]:
    """Return the charts of the effect of all cases."""
    parts = [part for of in found.of("cases") for part in of.parts.values()]
    documents: list[Document] = [found, *parts]
    return [panel for one in documents for of in one.of("effect") for panel in of.plots()]


def effect_svg(found: FileReport) -> str:
    """Return the charts below each other; empty if there is none."""
    drawn: list[Markup] = []
    width, top = 0.0, 4.0
    for panel in effect_panels(found):
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', panel.picture)
        assert box
        wide, high = map(float, box.groups())
        place = f'<svg y="{top + TITLE_HEIGHT:g}" width="{wide:g}" height="{high:g}" '
        drawn += [
            element("text", panel.title, x=8, y=top + 16, class_="strong"),
            Markup(str(panel.picture).replace("<svg ", place, 1)),
        ]
        width, top = max(width, wide), top + TITLE_HEIGHT + high
    if not drawn:
        return ""
    return element(
        "svg",
        Markup("").join(
            [
                element("style", Markup(_style())),
                element("rect", width="100%", height="100%", fill="#fffef9"),
                *drawn,
            ]
        ),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {top:g}",
        width=SCALE * width,
        height=SCALE * top,
    )


@cache
def _style() -> str:
    """Return the style sheet of reports without its dark colors and what fits it to a page."""
    text = (files(report) / "report.css").read_text("utf-8")
    text = re.sub(r"(?s)@media [^{]*\{(?:[^{}]|\{[^{}]*\})*\}", "", text)
    rules = re.findall(r"([^{}]+)(\{[^{}]*\})", text)
    drawn = re.compile(r"fill:|stroke:|opacity:|--a0|--c:")
    kept = [name + body for name, body in rules if "svg text" in name or drawn.search(body)]
    return "".join(["svg text { font-family: system-ui, sans-serif; }", *kept])
