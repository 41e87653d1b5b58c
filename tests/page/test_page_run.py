"""The page of a run in a browser: its command, details, downloads, narrow and dark windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from looks import NARROW, too_pale, wider_than_the_window
from pages_server import Served
from playwright.sync_api import BrowserContext, Page, expect
from synthetic_study import Synthetic, write_study

from pgdyno.cli.report import read_report
from pgdyno.features.serve.index import identifier
from pgdyno.features.serve.pages import PAINT_BYTES_MAX
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown

CASES = 8
LONG = "a" * 150


@pytest.fixture(scope="module")
def directory(directory: Path) -> Path:
    write_study(directory / "small.sqlite", Synthetic(effects=(1.0, 1.2), blocks=6))
    cases = [Synthetic(blocks=4, levels={"clients": str(n)}, probed=True) for n in range(1, CASES + 1)]
    write_study(directory / "large.sqlite", *cases)
    write_study(directory / "long.sqlite", Synthetic(blocks=4, title=LONG, names=("17", LONG)))
    return directory


def run_of(served: Served, name: str) -> str:
    return f"{served.origin}/run/{identifier(served.directory, served.directory / name)}"


@pytest.fixture
def small(page: Page, served: Served) -> Page:
    page.goto(run_of(served, "small.sqlite"))
    return page


@pytest.fixture
def large(page: Page, served: Served) -> Page:
    page.goto(run_of(served, "large.sqlite"))
    return page


def test_the_command_is_copied(small: Page, context: BrowserContext, directory: Path) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    small.get_by_role("button", name="Copy command").click()
    expect(small.get_by_role("button", name="Copied")).to_be_visible()
    command = read_report(directory / "small.sqlite").command
    assert small.evaluate("() => navigator.clipboard.readText()") == command


def test_a_download_is_the_report_in_its_form(small: Page, directory: Path) -> None:
    of = read_report(directory / "small.sqlite")
    texts = {
        "One-file HTML": to_html(of),
        "Markdown": to_markdown(of),
        "CSV": of.csv(),
        "JSON": to_json(of, ()),
    }
    small.get_by_text("Save as").click()
    for button, text in texts.items():
        with small.expect_download() as found:
            small.get_by_role("link", name=button, exact=True).click()
        assert found.value.suggested_filename.startswith("small.")
        assert Path(found.value.path()).read_bytes() == text.encode(), button


def test_a_downloaded_report_needs_neither_server_nor_network(
    small: Page, tmp_path: Path, faults: list[str]
) -> None:
    small.get_by_text("Save as").click()
    with small.expect_download() as found:
        small.get_by_role("link", name="One-file HTML").click()
    found.value.save_as(tmp_path / "report.html")
    small.goto((tmp_path / "report.html").as_uri())
    expect(small.get_by_role("heading", level=1)).to_contain_text("faster")
    small.get_by_role("columnheader").get_by_role("button").first.click()
    faults[:] = [one for one in faults if "file://" not in one]  # the page itself is no request to a server


def test_details_of_a_large_report_are_loaded_on_demand(large: Page, directory: Path) -> None:
    assert len(to_html(read_report(directory / "large.sqlite"))) > PAINT_BYTES_MAX
    all_details = large.get_by_role("link", name="All details")
    expect(all_details).to_have_count(1)
    before = large.get_by_role("heading", level=2).count()
    all_details.scroll_into_view_if_needed()
    expect(all_details).to_have_count(0)
    assert large.get_by_role("heading", level=2).count() > before
    button = large.locator(".scroll > table th button")
    button.first.click()
    expect(large.locator("th[aria-sort]").first).to_be_visible()


def test_the_link_to_details_does_not_need_a_script(large: Page) -> None:
    large.goto(large.url + "/rest")
    expect(large.get_by_role("heading", level=2).first).to_be_visible()


def test_the_run_leads_to_its_second_by_second_page_and_back(small: Page, served: Served) -> None:
    small.get_by_role("link", name="Second by second").click()
    expect(small.get_by_role("heading", level=1)).to_have_text("test data, never measured")
    small.get_by_role("link", name="The study has ended: open its report").click()
    expect(small).to_have_url(run_of(served, "small.sqlite"))
    small.get_by_role("link", name="All runs").click()
    expect(small.locator("table.runs tbody tr")).to_have_count(3)


@pytest.mark.parametrize("name", ["small.sqlite", "large.sqlite", "long.sqlite"])
def test_a_narrow_window_scrolls_down_only(page: Page, served: Served, name: str) -> None:
    page.set_viewport_size(NARROW)
    page.goto(run_of(served, name))
    if name == "large.sqlite":
        page.get_by_role("link", name="All details").scroll_into_view_if_needed()
        expect(page.get_by_role("link", name="All details")).to_have_count(0)
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert not wider_than_the_window(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(page: Page, served: Served, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(run_of(served, "small.sqlite"))
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert not too_pale(page)
