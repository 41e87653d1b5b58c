"""Reports equal their golden files exactly; ``make golden`` renews these (golden_reports.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_reports import FOLDER, SIZE_BYTES_MAX, STUDIES, TEXTS, reports, require_golden


@pytest.mark.parametrize("name", STUDIES)
def test_a_report_is_its_golden_file_in_every_form(tmp_path: Path, name: str) -> None:
    require_golden(reports(name, tmp_path))


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_its_golden_file(tmp_path: Path, name: str) -> None:
    require_golden({f"{name}.txt": TEXTS[name](tmp_path)})


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
