"""Reports equal their golden files exactly; ``make golden`` renews these (golden_reports.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape

import pytest
from golden_reports import FOLDER, SIZE_BYTES_MAX, STUDIES, TEXTS, built, reports, require_golden
from report_forms import on_terminal, plain, summarized

from pgdyno.report.document import Document, Line
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_is_its_golden_file_in_every_form(name: str) -> None:
    require_golden(reports(name))


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_its_golden_file(name: str) -> None:
    require_golden({f"{name}.txt": TEXTS[name]()})


def test_every_summary_fits_a_terminal_of_24_lines() -> None:
    for path in FOLDER.glob("*.summary.txt"):
        lines = path.read_text("utf-8").splitlines()
        if any(", here" in line for line in lines):
            continue  # published tables are never cut
        # One line is for the prompt, and one for the name of the results file.
        assert len(lines) <= 22 and max(map(len, lines)) <= 80, path.name


def test_every_golden_file_is_small_and_belongs_to_a_study_or_a_text() -> None:
    for path in FOLDER.glob("*.*"):
        assert path.name.partition(".")[0] in {*STUDIES, *TEXTS}, f"{path}: renew with make golden"
        assert path.stat().st_size <= SIZE_BYTES_MAX, path


def told_by(document: Document) -> Iterator[str]:
    """Yield every sentence, title and cell that all formats have. A terminal has items for some tables."""
    yield from (document.unfinished, document.percent_of)
    for headline in document.headlines:
        yield from (headline.claim, headline.basis, headline.more)
    for section in document.sections:
        yield from (section.title if section.sentences else "", *section.sentences)
        for caveat in section.caveats:
            yield from [caveat.condition] if caveat.condition else [caveat.sentence, caveat.remedy]
        for table in section.tables:
            if not table.items:
                yield from (table.title, table.note, *table.columns)
                yield from (cell for row in table.rows for cell in row)
        for part in section.parts.values():
            yield from told_by(part)


def text_of_page(document: Document) -> str:
    return unescape(
        re.sub(
            r"<svg.*?</svg>|<(style|script).*?</\1>|</?[a-z][^>]*>", "", to_html(document), flags=re.DOTALL
        )
    )


@pytest.mark.parametrize("name", STUDIES)
def test_every_format_begins_with_the_same_answer(name: str) -> None:
    of = built(name)
    answer = json.loads(to_json(of))["answer"]
    markdown = re.sub(r"\\(.)", r"\1", to_markdown(of)).partition("\n## ")[0]
    page = text_of_page(of).partition("Contents")[0]
    told = [headline.claim for headline in of.headlines]
    told += [part.text for part in of.answer if isinstance(part, Line)]
    cells = [cell for row in answer["arms"] for cell in row.values()]
    assert told and bool(cells) == (len(built(name).of("cases", "hosts")) == 0)
    for text in (markdown, page, " ".join([*answer["sentences"], *cells])):
        said = " ".join(plain(text).split())
        assert [one for one in map(plain, (*told, *cells)) if " ".join(one.split()) not in said] == []
    first_screen = plain(summarized(of, 400))
    assert [cell for cell in map(plain, cells) if cell not in first_screen] == []


@pytest.mark.parametrize("name", STUDIES)
def test_every_readable_format_contains_every_sentence_and_cell(name: str) -> None:
    of = built(name)
    facts = {" ".join(plain(fact).split()) for fact in told_by(of)} - {of.title}
    assert len(facts) > 80
    markdown = re.sub(r"\\(.)", r"\1", to_markdown(of))
    for text in (on_terminal(of, 400), markdown, text_of_page(of)):
        said = " ".join(plain(text).split())
        missing = [fact for fact in facts if fact not in said]
        assert not missing, missing


def empty_headings(text: str, heading: str) -> list[str]:
    """Return the headings without text before the next heading of the same or a higher level.

    The pattern has two groups: the level and the title.
    """
    found = list(re.finditer(heading, text, flags=re.MULTILINE | re.DOTALL))
    ends = [*(one.start() for one in found[1:]), len(text)]
    levels = [len(one[1]) if one[1].startswith("#") else int(one[1]) for one in found] + [0]
    return [
        one[2]
        for number, (one, end) in enumerate(zip(found, ends, strict=True))
        if levels[number + 1] <= levels[number]
        and not re.sub(r"<(?!svg)[^>]*>", "", text[one.end() : end]).strip()
    ]


MARKDOWN_HEADING = r"^(#+) ([^\n]*)$"
HTML_HEADING = r"<h([1-6])\b[^>]*>(.*?)</h\1>"


def test_an_empty_heading_is_found() -> None:
    assert empty_headings("# a\n\n## b\n\n## c\n\ntext\n\n### d\n", MARKDOWN_HEADING) == ["b", "d"]
    assert empty_headings("<h2>a</h2><p></p><h2>b</h2><svg></svg>", HTML_HEADING) == ["a"]


@pytest.mark.parametrize("name", STUDIES)
def test_no_heading_of_a_report_is_empty(name: str) -> None:
    of = built(name)
    page, markdown = to_html(of), to_markdown(of)
    assert re.search(HTML_HEADING, page) and re.search(MARKDOWN_HEADING, markdown, flags=re.MULTILINE)
    assert empty_headings(markdown, MARKDOWN_HEADING) == []
    assert empty_headings(page, HTML_HEADING) == []


def test_a_number_in_a_table_is_not_broken_at_its_commas() -> None:
    page = to_html(built("verdict"))
    assert "103,052" in page and re.findall(r"\d,<wbr>\d{3}\b", page) == []
