"""Reports in every format: the same facts, complete, escaped, and without network requests. Every document in
JSON matches the published schema, also with unusual values.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from html import escape, unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from golden_reports import FAILURES, history_of
from golden_reports import built as golden
from report_forms import (
    FORMS,
    HOSTILE,
    case_in,
    checked_json,
    mismatches,
    on_terminal,
    only,
    plain,
    report_of,
    tables_of,
    the_schema,
)
from synthetic_study import SKIPPED_AFTER_NS, Synthetic, arms_of, study_of, write_block, written_study
from typer.testing import CliRunner

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.caveats import Caveat, Rank
from pgdyno.cli.console import VisibleConsole, out
from pgdyno.cli.options import expanded
from pgdyno.cli.report import read_report, report
from pgdyno.cli.streams import PLAIN
from pgdyno.features.history.report import history_document
from pgdyno.report import answer, background
from pgdyno.report.answer import CAVEATS_PER_KIND_MAX, case_report
from pgdyno.report.csv_format import COLUMNS
from pgdyno.report.document import Document, Section, ShownCaveat, placed
from pgdyno.report.documentation import html_of, passage
from pgdyno.report.html_format import source_hash, to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import build_study
from pgdyno.report.terminal_format import _broken, print_terminal
from pgdyno.results.records import TrialStatus
from pgdyno.results.writer import Writer


@cache
def page_of_failures() -> str:
    return to_html(report_of(FAILURES))


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (("-Wall -O2", "-g -Os"), "(-O2 and -Os)"),
        (("-O2", "-g"), "(-O2 and -O0)"),
        (("-O3 -O2", "-O2"), None),
        (("-O2", ""), None),
    ],
)
def test_different_optimization_is_shown_with_the_effect(flags: tuple[str, str], levels: str | None) -> None:
    (headline,) = only(report_of(Synthetic(effects=(1, 1.1), blocks=6, slices=2, flags=flags))).headlines
    assert (levels in headline.more) if levels else ("optimization" not in headline.more)


def test_an_arm_that_lost_blocks_has_no_interval_of_a_single_analysis() -> None:
    failed = {(block, 2): TrialStatus.FAILED for block in range(9)}
    names = ("17", "18", "19")
    wanted = Synthetic(names=names, effects=(1, 1.1, 1.2), blocks=12, statuses=failed, stops_on_verdict=True)
    _, lost = only(report_of(wanted)).findings.comparisons
    assert lost.primary is not None and lost.primary.summary.n == 3
    assert lost.primary.summary.method is Method.ANYTIME and lost.primary.percent.low is None


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_every_form_bears_a_study_that_has_hardly_begun(blocks: int) -> None:
    built = report_of(Synthetic(blocks=blocks, ended=None))
    assert all(text_of(built) for text_of in FORMS.values())


def test_json_numbers_the_blocks_of_a_comparison_and_names_the_dropped_ones() -> None:
    case = case_in(json.loads(checked_json(report_of(FAILURES))))
    first = case["comparisons"][0]
    assert first["blocks"] == [0, 1, 3, 4, 5] and first["dropped"] == [2]
    assert set(first["effects"][case["primary"]]["log_ratios"]) == {"0", "1", "3", "4", "5"}
    assert case["arms"][1]["trials_by_status"] == {"ok": 5, "excluded": 1}


def test_csv_is_tidy_and_includes_excluded_trials() -> None:
    rows = list(csv.DictReader(io.StringIO(report_of(FAILURES).csv())))
    assert tuple(rows[0]) == COLUMNS
    nopm = [row for row in rows if row["metric"] == "nopm"]
    assert len(nopm) == 6 * 3
    assert [row["arm"] for row in nopm if row["status"] == "excluded"] == ["18"]
    assert all(row["unit"] and row["better"] in {"more", "less"} for row in rows)
    assert all(float(row["value"]) > 0 or row["metric"].startswith("dips.") for row in rows)
    assert any(row["metric"] == "latency.delivery.p95" for row in rows)


def test_csv_contains_no_spreadsheet_formula() -> None:
    wanted = Synthetic(names=("17", "=cmd|'/c calc'!A1"), blocks=1)
    rows = list(csv.DictReader(io.StringIO(report_of(wanted).csv())))
    assert {row["arm"][0] for row in rows} == {"1", "'"}


@pytest.mark.parametrize(("blocks", "drawn"), [(1, 0), (2, 1), (6, 1)])
def test_an_interval_is_shown_from_two_blocks_on(blocks: int, drawn: int) -> None:
    built = report_of(Synthetic(effects=(1, 1.1), blocks=blocks))
    assert to_html(built).count('class="interval ') == 2 * drawn  # the answer, and the effect by block
    assert ("%, " in only(built).headlines[0].basis) == (drawn == 1)


def test_a_study_that_ended_before_its_first_analysis_has_student_s_interval_and_no_verdict() -> None:
    built = report_of(Synthetic(effects=(1, 2.28), blocks=3, stops_on_verdict=True))
    found = json.loads(FORMS["json"](built))
    effect = case_in(found)["comparisons"][0]["effects"]["nopm"]
    assert effect["summary"]["method"] == "student"
    assert 0 < effect["percent"]["low"] < 128 < effect["percent"]["high"]
    headline = only(built).headlines[0]
    assert headline.verdict is Verdict.UNDECIDED and "95% CI" in headline.basis
    assert "2 more" in headline.more
    text = " ".join(only(built).of("certainty")[0].sentences)
    assert "Student's t" in text and "interim analysis followed" not in text


class Elements(HTMLParser):
    """Collects every tag and attribute of a document, and whether tags match."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in {"meta", "br", "wbr", "input"}:  # elements without content
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("wanted", [FAILURES, Synthetic(names=("17", HOSTILE), title=HOSTILE, blocks=5)])
def test_html_is_one_file_that_asks_nobody_and_runs_its_own_script_only(wanted: Synthetic) -> None:
    page = to_html(report_of(wanted))
    elements = Elements()
    elements.feed(page)
    assert elements.open == []
    # Exactly one script, the program's own, and the policy permits no other.
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert elements.tags.count("script") == 1
    assert script == files("pgdyno.report").joinpath("report.js").read_text("utf-8")
    policy = re.search(r'Policy" content="([^"]*)"', page)
    assert policy is not None and f"script-src '{source_hash(script)}'" in policy[1]
    digest = base64.b64decode(source_hash(script).removeprefix("sha256-"))
    assert digest == hashlib.sha256(script.encode()).digest()
    forbidden = {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not forbidden & set(elements.tags)
    assert not {"src", "xlink:href", "style"} & {name for name, _ in elements.attributes}
    assert all((value or "").startswith("#") for name, value in elements.attributes if name == "href")
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert "49" not in page[page.index("<title>") : page.index("</title>")]


def test_a_page_contains_the_documentation_to_which_it_links() -> None:
    caveats = (Caveat.of("steal", 3, arm="18", share="6%", limit="5%"), Caveat.of("shared-machine", cores=2))
    page = to_html(report_of(Synthetic(names=("17", "pgdyno docs ../x"), blocks=5, caveats=caveats)))
    links = re.findall(r'<code><a href="#([^"]+)">pgdyno docs ([^<]+)</a></code>', page)
    assert len(links) >= 2
    for address, name in links:
        (shown,) = re.findall(
            f'<summary id="{address}">.*?<div class="passage">(.*?)</div></det', page, re.DOTALL
        )
        words = re.findall(r"[A-Za-z]{4,}", re.sub(r"\]\([^)]*\)", "", passage(name)).partition("\n")[2])
        assert words and set(words) <= set(re.findall(r"[A-Za-z]{4,}", shown)), name
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'\bid="([^"]+)"', page))
    assert (
        html_of("# Title\nA <script> and [a link](x.md).\n").strip() == "<p>A &lt;script&gt; and a link.</p>"
    )


def test_no_line_of_a_page_is_broken_between_a_number_and_its_unit() -> None:
    plain, page = to_markdown(report_of(FAILURES)), page_of_failures()
    assert re.search(r"\d (?:ms|s|min)\b", plain)  # which need no change
    main = re.sub(r"(?s)<(pre|code)\b.*?</\1>", "", page[page.index("<main>") : page.index("</main>")])
    assert not re.search(r"\d (?:ms|s|min)\b", main)


def test_a_command_of_a_page_can_be_copied() -> None:
    command = "pgdyno compare '17,checkpoint_timeout=15 min' 18"
    assert f"<pre>{command}</pre>" in unescape(to_html(Document("t", [], command=command)))


def addresses_of_cases(*cases: Synthetic) -> list[str]:
    page = to_html(report_of(*cases))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    contents = page[page.index('<nav class="contents">') : page.index("</nav>")]
    assert set(re.findall(r'href="#([^"]+)"', contents)) <= set(ids)
    assert contents.count("class=sub") == len(cases)
    return ids


def test_addresses_depend_neither_on_results_nor_on_other_cases() -> None:
    """A link to a section of a case stays valid when the study is repeated or gets another case."""
    first, second = ({"kind": kind, "clients": "8"} for kind in ("select-only", "default"))
    case = Synthetic(blocks=5, slices=2)
    before = addresses_of_cases(*(replace(case, levels=of) for of in (first, second)))
    other = replace(case, effects=(1.0, 0.7), seed=2)
    new = {"kind": "new", "clients": "8"}
    after = addresses_of_cases(*(replace(other, levels=of) for of in (new, first, second)))
    mine = [one for one in before if "default" in one]
    assert len(mine) > 5 and set(mine) <= set(after)


def test_a_narrow_page_keeps_the_intervals_and_the_differing_settings_are_above_the_effect() -> None:
    page = page_of_failures()
    (head,) = re.findall(r"<th[^>]*>95% CI</th>", page)
    assert 'class="n"' in head
    # A name breaks between its words, and an interval between its ends.
    assert ">18,<wbr>fsync=<wbr>off<" in page and re.search(r"\[[0-9\u202f ]+,<wbr>\u00a0", page)
    assert page.index(">Settings that differ</summary>") < page.index(">Effect overall and by block<")
    assert len(re.findall(r">Settings that differ</(?:summary|h2)>", page)) == 1


def test_the_cards_of_the_answer_draw_the_interval_and_the_margin_of_each_arm() -> None:
    long_name = "18,shared_buffers=8GB,synchronous_commit=off"
    built = report_of(replace(FAILURES, names=("17", "18", long_name), effects=(1.0, 1.1, 0.97)))
    cards = to_html(built).partition('<div class="cards">')[2].partition("</svg></div>")[0]
    assert cards.count('class="interval ') == 2 and 'class="margin"' in cards and "margin ±2%" in cards
    band = re.search(r'<rect x="([\d.]+)"[^>]* width="([\d.]+)"[^>]*class="margin"', cards)
    intervals = re.findall(r'<line x1="([\d.]+)"[^>]* x2="([\d.]+)"[^>]*class="interval arm(\d)"', cards)
    assert band is not None and [arm for _, _, arm in intervals] == ["1", "2"]
    low, high = float(band[1]), float(band[1]) + float(band[2])
    changes = {of.arm.arm: of.primary.percent for of in only(built).findings.comparisons if of.primary}
    for left, right, arm in intervals:  # the drawing agrees with the numbers
        percent = changes[int(arm)]
        assert percent.low is not None and percent.high is not None
        assert (float(left) > high) == (percent.low > 2) and (float(right) < low) == (percent.high < -2)
    lines = re.findall(r'class="end">([^<]*)</text>', cards)
    assert lines[-2:] == ["18,shared_buffers=8GB,", "synchronous_commit=off"]


def test_html_draws_every_block_and_every_arm() -> None:
    page = page_of_failures()
    assert page.count("<svg viewBox") == 1 + 2 + 6 + 5  # answer, effects, blocks, kinds
    for block in (1, 2, 4, 5, 6):
        assert f"<title>block {block}: " in page
    assert all(f'class="curve arm{arm}"' in page for arm in range(3))
    for of in only(report_of(FAILURES)).findings.arms:
        assert f"<title>{of.arm.name}, p99: " in page  # a value beside the pointer


CHROMIUM = shutil.which("chromium")
SORTED = """
const rows = () => [...document.querySelectorAll("tbody tr")];
const order = (column) => rows().map((row) => row.cells[column].textContent);
const heads = document.querySelectorAll("th button");
const said = [];
for (const [column, times] of [[0, 1], [2, 1], [2, 1], [2, 1], [3, 1]]) {
  for (let n = 0; n < times; n++) heads[column].click();
  said.push(order(column).join(";"));
}
document.body.textContent = said.join("|");
"""


def in_chromium(page: str, script: str, folder: Path) -> str:
    """Return the text of the body of a page after a script has run."""
    assert CHROMIUM is not None
    file = folder / "page.html"
    file.write_text(f"{page}<script>{{{script}}}</script>", "utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900")
    own = (f"--user-data-dir={folder / 'profile'}", "--allow-file-access-from-files")
    done = subprocess.run(
        [CHROMIUM, *options, *own, "--dump-dom", file.as_uri()],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    body = re.search(r"<body>(.*?)</body>", done.stdout, re.DOTALL)
    assert body is not None, done.stderr
    return unescape(body[1])


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_tables_are_sorted_by_value_and_restored(tmp_path: Path) -> None:
    rows = [
        ("first", "b", "17", "215 MB", "−19.8 [−20.2, −19.4]"),
        ("", "", "18", "3 GB", "+4.0 [+1.0, +7.0]"),
        ("first", "a", "17", "–", "1 min 04 s"),
        ("", "", "18", "12,500", "> 5.00"),
    ]
    cells = "".join(
        f'<tr class="{kind}">{"".join(f"<td>{cell}</td>" for cell in row)}</tr>' for kind, *row in rows
    )
    heads = '<th>metric</th><th>arm</th><th class="n">size</th><th class="n">change</th>'
    script = files("pgdyno.report").joinpath("report.js").read_text("utf-8")
    page = (
        f'<!doctype html><meta charset="utf-8"><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{cells}</tbody></table></div><script>{script}</script>"
    )
    metric, down, up, restored, change = in_chromium(page, SORTED, tmp_path).split("|")
    assert metric == "a;a;b;b"  # each row has its metric
    assert down == "3 GB;215 MB;12,500;–" and up == "12,500;215 MB;3 GB;–"
    assert restored == "215 MB;3 GB;–;12,500"
    assert change == "1 min 04 s;> 5.00;+4.0 [+1.0, +7.0];−19.8 [−20.2, −19.4]"


POINTED = """
document.querySelectorAll("details").forEach((one) => { one.open = true; });
const picture = document.querySelector("svg.rates"), dots = [...picture.querySelectorAll(".dot.arm1")];
const labels = () => [...picture.querySelectorAll(".middle.small")].map((one) => one.textContent).join(" ");
const dot = dots[1], text = dot.textContent, said = [];
const event = (kind, x, y) => new PointerEvent(kind, { bubbles: true, clientX: x, clientY: y });
const send = (kind, x, y) => picture.dispatchEvent(event(kind, x, y));
const at = (one) => middle(one.getBoundingClientRect());
picture.scrollIntoView({ block: "center" });
const whole = labels();
send("pointermove", ...at(dot));
const shown = document.querySelector(".readout");
const lines = shown.textContent.split("\\n");
said.push([shown.hidden, lines.includes(text), lines.length]);
const [from, to] = [at(dots[1]), at(dots.at(-2))];
send("pointerdown", ...from);
send("pointermove", ...to);
send("pointerup", ...to);
const view = picture.querySelector("line.grid").getBoundingClientRect();
said.push([Math.abs(at(dots[1])[0] - view.left) < 2, Math.abs(at(dots.at(-2))[0] - view.right) < 2]);
const isDot = dots[1].getBoundingClientRect().width < 20;
said.push([text.match(/at ([\\d.]+)/)[1], labels().split(" ")[0], isDot]);
picture.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
said.push([labels() === whole, Math.abs(at(dot)[0] - from[0]) < 1]);
const box = picture.closest("div").previousElementSibling.querySelectorAll("input")[1];
const isDrawn = (arm) => getComputedStyle(picture.querySelector(`polyline.${arm}`)).display !== "none";
said.push([isDrawn("arm0"), isDrawn("arm1")]);
box.click();
said.push([isDrawn("arm0"), isDrawn("arm1")]);
document.body.textContent = JSON.stringify(said);
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_chart_over_time_shows_values_at_the_pointer_zooms_and_hides_arms(tmp_path: Path) -> None:
    page = re.sub("<meta http-equiv[^>]*>", "", page_of_failures())  # it permits no other script
    found = json.loads(in_chromium(page, POINTED, tmp_path))
    readout, view, (at_s, first, is_dot), restored, before, after = found
    assert readout[:2] == [False, True] and readout[2] >= 2  # the arms of the block at this time
    assert view == [True, True] and is_dot
    assert abs(float(at_s) - float(first)) < 1  # the axis begins at the chosen point
    assert restored == [True, True]
    assert before == [True, True] and after == [True, False]


def test_a_dark_page_is_printed_on_white_paper_and_a_heading_stays_with_its_content() -> None:
    style = files("pgdyno.report").joinpath("report.css").read_text("utf-8")
    assert re.findall(r"@media ([^{]*prefers-color-scheme: dark)", style) == [
        "screen and (prefers-color-scheme: dark"
    ]
    printed = style[style.index("@media print {") :]
    assert "--paper: #fff;" in printed and re.search(r"\bh2\b[^}]*break-after: avoid", printed)


LAID_OUT = r"""
document.querySelectorAll("details").forEach((one) => { one.open = true; });
const wide = document.documentElement.scrollWidth - innerWidth;
const found = { wide, broken: [], clipped: [], overlaps: [], tiny: [] };
for (const cell of document.querySelectorAll("td.n")) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const number of texts.currentNode.data.matchAll(/[\d.,]*\d/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, number.index);
      range.setEnd(texts.currentNode, number.index + number[0].length);
      if (range.getClientRects().length > 1) found.broken.push(cell.textContent);
    }
  }
}
for (const one of document.querySelectorAll(".scroll")) {
  if (one.scrollWidth > one.clientWidth) found.clipped.push(one.textContent);
}
for (const picture of document.querySelectorAll("svg:not(.flame)")) {
  const around = picture.getBoundingClientRect();
  const boxes = [...picture.querySelectorAll("text")].map((one) => [one, one.getBoundingClientRect()]);
  boxes.forEach(([one, box], n) => {
    const height = box.height / 4;  // of a line: letters are lower than it
    const isOver = ([, of]) => box.left < of.right - 1 && of.left < box.right - 1
      && box.top + height < of.bottom - height && of.top + height < box.bottom - height;
    const isBeside = box.left < around.left - 1 || box.right > around.right + 1;
    const isBelow = box.bottom > around.bottom + 2;
    const size = parseFloat(getComputedStyle(one).fontSize) * around.width / picture.viewBox.baseVal.width;
    if (size < 7) found.tiny.push(one.textContent);
    if (isBeside || isBelow || boxes.slice(0, n).some(isOver)) found.overlaps.push(one.textContent);
  });
}
document.body.textContent = JSON.stringify(found);
"""
FRAMED = """
addEventListener("load", () => {
  const frames = [...document.querySelectorAll("iframe")];
  document.body.textContent = JSON.stringify(
    frames.map((one) => JSON.parse(one.contentDocument.body.textContent)));
});
"""
A4_WIDTH = 718
"""Width in pixels of a page with the usual margins."""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_page_fits_a_narrow_window_and_paper(tmp_path: Path) -> None:
    """Numbers are whole, texts of charts are legible, inside and apart, and paper shows all of a table."""
    frames = {}
    for name in ("verdict", "factors", "clients", "hosts", "history"):
        shown = history_document(history_of("a change")) if name == "history" else golden(name)
        page = re.sub("<meta http-equiv[^>]*>", "", to_html(shown))  # it permits no other script
        for width in (400, A4_WIDTH, 1920):
            of_width = page.replace("@media print", "@media all") if width == A4_WIDTH else page
            source = escape(f"{of_width}<script>{{{LAID_OUT}}}</script>")
            frames[name, width] = (
                f'<iframe scrolling="no" width="{width}" height="900" srcdoc="{source}"></iframe>'
            )
    outer = f'<!doctype html><meta charset="utf-8">{"".join(frames.values())}'
    every = json.loads(in_chromium(outer, FRAMED, tmp_path))
    for (name, width), found in zip(frames, every, strict=True):
        assert found["wide"] <= 0, (name, width)
        assert found["broken"] == found["overlaps"] == found["tiny"] == [], (name, width, found)
        assert width == 400 or found["clipped"] == [], (name, width, found)


@pytest.mark.parametrize("form", FORMS)
def test_hidden_characters_in_a_name_are_shown_in_every_form(form: str) -> None:
    hidden = "18\x1b[2J\x1b]0;t\x07\u202efaster\u2066\x9b31m"
    built = report_of(replace(FAILURES, names=("17", hidden, "[red]off[/red]")))
    console = VisibleConsole(width=200, file=io.StringIO(), color_system=None)
    if form == "terminal":
        print_terminal(built, console)
        assert isinstance(console.file, io.StringIO)
        found = console.file.getvalue()
    else:
        found = FORMS[form](built)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066]", found)
    assert "faster" in found
    if form == "json":
        assert hidden in [of["arm"]["name"] for of in case_in(json.loads(found))["arms"]]
    else:
        assert "x1b" in found
        assert "u202e" in found
    assert form == "md" or "[red]off[/red]" in found


def test_a_hostile_name_stays_a_name() -> None:
    built = report_of(Synthetic(names=("17", HOSTILE), blocks=5))
    assert HOSTILE in on_terminal(built, 400)
    assert case_in(json.loads(checked_json(built)))["arms"][1]["arm"]["name"] == HOSTILE
    prose = [line for line in to_markdown(built).splitlines() if not line.startswith("    ")]  # but code
    assert "<" not in "\n".join(prose).replace("\\<", "")
    edges = [line.replace("\\|", "").count("|") for line in prose if line.startswith("|")]
    headers = [
        n for n, line in zip(edges, (x for x in prose if x.startswith("|")), strict=True) if "---" in line
    ]
    assert set(edges) == set(headers)


def test_the_same_caveat_of_many_trials_is_shown_a_few_times_and_counted() -> None:
    steals = tuple(Caveat.of("steal", n + 1, arm="18", share=f"{n}%", limit="5%") for n in range(8))
    built = report_of(Synthetic(blocks=6, caveats=steals))
    shown = [caveat.sentence for caveat in only(built).caveats if caveat.code == "cpu-stolen"]
    assert len(shown) == CAVEATS_PER_KIND_MAX + 1
    assert shown[0].startswith("Block 1: ") and shown[-1] == "The same in 5 more trials."


def test_a_message_about_all_arms_of_a_block_is_reported_once() -> None:
    late = tuple(
        Caveat.of("driver-late", trial + 1, arm=name, late_ms=12.3, limit_ms=10)
        for trial, name in enumerate(("17", "18"))
    )
    built = report_of(Synthetic(blocks=6, caveats=late))
    said = [caveat.sentence for caveat in only(built).caveats if caveat.code == "driver-late"]
    trials = {trial.trial: trial.block for trial in only(built).findings.trials}
    assert trials[1] == trials[2] == 0
    assert len(said) == 1 and said[0].startswith("Block 1: ") and "17 and 18" in said[0]


app = typer.Typer()
app.command()(expanded(report))


def test_the_command_prints_the_whole_report_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 400)
    words = set(on_terminal(report_of(Synthetic(blocks=6)), 400).split())
    path = str(written_study(Synthetic(blocks=6)))
    assert words - set(CliRunner().invoke(app, [path, "--full"]).stdout.split()) == set()
    assert len(words - set(CliRunner().invoke(app, [path]).stdout.split())) > 200


def test_in_a_locale_without_them_a_minus_stays_a_minus() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", errors=PLAIN)
    stream.write("−15\u00a0% (−33 … +8), µs ×2 – 日")
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue() == b"-15 % (-33 .. +8), us x2 - ?"


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100])
def test_on_a_narrow_terminal_every_row_still_names_its_arm(width: int) -> None:
    built = report_of(Synthetic(names=("17", "18,shared_buffers=2GB"), blocks=6))
    (levels, *_) = tables_of(built)
    text = on_terminal(built, width).split("Intervals of levels")[0].split(levels.title)[1]
    assert text.count("17 ") >= len(levels.rows) // 2
    for row in levels.rows:
        assert row[3] in text  # no number is wrapped or truncated


def test_a_percentile_that_a_block_lacks_has_no_change() -> None:
    few = report_of(Synthetic(blocks=6, slices=2, rate_per_s=400.0, effects=(1.0, 0.8)))
    (table,) = [table for table in tables_of(few) if table.title.startswith("Change in latency")]
    last = dict(zip(table.columns, next(row for row in table.rows if row[0] == "delivery"), strict=True))
    assert (last["p99"], last["p50"] != "–") == ("–", True)


def test_parts_omitted_from_a_short_name_are_shown_once(tmp_path: Path) -> None:
    directory = "/opt/pg/17/bin"
    wanted = Synthetic(names=("…/17/bin", "18"))
    arms = [replace(arm, spec=directory if arm.arm == 0 else "18") for arm in arms_of(wanted)]
    with Writer.create(tmp_path / "e", study_of(wanted), arms) as writer:
        write_block(writer, wanted, 0, np.random.default_rng(1))
    built = read_report(tmp_path / "e")
    for form in ("terminal", "md", "html"):
        assert plain(FORMS[form](built)).count(directory) == 1, form


def test_a_name_is_broken_where_it_hurts_least() -> None:
    name = "…/15/bin,synchronous_commit=off"
    assert _broken(name, 22).split("\n") == ["…/15/bin,", "synchronous_commit=off"]
    assert _broken(name, 13).split("\n") == ["…/15/bin,", "synchronous_", "commit=off"]
    assert _broken(name, 9).split("\n") == ["…/15/bin,", "synchronous_commit=off"]  # folded by the table


@pytest.mark.parametrize("blocks", [2, 4])
def test_an_undecided_headline_has_the_change_of_the_table(blocks: int) -> None:
    """With few blocks the headline had −24% and the table −20 [−80, +140]."""
    built = report_of(Synthetic(blocks=blocks, noise=0.2))
    level = next(table for table in tables_of(built) if table.title.startswith("Throughput"))
    in_table = level.rows[1][5].partition(" [")[0]
    assert "[" in level.rows[1][5]
    assert only(built).headlines[0].claim.endswith(f" {in_table}%")


def test_the_first_screen_has_the_attempts_and_the_error_of_an_arm_that_never_succeeded() -> None:
    never = Synthetic(blocks=5, slices=2, failed_per_slice=7, stalled=[(block, 0) for block in range(5)])
    (line,) = answer.failures(only(report_of(never)).findings)
    assert "17 succeeded in 70 attempts, SQLSTATE 40001: could not serialize" in line


@pytest.mark.parametrize(
    ("requested", "first"),
    [
        ({}, ["shared_buffers", "max_wal_size"]),
        ({"log_statement": "all"}, ["log_statement", "shared_buffers"]),
    ],
)
def test_settings_that_affect_throughput_most_are_shown_first(
    monkeypatch: pytest.MonkeyPatch, requested: dict[str, str], first: list[str]
) -> None:
    """On running servers no setting is requested: shared_buffers was among six more settings."""
    findings = only(report_of(Synthetic(blocks=2, settings=requested, versions=("17.1", "17.2")))).findings
    names = ["autovacuum_naptime", "commit_timestamp_buffers", "log_statement", "max_wal_size"]
    rows = [[name, "1", "2"] for name in [*names, "shared_buffers", "work_mem"]]
    monkeypatch.setattr(background, "differing_settings", lambda _: rows)
    *shown, more = answer.differences(findings)
    settings = [line.split()[0] for line in shown[-answer.SETTINGS_MAX :]]
    assert settings[:2] == first and "commit_timestamp_buffers" not in settings
    assert more.startswith("2 more")


SETTINGS_OF_VERSIONS = json.loads(
    (Path(__file__).parents[1] / "data" / "settings_by_version.json").read_text("utf-8")
)


def differs(*versions: str, requested: dict[str, str] | None = None, provider: str = "embedded") -> list[str]:
    """Return the differences of arms of these versions with their default settings, and requested ones."""
    found = only(report_of(Synthetic(blocks=2, names=versions, effects=(1.0,) * len(versions)))).findings
    settings = []
    for version in versions:
        values = zip(SETTINGS_OF_VERSIONS["names"], SETTINGS_OF_VERSIONS[version], strict=True)
        own = requested if requested and version == versions[-1] else {}
        settings.append({"work_mem": "4MB", **{name: of for name, of in values if of is not None}, **own})
    trials = [replace(trial, settings=settings[trial.arm]) for trial in found.trials]
    arms = [
        replace(
            of,
            arm=replace(
                of.arm,
                server={**of.arm.server, "provider": provider},
                settings_requested=requested or {} if i == len(found.arms) - 1 else {},
            ),
        )
        for i, of in enumerate(found.arms)
    ]
    return answer.differences(replace(found, trials=trials, arms=arms))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (
            ("17", "18"),
            [
                "by default: data_checksums off → on, effective_io_concurrency 1 → 16, "
                "maintenance_io_concurrency 10 → 16",
                "only in 18: io_method worker, io_workers 3, enable_distinct_reordering on, "
                "enable_self_join_elimination on",
            ],
        ),
        (
            ("18", "17"),
            [
                "by default: data_checksums on → off, effective_io_concurrency 16 → 1, "
                "maintenance_io_concurrency 16 → 10"
            ],
        ),
        (
            ("18", "19"),
            [
                "only in 18: io_workers 3",
                "only in 19: io_min_workers 2, io_max_workers 8",
                "by default: jit on → off, default_toast_compression pglz → lz4, log_lock_waits off → on, "
                "max_locks_per_transaction 64 → 128",
            ],
        ),
        (("14", "15"), ["by default: hash_mem_multiplier 1 → 2, log_checkpoints off → on"]),
        (
            ("16", "17"),
            ["by default: vacuum_buffer_usage_limit 256kB → 2MB", "only in 17: io_combine_limit 128kB"],
        ),
        (
            ("17", "18", "19"),
            ["only in 18 and 19: io_method worker", "by default: data_checksums off | on | on"],
        ),
    ],
)
def test_defaults_that_a_major_version_changes_are_told_apart(
    versions: tuple[str, ...], expected: list[str]
) -> None:
    found = differs(*versions)
    assert found[0].startswith("PostgreSQL ")
    assert [one for one in expected if not any(of.startswith(one) for of in found)] == [], found
    assert not any("ssl_" in one or "archive_library" in one for one in found)


def test_a_requested_setting_is_no_default_and_a_running_server_may_have_set_any() -> None:
    found = differs("17", "18", requested={"work_mem": "64MB", "effective_io_concurrency": "200"})
    assert "work_mem 4MB → 64MB" in found and "effective_io_concurrency 1 → 200" in found
    assert "by default: data_checksums off → on, maintenance_io_concurrency 10 → 16" in found
    running = differs("17", "18", provider="dsn")
    assert not any("by default" in one or "only in" in one for one in running)
    assert "data_checksums off → on" in running and "io_method – → worker" in running


def test_a_section_of_a_feature_follows_the_section_that_it_names() -> None:
    sections = [Section("levels"), Section("method")]
    further = [Section("a", after="levels"), Section("b", after="none"), Section("c", after="levels")]
    assert [one.id for one in placed(sections, further)] == ["levels", "a", "c", "method", "b"]


ROOT = Path(__file__).parents[2]
CASE = Synthetic(effects=(1.0, 1.1), blocks=5)


@pytest.fixture(scope="module")
def findings() -> StudyFindings:
    return report_of(CASE).findings


@pytest.fixture(scope="module")
def found(findings: StudyFindings) -> Any:
    return json.loads(checked_json(build_study(findings)))


@pytest.mark.parametrize(
    "changed",
    [
        {"unknown": 1},
        {"title": 1},
        {"gate": "passed"},
        {"verdicts": None},
        {"pgdyno_report": 2},
        {"more": {}},
    ],
    ids=str,
)
def test_a_different_document_does_not_match_the_schema(found: Any, changed: dict[str, Any]) -> None:
    assert list(mismatches(found | changed, the_schema()))


def test_every_key_of_the_schema_is_required(found: Any) -> None:
    parts = the_schema()["$defs"]
    assert set(parts["StudyDocument"]["required"]) == set(found)
    assert not [
        name for name, of in parts.items() if set(of.get("required", ())) != set(of.get("properties", ()))
    ]


def test_numbers_that_json_does_not_have_become_null(findings: StudyFindings) -> None:
    host = {"nan": math.nan, "inf": [np.float64("inf")], "cores": np.int64(2), "\udc80": "\udc80"}
    study = replace(findings.first.study, host=host, ended_unix_s=math.inf)
    odd = replace(findings, cases=[replace(findings.first, study=study)])
    found = case_in(json.loads(to_json(replace(build_study(findings), findings=odd))))["study"]
    assert found["host"] == {"nan": None, "inf": [None], "cores": 2, "\udc80": "\udc80"}
    assert found["ended_unix_s"] is None


def test_a_latency_with_only_a_known_bound_is_marked() -> None:
    wanted = Synthetic(blocks=5, slices=2, fixed_rate_per_s=3000.0, skipped=(0.0, 0.6))
    whole, overloaded = case_in(json.loads(checked_json(report_of(wanted))))["arms"]
    assert whole["lower_bounds"] == {}
    bounds = overloaded["lower_bounds"]
    assert bounds["latency.payment.p99"] == overloaded["latency_ms"]["payment"]["p99"]
    assert bounds["median_latency"] == pytest.approx(SKIPPED_AFTER_NS / 1e6)
    assert overloaded["levels"]["median_latency"] is None


def test_every_definition_has_a_description() -> None:
    parts = the_schema()["$defs"]
    assert len(parts) > 50
    assert not [name for name, part in parts.items() if not part.get("description")]


def test_a_file_of_several_cases_matches_the_schema() -> None:
    built = report_of(*(replace(CASE, levels={"clients": str(n)}) for n in (4, 8)))
    found = json.loads(checked_json(built))
    assert len(found["study"]["cases"]) == 2 and next(iter(found["sentences"]["clients 8"])) == "answer"


def test_caveats_of_a_feature_join_those_of_the_core() -> None:
    caveat = ShownCaveat("steal", Rank.CHANGES_ANSWER, "Some text.")
    report = case_report(report_of(Synthetic()).findings.first, [Section("caveats", caveats=[caveat])])
    assert [section.id for section in report.sections].count("caveats") == 1
    assert caveat in report.caveats and len(report.caveats) > 1
