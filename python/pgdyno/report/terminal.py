"""The report on a terminal: the verdict first, then the numbers, then the doubts."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from pgdyno.analysis.verdict import Verdict
from pgdyno.report.model import Report
from pgdyno.report.tables import Table

_VERDICT_STYLE = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold red",
    Verdict.SAME: "bold cyan",
    Verdict.UNDECIDED: "bold yellow",
}


def print_terminal(report: Report, console: Console) -> None:
    """Tables that are of interest to few are left to the other forms."""
    console.print(render(report))


def render(report: Report) -> RenderableType:
    """Texts from outside become Text, never markup: a name in brackets stays a name."""
    parts: list[RenderableType] = []
    for headline in report.headlines:
        parts.append(Text(headline.sentence, style=_VERDICT_STYLE[headline.verdict]))
        if headline.more:
            parts.append(Text(headline.more))
    parts += [Text(report.percent_of, style="dim"), Text()]
    parts += [_table(table) for table in report.results if not table.long]
    if report.doubts:
        parts.append(Text("Caveats", style="bold"))
        for doubt in report.doubts:
            words = Text.assemble((doubt.sentence, "yellow"), " ", (doubt.remedy, "dim"))
            parts.append(Padding(words, (0, 0, 0, 2)))
        parts.append(Text())
    if report.derived:
        parts.append(Text(report.derived, style="dim"))
    return Group(*parts)


def _table(table: Table) -> RenderableType:
    drawn = RichTable(
        title=Text(table.title, style="bold"),
        title_justify="left",
        caption=Text(table.note, style="dim") if table.note else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in table.columns:
        number = column in table.numeric
        # A number is never broken over lines; names and words are, where the terminal is narrow.
        drawn.add_column(Text(column), justify="right" if number else "left", no_wrap=number)
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn
