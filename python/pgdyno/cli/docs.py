"""``pgdyno docs``: print a page of the documentation, to which caveats and reports refer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

import pgdyno
from pgdyno.cli.console import write_out
from pgdyno.errors import UsageError


def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="PAGE#SECTION",
            help="Page, such as noise or features/crash, and its section. [default: list of pages]",
        ),
    ] = None,
) -> int:
    """Print a page of the documentation, or a section of it.

    Caveats name the page that explains them. Examples:

    \b
      pgdyno docs
      pgdyno docs features/gates
      pgdyno docs explanation/noise#hidden-aa-blocks
    """
    package = Path(pgdyno.__file__).parent
    pages = {str(path.relative_to(folder()).with_suffix("")): path for path in folder().rglob("*.md")}
    pages |= {str(path.parent.relative_to(package)): path for path in package.glob("features/*/README.md")}
    if page is None:
        titles = {name: path.read_text("utf-8").partition("\n")[0] for name, path in sorted(pages.items())}
        write_out("".join(f"{name}: {title.removeprefix('# ')}\n" for name, title in titles.items()))
        return 0
    name, _, section = page.partition("#")
    name = re.sub(r"^docs/|^python/pgdyno/|(/README)?\.md$", "", name)
    found = [path for known, path in pages.items() if name in (known, Path(known).name)]
    if len(found) != 1:
        raise UsageError(f"{page}: {len(found) or 'no'} pages have this name: pgdyno docs lists all pages")
    text = found[0].read_text("utf-8")
    write_out(_section(text, section, page) if section else text)
    return 0


def folder() -> Path:
    """Return the documentation of the core: in the wheel, or in the checkout of an editable installation."""
    package = Path(pgdyno.__file__).parent
    inside = package / "docs"
    return inside if inside.is_dir() else package.parents[1] / "docs"


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
