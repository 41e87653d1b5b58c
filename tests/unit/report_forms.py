"""A report in all formats, as text."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from synthetic_study import Synthetic, written_study

from pgdyno.cli.report import read_findings, read_report
from pgdyno.report.answer import Report
from pgdyno.report.document import FileReport, Place, Section, Table
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport
from pgdyno.report.terminal_format import print_summary, print_terminal

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "report-schema.json"

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


_READ: dict[tuple[object, bytes], Any] = {}


def analyze_once(patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Make modules analyze files with the same content once per process."""

    def once(read: Callable[[Path], Any], path: Path) -> Any:
        key = read, path.read_bytes() if path.is_file() else b""
        if key not in _READ:
            _READ[key] = read(path)
        return _READ[key]

    for module, read in itertools.product(modules, (read_findings, read_report)):
        if hasattr(module, read.__name__):
            patch.setattr(module, read.__name__, partial(once, read))


def on_terminal(built: FileReport, width: int = 140) -> str:
    file = io.StringIO()
    print_terminal(built, Console(width=width, file=file, color_system=None))
    return file.getvalue()


def summarized(built: FileReport, width: int = 140) -> str:
    file = io.StringIO()
    console = Console(width=width, file=file, color_system=None)
    print_summary(built, console, "pgdyno report results.sqlite --full")
    return file.getvalue()


def checked_json(built: FileReport) -> str:
    """Return the JSON, compared with its schema."""
    return matching(to_json(built))


def tables_of(built: FileReport) -> list[Table]:
    return [table for section in built.sections for table in section.tables]


def sections_of(built: FileReport) -> list[Section]:
    """Return the sections of features about a whole study."""
    return [one for one in built.at(Place.TOP) if one.sentences]


def matching(text: str) -> str:
    """Return the text of a document that matches the schema of all documents."""
    assert not list(mismatches(json.loads(text), the_schema()))
    return text


def case_in(document: Any) -> Any:
    """Return the only case in a document of one results file."""
    (case,) = document["study"]["cases"]
    return case


@cache
def the_schema() -> Any:
    """Return the JSON Schema of all documents, which ``tests/whole/test_docs.py`` keeps up to date."""
    return json.loads(SCHEMA.read_text("utf-8"))


KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def mismatches(value: Any, of: Any, place: str = "") -> Iterator[str]:
    """Yield the places at which a value differs from a JSON Schema, in the words that our schema uses."""
    if "$ref" in of:
        of = the_schema()["$defs"][of["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in of:
        every = [list(mismatches(value, one, place)) for one in of["anyOf"]]
        yield from min(every, key=lambda found: (len(found), not found))
        return
    kinds = of.get("type", list(KINDS))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    of_kind = any(isinstance(value, KINDS[kind]) for kind in kinds)
    if not of_kind or value not in of.get("enum", [value]) or value != of.get("const", value):
        yield f"{place}: {value!r}"
    elif isinstance(value, dict):
        own = of.get("properties", {})
        others = of.get("additionalProperties", not own)
        yield from (f"{place}/{key} is missing" for key in of.get("required", ()) if key not in value)
        for key, part in value.items():
            if key not in own and not others:
                yield f"{place}/{key} is unknown"
            else:
                yield from mismatches(
                    part, own.get(key, others if others is not True else {}), f"{place}/{key}"
                )
    elif isinstance(value, list):
        first = of.get("prefixItems", [])
        for n, part in enumerate(value):
            yield from mismatches(part, first[n] if n < len(first) else of.get("items", {}), f"{place}/{n}")


FORMS = {
    "terminal": on_terminal,
    "summary": summarized,
    "md": to_markdown,
    "json": checked_json,
    "csv": lambda built: built.csv(),
    "html": to_html,
}


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("<wbr>", "")
