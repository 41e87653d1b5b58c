"""The report as one self-contained HTML file, without external resources.

Its only script, report.js, sorts tables, shows values at the pointer and zooms. The content security policy
permits no other, and the page is complete without it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from pgdyno.errors import UsageError
from pgdyno.report.document import Document, Place, address_of, short_title, shown_by_rank
from pgdyno.report.documentation import html_of, passage, title_of
from pgdyno.report.visible_text import visible

UNIT = re.compile(r"(?s)<(pre|code)\b.*?</\1>|(?<=\d) (?=(?:[mµ]?s|min|h|[kMGT]?i?B|tx/s)\b)")
"""The space before a unit, at which no line is broken; or code, which is copied as it is."""


def to_html(document: Document) -> str:
    """Return the HTML document. All text from the results file is escaped, by jinja2 and by plot.py."""
    script = _text("report.js")
    page = _template("report.html.j2").render(
        document=document,
        place=Place,
        shown_by_rank=shown_by_rank,
        contents=Contents(),
        style=_text("report.css"),
        script=script,
        script_hash=source_hash(script),
    )
    return visible(re.sub(r"(?s)<main>.*</main>", lambda main: UNIT.sub(_unbroken, main[0]), page))


def _unbroken(found: re.Match[str]) -> str:
    return "\u00a0" if found[0] == " " else found[0]


@cache
def _template(name: str) -> Template:
    """Return the compiled template. A process that writes several reports compiles it once."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = breakable
    environment.filters["linked_within"] = linked_within
    return environment.from_string(_text(name))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def breakable(cell: str) -> Markup:
    """Return the text of a cell that a narrow page may break within names of settings and intervals."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=])(?=[^ ])|(?<=,)(?=[^ \d])", cell))


def linked_within(picture: Markup, around: str) -> Markup:
    """Return a picture whose links lead to sections of a case. ``around``: its address, or empty."""
    return Markup(str(picture).replace('href="#', f'href="#{around}-')) if around else picture


def source_hash(script: str) -> str:
    """Return the source expression of a content security policy that permits this script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


class Contents:
    """Addresses of the sections of a page, links to those outside of cases, and passages of documentation.

    An address consists of the names of its case and of the section. So it depends neither on results nor on
    the number of cases.
    """

    def __init__(self) -> None:
        self.links: list[tuple[str, str, bool]] = []  # address, text, whether it is a case
        self.passages: dict[str, tuple[str, str, Markup]] = {}  # by command: address, title, HTML
        self._taken = Counter[str]()

    def address(self, title: str, around: str, *, is_case: bool = False) -> str:
        """Return a new address; ``around`` is that of the case."""
        short = title if is_case else short_title(title)
        words = address_of(short)
        slug = f"{around}-{words}" if around else words
        self._taken[slug] += 1
        slug = slug if self._taken[slug] == 1 else f"{slug}-{self._taken[slug]}"
        if not around:
            self.links.append((slug, short, is_case))
        return slug

    def linked(self, text: str) -> Markup:
        """Return the text with links from commands that print documentation to copies of their passages."""
        return Markup(re.sub(r"pgdyno docs ([\w/-]+(?:#[\w-]+)?)", self._link, escape(text)))

    def _link(self, found: re.Match[str]) -> str:
        command, page = found[0], found[1]
        if command not in self.passages:
            try:
                of = passage(page)
            except UsageError:  # in the name of an arm, for example
                return command
            self.passages[command] = (self.address(page, "docs", is_case=True), title_of(of), html_of(of))
        return f'<a href="#{self.passages[command][0]}">{command}</a>'
