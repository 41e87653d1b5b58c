"""Pages of the documentation in the wheel, to which caveats and reports refer, and their sections."""

from __future__ import annotations

import re
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

import pgdyno
from pgdyno.errors import UsageError

PACKAGE = Path(pgdyno.__file__).parent


def pages() -> dict[str, Path]:
    """Return the pages by name, such as ``explanation/noise`` or ``features/crash``."""
    inside = PACKAGE / "docs"
    folder = inside if inside.is_dir() else PACKAGE.parents[1] / "docs"  # of an editable installation
    found = {str(path.relative_to(folder).with_suffix("")): path for path in folder.rglob("*.md")}
    return found | {
        str(path.parent.relative_to(PACKAGE)): path for path in PACKAGE.glob("features/*/README.md")
    }


def passage(page: str) -> str:
    """Return the Markdown of ``PAGE`` or ``PAGE#SECTION``. Raises UsageError if it does not exist."""
    name, _, section = page.partition("#")
    name = re.sub(r"^docs/|^python/pgdyno/|(/README)?\.md$", "", name)
    found = [path for known, path in pages().items() if name in (known, Path(known).name)]
    if len(found) != 1:
        raise UsageError(f"{page}: {len(found) or 'no'} pages have this name: list them with pgdyno docs")
    text = found[0].read_text("utf-8")
    return _section(text, section, page) if section else text


def _section(text: str, anchor: str, page: str) -> str:
    """Return a section up to the next heading of its level or above. Raises UsageError if it is missing."""
    headings = list(re.finditer(r"^(#+) (.*)$", text, re.MULTILINE))
    for i, heading in enumerate(headings):
        if anchor_of(heading[2]) == anchor:
            later = (of.start() for of in headings[i + 1 :] if len(of[1]) <= len(heading[1]))
            return text[heading.start() : next(later, len(text))].rstrip() + "\n"
    raise UsageError(f"{page}: the page has no section #{anchor}: remove it to print the whole page")


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as GitHub forms it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def title_of(text: str) -> str:
    """Return the heading with which a page or section begins."""
    return text.partition("\n")[0].lstrip("# ")


def html_of(text: str) -> Markup:
    """Return a passage below its heading as HTML, without its links: a report has no other pages."""
    below = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text.partition("\n")[2])
    return Markup(MarkdownIt("js-default").render(below))  # which escapes HTML
