"""The complete report as Markdown, for an issue, a mail or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgdyno.report.document import Document, Line, Place, Section, Table, shown_by_rank
from pgdyno.report.visible_text import visible

# Characters of markup, tables and tags. Names and server messages are untrusted.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def to_markdown(document: Document) -> str:
    """Return a text with tables in GitHub-flavored Markdown."""
    lines = list(_lines(document, document.title))
    if document.command:
        lines += ["## How to repeat it", "", *(f"    {line}" for line in document.command.splitlines())]
    return visible("\n".join(lines) + "\n")


def _lines(document: Document, title: str) -> Iterator[str]:
    yield f"# {escaped(title)}"
    yield ""
    for section in document.at(Place.ABOVE):
        yield from _paragraphs(section.sentences, "**" if section.is_alarm else "")
    for headline in document.headlines:
        mark = "" if headline.verdict is None else "**"
        yield f"{mark}{escaped(headline.sentence)}{mark}"
        yield from [escaped(headline.more)] if headline.more else []
        yield ""
    for part in document.answer:
        if isinstance(part, Line):
            yield from _paragraphs([f"{part.begin}{part.text}"])
        else:
            yield from (*grid(part), "", *_paragraphs([part.note] if part.note else []))
    causes = [sentence for section in document.at(Place.HEAD) for sentence in section.sentences]
    yield from (f"## {document.CAUSES}", "") if document.answer and causes else ()
    yield from _paragraphs(causes)
    yield from _paragraphs(filter(None, (document.unfinished, document.percent_of)))
    for section in sorted(document.body, key=lambda section: section.place):
        yield from _section(section)


def _paragraphs(sentences: Iterable[str], mark: str = "") -> Iterator[str]:
    for sentence in sentences:
        yield f"{mark}{escaped(sentence)}{mark}"
        yield ""


def _section(section: Section) -> Iterator[str]:
    if section.title and (section.sentences or section.caveats):
        yield f"## {escaped(section.title)}"
        yield ""
    if section.is_prose:
        yield from _paragraphs(section.sentences)
    elif section.title and section.sentences and not section.caveats:
        yield from (f"- {escaped(sentence)}" for sentence in section.sentences)
        yield ""
    for heading, caveats in shown_by_rank(section.caveats):
        yield from _paragraphs([heading])
        listed = [one for one in caveats if not one.condition]
        for caveat in listed:
            source = ", ".join(filter(None, (caveat.code, caveat.more)))
            yield f"- {escaped(caveat.sentence)} *{escaped(caveat.remedy)}* ({escaped(source)})"
        yield from [""] if listed else []
    for table in section.tables:
        yield from _table(table)
    for name, document in section.parts.items():
        yield from _lines(document, name)


def _table(table: Table) -> Iterator[str]:
    yield f"## {escaped(table.title)}"
    yield ""
    yield from grid(table)
    yield ""
    if table.note:
        yield escaped(table.note)
        yield ""


def grid(table: Table) -> Iterator[str]:
    """Yield the head and the rows of a table."""
    yield _row(table.columns)
    yield "|" + "|".join("---:" if column in table.numeric else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Return an untrusted text on one line, with all markup escaped."""
    return _SPECIAL.sub(r"\\\1", text.replace("\n", " ").replace("\r", " "))
