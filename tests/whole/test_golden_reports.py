"""Reports equal their golden files exactly; ``make golden`` renews these (golden_reports.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html import unescape

import pytest
from golden_reports import FOLDER, SIZE_BYTES_MAX, STOLEN, STUDIES, TEXTS, built, reports, require_golden
from report_forms import on_terminal, plain, report_of, summarized
from synthetic_study import Synthetic

from pgdyno.caveats import Caveat
from pgdyno.report import answer
from pgdyno.report.document import Document, Line
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.records import TrialStatus


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_is_its_golden_file_in_every_form(name: str) -> None:
    require_golden(reports(name))


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_its_golden_file(name: str) -> None:
    require_golden({f"{name}.txt": TEXTS[name]()})


def test_every_first_screen_has_at_most_16_lines_of_80_columns() -> None:
    screens = sorted(FOLDER.glob("*.summary.txt"))
    assert len(screens) == len(STUDIES)
    for path in screens:
        lines = path.read_text("utf-8").splitlines()
        assert len(lines) <= 16 and max(map(len, lines)) <= 80, path.name


def test_a_first_screen_of_many_arms_has_the_largest_effects_and_counts_the_others() -> None:
    names = ("16", "17", "18", "18,jit=off", "18,shared_buffers=8GB", "18,synchronous_commit=off", "19")
    effects = (1.0, 1.04, 1.25, 1.27, 1.4, 1.9, 0.97)
    wanted = Synthetic(effects=effects, names=names, blocks=6, slices=4, noise=0.004)
    of = report_of(replace(wanted, probed=True, unsafe_arms=(5,)))
    screen = summarized(of, 80)
    assert len(screen.splitlines()) <= 16 and max(map(len, screen.splitlines())) <= 80
    by_size = [names[i] for i in (5, 4, 3, 2, 1, 6)]
    rows = json.loads(to_json(of))["answer"]["arms"]
    assert [row["arm"] for row in rows] == [names[0], *by_size]
    shown = re.findall(r"^(\S+) +[\d,]+ .*(?:baseline|faster|undecided)", screen, flags=re.MULTILINE)
    assert shown == [names[0], *by_size][: len(shown)] and len(shown) >= 4
    assert f"{len(rows) - len(shown)} more row" in screen
    assert f"Why {names[5]}: " in screen and "more lines, all tables: " in screen
    assert f"sudo pgdyno crash 16 {names[5]} " in " ".join(screen.split()) and "less safe" in screen


def test_a_full_screen_cuts_the_differences_and_keeps_serious_caveats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """17, 18 and 18,synchronous_commit=off, measured with their real settings, had 20 lines."""
    default = "by default: effective_io_concurrency 1 | 16 | 16, maintenance_io_concurrency 10 | 16 | 16"
    several = ["PostgreSQL 17 | 18 | 18", "synchronous_commit on | on | off", default, "12 more settings"]
    monkeypatch.setattr(answer, "differences", lambda _: several)
    names = ("17", "18", "18,synchronous_commit=off")
    wanted = Synthetic(names=names, effects=(1, 1.1, 3.0), unsafe_arms=(2,), blocks=6, failed_per_slice=60)
    of = report_of(replace(wanted, noise=0.3, probed=True, statuses={(2, 1): TrialStatus.EXCLUDED}))
    lines = summarized(of, 80).splitlines()
    assert len(lines) <= 16 and max(map(len, lines)) <= 80
    assert any(
        line.startswith("Differs: PostgreSQL 17 | 18 | 18; ") and line.endswith(" …") for line in lines
    )
    assert len([line for line in lines if line.startswith("! ")]) == 3
    assert default in " ".join(on_terminal(of, 80).split())


def test_a_first_screen_of_two_arms_with_all_that_can_be_wrong_has_at_most_16_lines() -> None:
    names = ("18", "18,synchronous_commit=off")
    wanted = Synthetic(names=names, effects=(1, 1.01), unsafe_arms=(1,), blocks=6, failed_per_slice=60)
    caveats = (STOLEN, Caveat.of("debug-engine"), Caveat.of("interrupted", trials=3))
    lines = summarized(report_of(replace(wanted, noise=0.1, seed=3, caveats=caveats)), 80).splitlines()
    assert lines[0].startswith("Undecided: ") and any("To measure lost commits: " in line for line in lines)
    assert len(lines) <= 16 and max(map(len, lines)) <= 80, lines


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


@cache
def page_of(name: str) -> str:
    return to_html(built(name))


@cache
def markdown_of(name: str) -> str:
    return to_markdown(built(name))


@cache
def text_of_page(name: str) -> str:
    drawn = r"<svg.*?</svg>|<(style|script).*?</\1>|</?[a-z][^>]*>"
    return unescape(re.sub(drawn, "", page_of(name), flags=re.DOTALL))


@pytest.mark.parametrize("name", STUDIES)
def test_every_format_begins_with_the_same_answer(name: str) -> None:
    of = built(name)
    answer = json.loads(to_json(of))["answer"]
    markdown = re.sub(r"\\(.)", r"\1", markdown_of(name)).partition("\n## ")[0]
    page = text_of_page(name).partition("Contents")[0]
    told = [headline.claim for headline in of.headlines]
    told += [part.text for part in of.answer if isinstance(part, Line)]
    cells = [cell for row in answer["arms"] for cell in row.values()]
    assert told and bool(cells) == (len(of.of("cases", "hosts")) == 0)
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
    markdown = re.sub(r"\\(.)", r"\1", markdown_of(name))
    for text in (on_terminal(of, 400), markdown, text_of_page(name)):
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
    page, markdown = page_of(name), markdown_of(name)
    assert re.search(HTML_HEADING, page) and re.search(MARKDOWN_HEADING, markdown, flags=re.MULTILINE)
    assert empty_headings(markdown, MARKDOWN_HEADING) == []
    assert empty_headings(page, HTML_HEADING) == []


def test_a_number_in_a_table_is_not_broken_at_its_commas() -> None:
    page = page_of("verdict")
    assert "103,052" in page and re.findall(r"\d,<wbr>\d{3}\b", page) == []
