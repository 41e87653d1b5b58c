"""A report in all formats, as text."""

from __future__ import annotations

import io

from rich.console import Console
from synthetic_study import Synthetic, written_study

from pgdyno.analysis.gates import Gate
from pgdyno.cli.report import read_report
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.report.answer import Report
from pgdyno.report.document import Place, Section, Table
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import decoded, to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport
from pgdyno.report.terminal_format import print_summary, print_terminal

Built = StudyReport | HostsReport

HOSTILE = '"><script src="//evil.example/x.js"></script>[red]|`*</title>{{7*7}}'


def only(built: StudyReport) -> Report:
    assert built.only is not None
    return built.only


_REPORTS: dict[str, StudyReport] = {}


def report_of(*cases: Synthetic) -> StudyReport:
    """Return the report of a synthetic study, which is built once per process."""
    if (key := repr(cases)) not in _REPORTS:
        _REPORTS[key] = read_report(written_study(*cases))
    return _REPORTS[key]


def on_terminal(built: Built, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_terminal(built.document, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summarized(built: Built, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_summary(built.document, console, "All tables: pgdyno report results.sqlite --full")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def checked_json(built: Built, gate: Gate | None = None) -> str:
    """Return the JSON, validated with its schema."""
    text = to_json(built, gate)
    decoded(text)
    return text


def markdown_of(built: Built) -> str:
    return to_markdown(built.document)


def html_of(built: Built) -> str:
    return to_html(built.document)


def csv_of(built: Built) -> str:
    return built.csv()


def tables_of(built: Built) -> list[Table]:
    return [table for section in built.document.sections for table in section.tables]


def sections_of(built: Built) -> list[Section]:
    """Return the sections of features about a whole study."""
    return [one for one in built.document.at(Place.TOP) if one.sentences]


FORMS = {
    "terminal": on_terminal,
    "summary": summarized,
    "md": markdown_of,
    "json": checked_json,
    "csv": csv_of,
    "html": html_of,
}


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("<wbr>", "")
