"""A report in all formats, as text."""

from __future__ import annotations

import io

from rich.console import Console
from synthetic_study import Synthetic, written_study

from pgdyno.analysis.gates import Gate
from pgdyno.cli.report import read_report
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.report.answer import Report
from pgdyno.report.csv_format import to_csv
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import decoded, to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport
from pgdyno.report.terminal_format import print_summary, print_terminal

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


def on_terminal(built: StudyReport | HostsReport, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_terminal(built, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summarized(built: StudyReport | HostsReport, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_summary(built, console, "All tables: pgdyno report results.sqlite --full")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def checked_json(built: StudyReport | HostsReport, gate: Gate | None = None) -> str:
    """Return the JSON, validated with its schema."""
    text = to_json(built, gate)
    decoded(text)
    return text


FORMS = {
    "terminal": on_terminal,
    "summary": summarized,
    "md": to_markdown,
    "json": checked_json,
    "csv": to_csv,
    "html": to_html,
}


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("<wbr>", "")
