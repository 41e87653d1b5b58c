"""The report on a terminal: verdict, numbers, caveats. Details are in the HTML report."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from pgdyno.analysis.comparison import Verdict
from pgdyno.features.crash.sections import CrashReport, crash_tables, sentences
from pgdyno.features.history import report as history_words
from pgdyno.features.history.report import HistoryReport
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.report import answer
from pgdyno.report.answer import Report, ShownCaveat
from pgdyno.report.document import Section
from pgdyno.report.result_tables import Table
from pgdyno.report.study_report import StudyReport
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

_VERDICT_STYLE = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold red",
    Verdict.SAME: "bold cyan",
    Verdict.UNDECIDED: "bold yellow",
}


def print_terminal(study: StudyReport | HostsReport, console: Console) -> None:
    """Print all that the HTML report shows, except charts."""
    if isinstance(study, HostsReport):
        _print_lost(study, console)
        console.print(_of_hosts(study, console.width), crop=False)
        _print_beside(study.published, console)
        for name, report in study.studies.items():
            console.print(_heading(name))
            _print_study(report, console)
    else:
        _print_study(study, console)
    console.print(Text("How to repeat it", style="bold"))
    console.print(Text(visible(f"  {study.command}")), soft_wrap=True)


def _print_study(study: StudyReport, console: Console) -> None:
    width, prose = console.width, min(console.width, WIDTH_MAX)
    _print_lost(study, console)
    if study.only is None:
        headlines = [_wrapped(headline.sentence, prose, "bold") for headline in study.headlines]
        console.print(Group(*headlines, Text()))
        _print_source(study, console)
        parts = [*_below_headlines(study, study.results, width), *_fitted(study, prose)]
        console.print(Group(*parts), crop=False)
        for name, report in study.cases.items():
            console.print(_heading(name))
            console.print(render(report, width), crop=False)
        return
    console.print(render(study.only, width), crop=False)
    _print_source(study, console)
    console.print(Group(*_sections(study.sections, width), *_fitted(study, prose)), crop=False)


def _heading(name: str) -> Text:
    """Return the heading of one case or host."""
    return Text(f"\n{visible(name)}\n{'═' * len(visible(name))}", style="bold")


def print_summary(study: StudyReport | HostsReport, console: Console, more: str) -> None:
    """Print what fits the first screen, and published tables. ``more``: where the other tables are."""
    _print_lost(study, console)
    if isinstance(study, HostsReport) or study.only is None or study.published:
        _print_overview(study, console)
    else:
        console.print(_first_screen(study.only, study.sections, console.width), crop=False)
    console.print(_wrapped(more, min(console.width, WIDTH_MAX), "dim"))


def _print_overview(study: StudyReport | HostsReport, console: Console) -> None:
    """Print the headlines, the published tables or the first rows of the results, and the main caveats."""
    width, prose = console.width, min(console.width, WIDTH_MAX)
    if isinstance(study, HostsReport):
        headlines: list[RenderableType] = [
            _wrapped(of.sentence, prose, _VERDICT_STYLE[of.verdict])
            for of in study.headlines[: answer.HEADLINES_MAX]
        ]
    elif study.only is not None:
        headlines = _headlines(study.only, prose)
    else:
        shown = study.headlines[: answer.HEADLINES_MAX]
        headlines = [_wrapped(of.sentence, prose, "bold") for of in shown]
    console.print(Group(*headlines))
    is_single = isinstance(study, StudyReport) and study.only is not None
    if (rest := len(study.headlines) - answer.HEADLINES_MAX) > 0 and not is_single:
        console.print(_wrapped(f"{counted(rest, 'other comparison')}.", prose, begin="+ "))
    if study.unfinished:
        console.print(_wrapped(study.unfinished, prose, "bold"))
    if study.published:
        console.print()
        _print_beside(study.published, console)
    else:
        for table in study.results[:1]:
            console.print(Group(*_table(answer.first_rows(table), width)), crop=False)
    if isinstance(study, StudyReport):
        console.print(Group(*_briefs(study.sections, prose)))
    caveats, others = answer.main_caveats(study.caveats)
    console.print(
        Group(*[_wrapped(f"{one.sentence} {one.remedy}", prose, "yellow", "! ") for one in caveats])
    )
    fitted = counted(len(study.fitted), "setting") if isinstance(study, StudyReport) and study.fitted else ""
    rest_of = [one for one in (others, f"{fitted} fitted to this machine" if fitted else "") if one]
    if rest_of:
        console.print(_wrapped(f"{'; '.join(rest_of)}.", prose, begin="+ "))


def _briefs(sections: Sequence[Section], prose: int) -> list[RenderableType]:
    return [_wrapped(sentence, prose) for section in sections for sentence in section.brief]


def _first_screen(report: Report, sections: Sequence[Section], width: int) -> RenderableType:
    prose = min(width, WIDTH_MAX)
    parts: list[RenderableType] = []
    if len(report.headlines) <= answer.HEADLINES_MAX:
        parts += _headlines(report, prose)
    else:
        for comparison, headline in zip(report.findings.comparisons, report.headlines, strict=True):
            if comparison.is_held_back:
                parts.append(_wrapped(f"{comparison.arm.name}: {headline.more}", prose))
    if report.unfinished:
        parts.append(_wrapped(report.unfinished, prose, "bold"))
    _, *table = _table(answer.effect_table(report.findings), width)
    parts += [*table, Text()]
    if differing := answer.differences(report.findings):
        parts.append(_wrapped(f"{'; '.join(differing)}.", prose, begin="Differs: "))
    parts += [_wrapped(sentence, prose) for sentence in (*answer.causes(report), *report.queries)]
    parts += [_wrapped(one, prose, "red", "! ") for one in answer.failures(report.findings)]
    parts += (briefs := _briefs(sections, prose))
    shown, others = answer.main_caveats(
        report.caveats, 1 if briefs else answer.CAVEATS_MAX
    )  # the first screen has 24 lines
    parts += [_wrapped(f"{one.sentence} {one.remedy}", prose, "yellow", "! ") for one in shown]
    if others:
        parts.append(_wrapped(f"{others}.", prose, begin="+ "))
    return Group(*parts)


def _headlines(report: Report, prose: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for headline in report.headlines:
        parts.append(_wrapped(headline.sentence, prose, _VERDICT_STYLE[headline.verdict]))
        if headline.more:
            parts.append(_wrapped(headline.more, prose))
    return parts


def print_history(report: HistoryReport, console: Console) -> None:
    """Print the table of each history, then its changes."""
    prose = min(console.width, WIDTH_MAX)
    for history in report.histories:
        items = [
            _wrapped(sentence, prose, begin="- ") for sentence in history_words.history_sentences(history)
        ]
        table = _table(history_words.overview(history), console.width)
        console.print(Group(*table, Text(), *items, Text()), crop=False)


def print_crash_test(report: CrashReport, console: Console) -> None:
    """Print the tables of a crash test, and a sentence for each arm."""
    tables = crash_tables(report)
    items = [_wrapped(sentence, min(console.width, WIDTH_MAX)) for sentence in sentences(report)]
    console.print(Group(*_table(tables[0], console.width), Text(), *items), crop=False)
    for table in tables[1:]:
        console.print(Group(Text(), *_table(table, console.width)), crop=False)


def print_published(study: StudyReport | HostsReport, console: Console) -> None:
    """Print the published tables with measured values, and the caveats; pooled tables come first."""
    prose = min(console.width, WIDTH_MAX)
    _print_lost(study, console)
    _print_beside(study.published, console)
    if isinstance(study, HostsReport):
        console.print(Group(*_caveats(study.caveats, prose)))
        for name, report in study.studies.items():
            console.print(Text(name, style="bold"), Text(), sep="\n")
            _print_source(report, console)
            console.print(Group(*_fitted(report, prose)))
        return
    console.print(Group(*_sections(study.source, console.width)), crop=False)
    console.print(Group(*_caveats(study.caveats, prose), *_fitted(study, prose)))


def _print_beside(tables: Sequence[Table], console: Console) -> None:
    """Print tables with all columns; of a table that is too wide, its narrow form if it has one."""
    for table in tables:
        needed = sum(_width(table, index) + _GAP for index in range(len(table.columns))) - _GAP
        if needed > console.width and table.narrow is not None:
            console.print(Group(*_table(replace(table.narrow, note=table.note), console.width), Text()))
            continue
        title, drawn, *_ = _table(table, max(console.width, needed))
        assert isinstance(drawn, RichTable)
        drawn.width = needed if needed > console.width else None
        console.print(title)
        console.print(drawn, crop=False)
        console.print(_wrapped(table.note, min(console.width, WIDTH_MAX), "dim"), Text(), sep="\n")


def _print_lost(study: StudyReport | HostsReport, console: Console) -> None:
    """Print a lost question and the agreement with the source, above everything else."""
    prose = min(console.width, WIDTH_MAX)
    lost = [_wrapped(study.lost, prose, "bold red")] if study.lost else []
    parts = [*lost, *(_wrapped(sentence, prose) for sentence in study.agreement)]
    console.print(Group(*parts, *([Text()] if parts else [])))


def _print_source(study: StudyReport, console: Console) -> None:
    """Print the published tables and the section below them."""
    _print_beside(study.published, console)
    console.print(Group(*_sections(study.source, console.width)), crop=False)


def _fitted(study: StudyReport, prose: int) -> list[RenderableType]:
    """Return sentences instead of the table, whose four columns of text do not fit a terminal."""
    if not study.fitted:
        return []
    items = [_wrapped(sentence, prose, begin="- ") for sentence in study.fitted]
    return [Text("Settings fitted to this machine", style="bold"), *items, Text()]


def _of_hosts(study: HostsReport, width: int) -> RenderableType:
    prose = min(width, WIDTH_MAX)
    parts: list[RenderableType] = []
    for headline in study.headlines:
        parts.append(_wrapped(headline.sentence, prose, _VERDICT_STYLE[headline.verdict]))
        parts.append(_wrapped(headline.more, prose))
    parts += _below_headlines(study, study.results, width)
    parts += _tables(study.background, width)
    if study.derived:
        parts.append(_wrapped(study.derived, prose, "dim"))
    return Group(*parts)


def _sections(sections: Sequence[Section], width: int) -> list[RenderableType]:
    """Return the sentences and tables of each section."""
    parts: list[RenderableType] = []
    for section in sections:
        if not section.sentences and not section.tables:  # charts only
            continue
        parts.append(Text(section.title, style="bold"))
        parts += [_wrapped(sentence, min(width, WIDTH_MAX), begin="- ") for sentence in section.sentences]
        drawn = [] if section.drawn is None else [section.drawn]
        parts += [Text(), *_tables([*drawn, *section.tables], width)]
    return parts


def _below_headlines(
    study: StudyReport | HostsReport, results: Sequence[Table], width: int
) -> list[RenderableType]:
    prose = min(width, WIDTH_MAX)
    parts: list[RenderableType] = []
    if study.unfinished:
        parts.append(_wrapped(study.unfinished, prose, "bold"))
    parts += [_wrapped(study.percent_of, prose, "dim"), Text()]
    parts += _tables(results, width)
    parts += _sections(study.sections, width) if isinstance(study, StudyReport) else []
    parts += _caveats(study.caveats, prose)
    return parts


def _tables(tables: Sequence[Table], width: int) -> list[RenderableType]:
    return [part for table in tables for part in (*_table(table, width), Text())]


def render(report: Report, width: int) -> RenderableType:
    """Return the report of one case. Untrusted text becomes Text, never markup."""
    prose = min(width, WIDTH_MAX)
    parts = _headlines(report, prose)
    parts += [_wrapped(" ".join(reason.sentences), prose) for reason in report.why if reason.sentences]
    parts += [_wrapped(sentence, prose) for sentence in (*report.queries, *report.dips)]
    if report.unfinished:
        parts.append(_wrapped(report.unfinished, prose, "bold"))
    if differing := answer.differences(report.findings):
        parts.append(_wrapped(f"{'; '.join(differing)}.", prose, begin="Differs: "))
    parts += [_wrapped(report.percent_of, prose, "dim"), Text()]
    parts += _tables(report.results, width)
    parts += _caveats(report.caveats, prose)
    parts.append(Text("How it was measured", style="bold"))
    for paragraph in (*report.method, report.noise, report.probes, report.derived):
        parts += [_wrapped(paragraph, prose), Text()] if paragraph else []
    return Group(*parts, *_tables(report.background, width))


def _caveats(caveats: Sequence[ShownCaveat], prose: int) -> list[RenderableType]:
    if not caveats:
        return []
    items = [_wrapped(f"{caveat.sentence} {caveat.remedy}", prose, "yellow", "- ") for caveat in caveats]
    return [Text("Caveats", style="bold"), *items, Text()]


def _wrapped(text: str, width: int, style: str = "", begin: str = "") -> Text:
    """Wrap a text with textwrap, because rich breaks lines at a no-break space between number and unit."""
    lines = textwrap.wrap(visible(text), width, initial_indent=begin, subsequent_indent=" " * len(begin))
    return Text("\n".join(lines), style=style, no_wrap=True, overflow="fold")


def _table(table: Table, width: int) -> list[RenderableType]:
    """Return title, table and note."""
    # Escape before the layout: an escaped character takes four or more columns.
    table = replace(table, rows=[tuple(map(visible, row)) for row in table.rows])
    columns = _fitting(table, width)
    omitted = [name for i, name in enumerate(table.columns) if i not in columns and name != table.drawing]
    needed = {index: _width(table, index) for index in columns}
    first = max(len(cell) for cell in [table.columns[0], *(row[0] for row in table.rows)])
    fits = sum(needed.values()) - needed[0] + first + _GAP * (len(columns) - 1) <= width
    names = [index for index in columns if index and table.columns[index] not in table.numeric]
    taken = sum(needed[index] for index in columns if index not in names) + _GAP * (len(columns) - 1)
    width_of_name = max(NAME_WIDTH_MIN, (width - taken) // max(1, len(names)))
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
        cells = (_broken(row[index], width_of_name) if index in names else row[index] for index in columns)
        drawn.add_row(*map(Text, cells))
    parts: list[RenderableType] = [Text(table.title, style="bold"), drawn]
    note = [table.note] if table.note else []
    if omitted:
        note.append(f"Omitted on {width} columns: {', '.join(omitted)} (a wider terminal, --md or --html).")
    if note:
        parts.append(_wrapped(" ".join(note), min(width, WIDTH_MAX), "dim"))
    return parts


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
    shown = list(range(len(needed)))
    numbers = [name for name in reversed(table.columns[2:]) if name in table.numeric]
    known = [name for name in table.dispensable if name in table.columns]
    for name in [*known, *(name for name in numbers if name not in known)]:
        if sum(needed[index] + _GAP for index in shown) - _GAP <= width:
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
