"""The complete report as Markdown, for an issue, a mail or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pgdyno.features.crash.sections import CrashReport, crash_tables, sentences
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.report.answer import Report, ShownCaveat
from pgdyno.report.document import Section
from pgdyno.report.result_tables import Table
from pgdyno.report.study_report import StudyReport
from pgdyno.report.visible_text import visible

# Characters of markup, tables and tags. Names and server messages are untrusted.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def to_markdown(study: StudyReport | HostsReport) -> str:
    """Return the document, with tables in GitHub-flavored Markdown."""
    lines = _of_hosts(study) if isinstance(study, HostsReport) else _of_study(study, study.title)
    return visible("\n".join([*lines, *_repeat(study.command)]) + "\n")


def crash_to_markdown(report: CrashReport) -> str:
    """Return the tables of a crash test, and a sentence for each arm."""
    losses, *others = crash_tables(report)
    lines = [f"# {escaped(losses.title)}", "", *(f"- {escaped(one)}" for one in sentences(report)), ""]
    lines += [*grid(losses), "", escaped(losses.note), ""]
    return visible("\n".join([*lines, *(line for table in others for line in _table(table))]) + "\n")


def published_as_markdown(study: StudyReport | HostsReport) -> str:
    """Return the published tables with measured values, and the caveats; pooled tables come first."""
    lines = _published_over_hosts(study) if isinstance(study, HostsReport) else _published(study, study.title)
    return visible("\n".join(lines) + "\n")


def _published_over_hosts(study: HostsReport) -> Iterator[str]:
    yield f"# {escaped(study.title)}"
    yield ""
    yield from _lost(study)
    for table in study.published:
        yield from _table(table)
    yield from _caveats(study.caveats)
    for name, report in study.studies.items():
        yield from _published(report, name)


def _published(study: StudyReport, title: str) -> Iterator[str]:
    yield f"# {escaped(title)}"
    yield ""
    yield from _lost(study)
    for table in study.published:
        yield from _table(table)
    yield from _sections(study.source)
    for table in study.background:
        yield from _table(table)
    yield from _caveats(study.caveats)


def _lost(study: StudyReport | HostsReport) -> Iterator[str]:
    if study.lost:
        yield f"**{escaped(study.lost)}**"
        yield ""
    for sentence in study.agreement:
        yield escaped(sentence)
        yield ""


def _of_study(study: StudyReport, title: str) -> Iterator[str]:
    yield from _lost(study)
    yield from _of_cases(study, title) if study.only is None else _of_one(study, study.only, title)


def _of_one(study: StudyReport, only: Report, title: str) -> Iterator[str]:
    yield from _of_case(only, title)
    yield from _sections(study.sections)
    for table in study.published:
        yield from _table(table)
    yield from _sections(study.source)
    for table in study.background:
        yield from _table(table)


def _of_hosts(study: HostsReport) -> Iterator[str]:
    """Yield the pooled results, then the report of each host."""
    yield from _lost(study)
    headlines = [text for headline in study.headlines for text in (headline.sentence, headline.more)]
    yield from _together(study, study.title, headlines)
    for name, report in study.studies.items():
        yield from _of_study(report, name)


def _of_cases(study: StudyReport, title: str) -> Iterator[str]:
    """Yield the results over cases, then the report of each case."""
    headlines = [headline.sentence for headline in study.headlines]
    yield from _together(study, title, headlines)
    for name, report in study.cases.items():
        yield from _of_case(report, name)


def _together(study: StudyReport | HostsReport, title: str, headlines: Sequence[str]) -> Iterator[str]:
    yield f"# {escaped(title)}"
    yield ""
    for sentence in [*headlines, study.unfinished, study.percent_of]:
        if sentence:
            yield escaped(sentence)
            yield ""
    for table in study.published:
        yield from _table(table)
    if isinstance(study, StudyReport):
        yield from _sections(study.source)
    for table in study.results:
        yield from _table(table)
    if isinstance(study, StudyReport):
        yield from _sections(study.sections)
    yield from _caveats(study.caveats)
    for table in study.background:
        yield from _table(table)


def _sections(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        if not section.sentences and not section.tables:  # charts only
            continue
        yield f"## {escaped(section.title)}"
        yield ""
        yield from (f"- {escaped(sentence)}" for sentence in section.sentences)
        yield ""
        for table in section.tables:
            yield from _table(table)


def _of_case(report: Report, title: str) -> Iterator[str]:
    yield f"# {escaped(title)}"
    yield ""
    for headline in report.headlines:
        yield f"**{escaped(headline.sentence)}**"
        if headline.more:
            yield escaped(headline.more)
        yield ""
    for reason in report.why:
        if reason.sentences:
            yield escaped(" ".join(reason.sentences))
            yield ""
    for sentence in report.queries:
        yield escaped(sentence)
        yield ""
    if report.dips:
        yield escaped(" ".join(report.dips))
        yield ""
    if report.unfinished:
        yield escaped(report.unfinished)
        yield ""
    yield escaped(report.percent_of)
    yield ""
    for table in report.results:
        yield from _table(table)
    yield from _caveats(report.caveats)
    yield "## How it was measured"
    yield ""
    for paragraph in [*report.method, report.noise, report.probes, report.derived]:
        if paragraph:
            yield escaped(paragraph)
            yield ""
    for table in report.background:
        yield from _table(table)


def _caveats(caveats: Sequence[ShownCaveat]) -> Iterator[str]:
    if caveats:
        yield "## Caveats"
        yield ""
        for caveat in caveats:
            source = ", ".join(filter(None, (caveat.code, caveat.more)))
            yield f"- {escaped(caveat.sentence)} *{escaped(caveat.remedy)}* ({escaped(source)})"
        yield ""


def _repeat(command: str) -> Iterator[str]:
    yield "## How to repeat it"
    yield ""
    yield from (f"    {line}" for line in command.splitlines())


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


def _row(cells: tuple[str, ...] | list[str] | object) -> str:
    assert isinstance(cells, tuple | list)
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Return an untrusted text on one line, with all markup escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split(" ")).replace("\n", " ").replace("\r", " "))
