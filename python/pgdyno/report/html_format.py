"""The report as one self-contained HTML file, without external resources.

Its only script, report.js, sorts tables. The content security policy permits no other, and the page is
complete without it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from functools import cache
from html import unescape
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from pgdyno.report.document import Document, Place
from pgdyno.report.visible_text import visible


def to_html(document: Document) -> str:
    """Return the HTML document. All text from the results file is escaped, by jinja2 and by plot.py."""
    script = _text("report.js")
    page = _template("report.html.j2").render(
        document=document,
        place=Place,
        style=_text("report.css"),
        script=script,
        script_hash=source_hash(script),
    )
    return with_contents(visible(page))


@cache
def _template(name: str) -> Template:
    """Return the compiled template. A process that writes several reports compiles it once."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = breakable
    return environment.from_string(_text(name))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def breakable(cell: str) -> Markup:
    """Return the text of a cell that a narrow page may break within names of settings and intervals."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=,])(?=[^ ])", cell))


def source_hash(script: str) -> str:
    """Return the source expression of a content security policy that permits this script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


CONTENTS = "<!-- contents -->"
CASE = '<details class="case">'
TOKENS = re.compile(
    rf"{CASE}|<details>|</details>|<(?P<tag>h2|summary)>(?:<b>(?P<case>.*?)</b>)?(?P<title>.*?)</(?P=tag)>"
)


def with_contents(document: str) -> str:
    """Give each section a permanent address, and replace CONTENTS by links to sections and cases.

    The address of a section consists of the names of its case and of the section. So it depends neither on
    results nor on the number of cases.
    """
    places: list[str | None] = []  # address of each open case, None for other details
    items: list[str] = []
    taken = Counter[str]()

    def anchored(found: re.Match[str]) -> str:
        tag, case, title = found["tag"], found["case"], found["title"]
        if tag is None:
            if found[0] == "</details>":
                places.pop()
            else:
                places.append("" if found[0] == CASE else None)
            return found[0]
        # Without units and conditions: they are long, and may change between studies.
        short = case or re.split(r",| \(", title)[0]
        around = [place for place in places if place]
        slug = "-".join([*around[-1:], _words(short)])
        taken[slug] += 1
        slug = slug if taken[slug] == 1 else f"{slug}-{taken[slug]}"
        if case:
            places[-1] = slug
        if not around:
            items.append(f'<li{" class=sub" if case else ""}><a href="#{slug}">{short}</a></li>')
        if tag == "summary":
            name = f"<b>{case}</b>" if case else ""
            return f'<summary id="{slug}">{name}{title}</summary>'
        return f'<h2 id="{slug}">{title}<a class="anchor" href="#{slug}" aria-label="Link"></a></h2>'

    found = TOKENS.sub(anchored, document)
    links = f"<details><summary>Contents</summary><ul>{''.join(items)}</ul></details>"
    return found.replace(CONTENTS, f'<nav class="contents">{links}</nav>', 1)


def _words(title: str) -> str:
    return re.sub("[^a-z0-9]+", "-", unescape(title).lower()).strip("-")
