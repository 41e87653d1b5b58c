"""The report on a terminal: verdict, numbers, caveats. Details are in the HTML report."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from pgdyno.analysis.comparison import Verdict
from pgdyno.report.document import Document, Line, Place, Section, Table, Tone, serious, shown_by_rank
from pgdyno.report.visible_text import visible
from pgdyno.units import counted

WIDTH_MAX = 120
"""Maximum width of lines of text: longer lines are hard to read."""

NAME_WIDTH_MAX = 28
"""Maximum width reserved for a name before less important columns are omitted; longer names are wrapped."""

NAME_WORD_MAX = 16
"""Maximum width of a word that is not broken."""

NAME_WIDTH_MIN = 8
"""Minimum width of a wrapped name."""

FIRST_WIDTH_MIN = 14
"""Minimum width of a first column that is wrapped before other columns are omitted."""

_GAP = 3  # between two columns, as rich draws them

_STYLES: dict[Tone | Verdict, str] = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold red",
    Verdict.SAME: "bold cyan",
    Verdict.UNDECIDED: "bold yellow",
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.CAVEAT: "yellow",
    Tone.ALARM: "red",
}


def print_terminal(document: Document, console: Console) -> None:
    """Print all that the HTML report shows, except charts."""
    console.print(Group(*_parts(document, console.width)), crop=False)
    if document.command:
        console.print(Text("How to repeat it", style="bold"))
        console.print(Text(visible(f"  {document.command}")), soft_wrap=True)


SCREEN_LINES_MAX = 16
"""Maximum number of lines of the first screen. Only published tables and serious caveats exceed it."""

SCREEN_ROWS_MAX, SCREEN_ROWS_MIN = 8, 4
"""Maximum number of rows of its tables, and the number to which a full screen reduces it."""


def print_summary(document: Document, console: Console, full: str) -> None:
    """Print the first screen. ``full``: the command that prints all."""
    width = min(console.width, WIDTH_MAX)
    above = _above(document, width)[:-1]  # without the empty line
    for lines, rows in _screens(document.summary):
        omitted = len(document.summary) - len(lines)
        more = f"{counted(omitted, 'more line')}, all tables" if omitted else "All tables"
        parts = [part for one in lines for part in _of_summary(one, console.width, rows)]
        screen = Group(*above, *parts, _wrapped(f"{more}: {full}", width, "dim"))
        if len(console.render_lines(screen)) <= SCREEN_LINES_MAX:
            break
    console.print(screen, crop=False)


def _screens(summary: Sequence[Line | Table]) -> Iterator[tuple[Sequence[Line | Table], int]]:
    """Yield the lines of a screen and the rows of its tables, then of ever smaller screens.

    They omit spare lines, the last ones first, cut lines below the verdict, omit rows, and wrap no names.
    """
    lines = list(summary)
    yield lines, SCREEN_ROWS_MAX
    for i in reversed([i for i, one in enumerate(lines) if isinstance(one, Line) and one.is_spare]):
        lines = [*lines[:i], *lines[i + 1 :]]
        yield lines, SCREEN_ROWS_MAX
    lines = [replace(one, is_cut=_may_be_cut(one)) if isinstance(one, Line) else one for one in lines]
    yield from ((lines, rows) for rows in range(SCREEN_ROWS_MAX, SCREEN_ROWS_MIN - 1, -1))
    yield (
        [one if isinstance(one, Line) else replace(one, breaks_first=False) for one in lines],
        SCREEN_ROWS_MIN,
    )


def _may_be_cut(line: Line) -> bool:
    return bool(line.begin) or (line.is_headline and line.tone is Tone.PLAIN)


def _of_summary(one: Line | Table, width: int, rows: int) -> list[RenderableType]:
    if isinstance(one, Line):
        return [_line(one, min(width, WIDTH_MAX))]
    rest = 0 if one.whole else max(0, len(one.rows) - rows)
    return _table(replace(one, rows=one.rows[: len(one.rows) - rest]), width, rest)


def _parts(document: Document, width: int) -> list[RenderableType]:
    """Return a document. Untrusted text becomes Text, never markup."""
    prose = min(width, WIDTH_MAX)
    parts: list[RenderableType] = []
    for headline in document.headlines:
        parts.append(_wrapped(headline.sentence, prose, _STYLES[headline.verdict or Tone.STRONG]))
        parts += [_wrapped(headline.more, prose)] if headline.more else []
    parts += [_wrapped(one, prose) for section in document.at(Place.HEAD) for one in section.sentences]
    if document.unfinished:
        parts.append(_wrapped(document.unfinished, prose, "bold"))
    if document.differs:
        parts.append(_wrapped(f"{document.differs}.", prose, begin="Differs: "))
    if document.percent_of:
        parts.append(_wrapped(document.percent_of, prose, "dim"))
    parts += [_line(one, prose) for one in serious(document.caveats)]
    parts += [Text()] if parts else []
    sections = [part for section in document.body for part in _section(section, width)]
    return [*_above(document, prose), *parts, *sections]


def _above(document: Document, prose: int) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _wrapped(sentence, prose, "bold red" if section.is_alarm else "")
        for section in document.at(Place.ABOVE)
        for sentence in section.sentences
    ]
    return [*parts, *([Text()] if parts else [])]


def _section(section: Section, width: int) -> list[RenderableType]:
    prose = min(width, WIDTH_MAX)
    tables = [*([] if section.drawn is None else [section.drawn]), *section.tables]
    parts: list[RenderableType] = []
    if section.title and (section.sentences or section.caveats or tables):
        parts.append(Text(section.title, style="bold"))
    if section.is_prose:
        parts += [part for one in section.sentences for part in (_wrapped(one, prose), Text())]
    else:
        parts += [_wrapped(sentence, prose, begin="- ") for sentence in section.sentences]
    for title, caveats in shown_by_rank(section.caveats):
        parts.append(_wrapped(title, prose))
        listed = (f"{one.sentence} {one.remedy}" for one in caveats if not one.condition)
        parts += [_wrapped(one, prose, "yellow", "- ") for one in listed]
    parts += [Text()] if parts and not section.is_prose else []
    parts += [part for table in tables for part in (*_table(table, width), Text())]
    for name, document in section.parts.items():
        heading = Text(f"\n{visible(name)}\n{'═' * len(visible(name))}", style="bold")
        parts += [heading, *_parts(document, width)]
    return parts


def _line(line: Line, width: int) -> Text:
    text, room = visible(line.text), width - len(line.begin)
    if line.is_cut and len(text) > room:
        text = f"{text[: room - 2].rsplit(' ', 1)[0]} …"
    return _wrapped(text, width, _STYLES[line.tone], line.begin)


def _wrapped(text: str, width: int, style: str = "", begin: str = "") -> Text:
    """Wrap a text with textwrap, because rich breaks lines at a no-break space between number and unit."""
    wrapper = textwrap.TextWrapper(width, begin, " " * len(begin), break_on_hyphens=False)
    lines = wrapper.wrap(visible(text))
    return Text("\n".join(lines), style=style, no_wrap=True, overflow="fold")


def _table(table: Table, width: int, rest: int = 0) -> list[RenderableType]:
    """Return title, table and note. ``rest``: number of rows that are left out."""
    title: list[RenderableType] = [Text(table.title, style="bold")] if table.title else []
    if table.items:
        return [*title, *(_wrapped(item, min(width, WIDTH_MAX), begin="- ") for item in table.items)]
    # Escape before the layout: an escaped character takes four or more columns.
    table = replace(table, rows=[tuple(map(visible, row)) for row in table.rows])
    if table.whole:
        whole = sum(_width(table, index) + _GAP for index in range(len(table.columns))) - _GAP
        if whole > width and table.narrow is not None:
            return _table(replace(table.narrow, note=table.note), width)
        drawn = _grid(table, max(width, whole), range(len(table.columns)))
        drawn.width = whole if whole > width else None
        return [*title, drawn, *_note([table.note], [], width)]
    columns = _fitting(table, width)
    omitted = [name for i, name in enumerate(table.columns) if i not in columns and name != table.drawing]
    found = _note([table.note], omitted, width)
    if rest:
        columns_omitted = f"; omitted on {width} columns: {', '.join(omitted)}" if omitted else ""
        found = [_wrapped(f"{counted(rest, 'more row')}{columns_omitted}. {table.note}", width, "dim")]
    return [*title, _grid(table, width, columns), *found]


def _note(sentences: Sequence[str], omitted: Sequence[str], width: int) -> list[RenderableType]:
    note = list(filter(None, sentences))
    if omitted:
        note.append(f"Omitted on {width} columns: {', '.join(omitted)} (a wider terminal, --md or --html).")
    return [_wrapped(" ".join(note), min(width, WIDTH_MAX), "dim")] if note else []


def _grid(table: Table, width: int, columns: Sequence[int]) -> RichTable:
    """Return the head and the rows of a table."""
    needed = {index: _width(table, index) for index in columns}
    first = max(len(cell) for cell in [table.columns[0], *(row[0] for row in table.rows)])
    fits = sum(needed.values()) - needed[0] + first + _GAP * (len(columns) - 1) <= width
    names = [index for index in columns if index and table.columns[index] not in table.numeric]
    taken = sum(needed[index] for index in columns if index not in names) + _GAP * (len(columns) - 1)
    width_of_name = max(NAME_WIDTH_MIN, (width - taken) // max(1, len(names)))
    widths = dict.fromkeys(names, width_of_name)
    if not fits and table.breaks_first:
        widths[0] = max(NAME_WIDTH_MIN, width - sum(needed.values()) + needed[0] - _GAP * (len(columns) - 1))
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    least = sum(_least_width(table, index) + _GAP for index in columns) - _GAP
    drawn.width = least if least > width else None  # rather long lines than lost numbers
    for index in columns:
        column = table.columns[index]
        number = column in table.numeric
        # Numbers are never wrapped; names and words are wrapped on a narrow terminal. The first column has
        # short labels and is wrapped last.
        whole = number or (index == 0 and fits)
        drawn.add_column(
            Text(column),
            justify="right" if number else "left",
            no_wrap=whole,
            overflow="fold",
            min_width=_least_width(table, index),
        )
    for row in table.rows:
        cells = (_broken(row[index], widths[index]) if index in widths else row[index] for index in columns)
        drawn.add_row(*map(Text, cells))
    return drawn


def _broken(name: str, width: int) -> str:
    """Wrap a name to ``width`` after commas, spaces, slashes and colons.

    A longer word is wrapped after the underscores and equal signs of a setting.
    """
    lines = [""]
    words = [word for word in re.findall(r"[^, /:]*[, /:]?", name) if word]
    parts_of = {word: re.findall(r"[^_=]*[_=]?", word) for word in words if len(word) > width}
    fitting = {word: parts for word, parts in parts_of.items() if max(map(len, parts)) <= width}
    for part in itertools.chain.from_iterable(fitting.get(word, [word]) for word in words):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _fitting(table: Table, width: int) -> list[int]:
    """Return the indexes of the columns that fit, omitting dispensable ones first, then the last numbers."""
    needed = [_width(table, index) for index in range(len(table.columns))]
    for index, column in enumerate(table.columns):
        if index == 0 and table.breaks_first:
            needed[index] = min(needed[index], FIRST_WIDTH_MIN)
        elif index and column not in table.numeric:
            needed[index] = min(needed[index], _wrapped_width(table, index))  # wrap before omitting a column
    shown, whole = list(range(len(needed))), _width(table, 0)
    numbers = [name for name in reversed(table.columns[2:]) if name in table.numeric]
    known = [name for name in table.dispensable if name in table.columns]
    for name in [*known, *(name for name in numbers if name not in known)]:
        # A drawing is omitted before the first column is wrapped.
        first = max(needed[0], whole) if name == table.drawing else needed[0]
        if first - needed[0] + sum(needed[index] + _GAP for index in shown) - _GAP <= width:
            break
        shown.remove(table.columns.index(name))
    return shown


def _wrapped_width(table: Table, index: int) -> int:
    """Return the least width of a column of names or words: a word, or a part of a setting, is not broken."""
    parts = (part for row in table.rows for part in re.findall(r"[^, /:_=]+[, /:_=]?", row[index]))
    return max(NAME_WIDTH_MIN, min(NAME_WORD_MAX, max((len(part.rstrip()) for part in parts), default=0)))


def _least_width(table: Table, index: int) -> int:
    """Return the width below which a column would lose characters of numbers or words."""
    if table.columns[index] in table.numeric:
        return _width(table, index)
    return min(_width(table, index), _wrapped_width(table, index))


def _width(table: Table, index: int) -> int:
    cells: Sequence[str] = [table.columns[index], *(row[index] for row in table.rows)]
    widest = max(map(len, cells))
    return widest if table.columns[index] in table.numeric else min(widest, NAME_WIDTH_MAX)
