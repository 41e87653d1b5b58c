"""``pgdyno docs``: every page and section to which a caveat refers can be printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgdyno.caveats import Severity, wordings
from pgdyno.cli.main import run_command
from pgdyno.report.document import ShownCaveat

LINKS = sorted({of.link for of in wordings().values() if of.link})


def test_every_link_of_a_caveat_is_printed_as_a_report_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    for link in LINKS:
        shown = ShownCaveat("code", Severity.LOW, "Text.", "Remedy.", link)
        assert run_command(shown.more.split()[1:]) == 0
        text = capsys.readouterr().out
        assert text.startswith("#") and len(text.splitlines()) > 1, link


@pytest.mark.parametrize("page", ["noise", "explanation/noise", "docs/explanation/noise.md"])
def test_a_page_has_several_names(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["docs", page]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_without_a_page_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["docs"]) == 0
    assert "reference/gates: " in capsys.readouterr().out


@pytest.mark.parametrize("page", ["nothing", "noise#nothing", ""])
def test_an_unknown_page_or_section_is_an_error(page: str, refusal: Callable[..., str]) -> None:
    assert refusal(["docs", page]).startswith(f"pgdyno: {page}: ")
