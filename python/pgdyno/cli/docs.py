"""``pgdyno docs``: print a page of the documentation, to which caveats and reports refer."""

from __future__ import annotations

from typing import Annotated

import typer

from pgdyno.cli.console import write_out
from pgdyno.report.documentation import pages, passage, title_of


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
    if page is None:
        titles = {name: title_of(path.read_text("utf-8")) for name, path in sorted(pages().items())}
        write_out("".join(f"{name}: {title}\n" for name, title in titles.items()))
    else:
        write_out(passage(page))
    return 0
