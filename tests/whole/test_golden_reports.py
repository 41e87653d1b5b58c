"""Reports equal their golden files exactly; ``make golden`` renews these (golden_reports.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_reports import (
    DIFFERENCE_LINES_MAX,
    FOLDER,
    SIZE_BYTES_MAX,
    STUDIES,
    caveats,
    difference,
    explanations,
    gates,
    headlines,
    history,
    reports,
    require_golden,
    rounded_json,
    sections,
    study_file_errors,
    text_of_html,
)


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_is_its_golden_file_in_every_form(tmp_path: Path, name: str) -> None:
    require_golden(reports(name, tmp_path))


def test_every_summary_fits_a_terminal_of_24_lines() -> None:
    for path in FOLDER.glob("*.summary.txt"):
        lines = path.read_text("utf-8").splitlines()
        if any(", here" in line for line in lines):
            continue  # published tables are never cut
        # One line is for the prompt, and one for the name of the results file.
        assert len(lines) <= 22 and max(map(len, lines)) <= 80, path.name


def test_the_headline_of_every_verdict_is_its_golden_text(tmp_path: Path) -> None:
    require_golden({"headlines.txt": headlines(tmp_path)})


def test_the_sentences_of_every_section_are_their_golden_text(tmp_path: Path) -> None:
    require_golden({"sections.txt": sections(tmp_path)})


def test_explanations_are_their_golden_text(tmp_path: Path) -> None:
    require_golden({"explanations.txt": explanations(tmp_path)})


def test_the_outcomes_of_gates_are_their_golden_text(tmp_path: Path) -> None:
    require_golden({"gates.txt": gates(tmp_path)})


def test_the_sentences_of_histories_are_their_golden_text(tmp_path: Path) -> None:
    require_golden({"history.txt": history(tmp_path)})


def test_every_caveat_is_its_golden_text() -> None:
    require_golden({"caveats.txt": caveats()})


def test_the_errors_of_study_files_are_their_golden_text() -> None:
    require_golden({"study_file_errors.txt": study_file_errors()})


def test_every_golden_file_is_small_and_belongs_to_a_study() -> None:
    names = {
        "headlines",
        "sections",
        "explanations",
        "gates",
        "history",
        "caveats",
        "study_file_errors",
        *STUDIES,
    }
    for path in FOLDER.glob("*.*"):
        assert path.name.partition(".")[0] in names, f"{path}: renew with make golden"
        assert path.stat().st_size <= SIZE_BYTES_MAX, path


def test_a_difference_is_short_and_names_the_command() -> None:
    shown = difference("a\nb\n", "a\nc\n" + "d\n" * 99, "x.txt").splitlines()
    assert "make golden" in shown[0] and shown[4:7] == [" a", "-b", "+c"]
    assert shown[-1] == "…" and len(shown) == DIFFERENCE_LINES_MAX + 2


def test_numbers_are_rounded_and_charts_omitted() -> None:
    assert rounded_json('{"a": [1.23456789, 2], "b": {"c": null}}') == (
        '{\n "a": [1.2346, 2],\n "b": {"c": null}\n}\n'
    )
    page = '<p>one <a href="x.html">two</a></p><svg><text>3</text></svg><td>4</td><td>5</td>'
    assert text_of_html(page) == "one two (x.html)\n4 | 5\n"
