"""Forms of pages in a browser, with and without JavaScript: tags, names, deletion, new studies, the stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from looks import NARROW, too_pale, wider_than_the_window
from pages_server import Served, let_in
from playwright.sync_api import Browser, BrowserContext, Page, expect
from synthetic_study import QuickWriter, Synthetic, arms_of, study_of, write_study

from pgdyno.features.serve import stop
from pgdyno.features.serve.index import identifier
from pgdyno.features.serve.tags import tags_of

HOSTILE = """<img src=x onerror=alert(1)>"'&.sqlite"""


@pytest.fixture(scope="module")
def directory(directory: Path) -> Path:
    for name in ("tagged.sqlite", "renamed.sqlite", "deleted.sqlite", HOSTILE):
        write_study(directory / name, Synthetic(effects=(1.0, 1.2), blocks=6))
    return directory


def address(served: Served, name: str, page: str) -> str:
    return f"{served.origin}/{page.format(identifier(served.directory, served.directory / name))}"


@pytest.fixture
def plain(browser: Browser, served: Served) -> Page:
    """A page without JavaScript, but for the entry with the token."""
    context = browser.new_context(java_script_enabled=False)
    let_in(context, served)
    return context.new_page()


def test_tags_are_saved_without_javascript_and_by_keyboard(
    plain: Page, served: Served, directory: Path
) -> None:
    plain.goto(address(served, "tagged.sqlite", "run/{}/manage"))
    plain.get_by_label("Tags, separated by commas").fill("nightly, <b>x</b>")
    plain.keyboard.press("Enter")
    expect(plain.get_by_label("Tags, separated by commas")).to_have_value("nightly, <b>x</b>")
    assert tags_of(directory / "tagged.sqlite") == ["nightly", "<b>x</b>"]
    plain.goto(served.origin)
    plain.get_by_role("link", name="<b>x</b>").click()
    expect(plain.get_by_text("1 of 4 files")).to_be_visible()


def test_a_file_is_renamed(page: Page, served: Served, directory: Path) -> None:
    page.goto(address(served, "renamed.sqlite", "run/{}/manage"))
    page.get_by_label("Name, without .sqlite").fill("""it's "new" """)
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("""Manage it's "new".sqlite""")
    assert (directory / """it's "new".sqlite""").exists()
    assert not (directory / "renamed.sqlite").exists()


def test_a_file_is_deleted_only_with_the_box_ticked(page: Page, served: Served, directory: Path) -> None:
    page.goto(address(served, "deleted.sqlite", "run/{}/manage"))
    page.get_by_role("button", name="Delete").click()
    assert page.url.endswith("/manage") and (directory / "deleted.sqlite").exists()
    page.get_by_label("Delete deleted.sqlite").check()
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url(f"{served.origin}/")
    assert not (directory / "deleted.sqlite").exists()


def test_a_form_of_another_site_changes_nothing(
    context: BrowserContext, served: Served, directory: Path, faults: list[str]
) -> None:
    page = context.new_page()
    page.route("**/favicon.ico", lambda one: one.fulfill(status=204))  # a text has no icon of its own
    target = address(served, "tagged.sqlite", "run/{}/tags")
    page.set_content(f'<form method="post" action="{target}"><input name="tags" value="evil"><button>x')
    before = tags_of(directory / "tagged.sqlite")
    with page.expect_navigation():
        page.get_by_role("button").click()
    expect(page.get_by_text("has no access")).to_be_visible()
    assert tags_of(directory / "tagged.sqlite") == before
    faults[:] = [one for one in faults if "403" not in one]


def test_a_running_study_is_asked_to_stop(page: Page, served: Served, directory: Path) -> None:
    path, wanted = directory / "running.sqlite", Synthetic(ended=None)
    with QuickWriter.create(path, study_of(wanted), arms_of(wanted)):
        page.goto(served.origin)
        listed = page.get_by_text("running.sqlite", exact=True)
        while not listed.count():  # a new file is found within SCAN_S
            page.reload()
        expect(listed).to_be_visible()
        page.goto(address(served, "running.sqlite", "live/{}"))
        page.get_by_role("button", name="Stop after this block").click()
        expect(page.get_by_text("The study stops as after Ctrl-C")).to_be_visible()
        expect(page.get_by_role("button", name="Stop after this block")).to_be_hidden()
        assert stop.request_of(path).read_text() == f"{os.getpid()}\n"
        stop.request_of(path).unlink()
        expect(page.get_by_role("button", name="Stop after this block")).to_be_visible()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    expect(page.get_by_role("button", name="Extend")).to_be_visible()


def test_the_plan_of_a_new_study_is_shown_before_its_start(plain: Page, served: Served) -> None:
    plain.goto(f"{served.origin}/new")
    plain.get_by_label("Arms, one per line").fill("15\ngit:master")
    plain.get_by_role("button", name="Show the plan").click()
    expect(plain.get_by_role("alert")).to_contain_text("begins with a version")
    plain.get_by_label("Arms, one per line").fill("15\nlow=15,work_mem=1MB")
    plain.get_by_role("button", name="Show the plan").click()
    expect(plain.get_by_text("pgdyno compare 15 low=15,work_mem=1MB")).to_be_visible()
    expect(plain.get_by_role("button", name="Start")).to_be_visible()


def test_the_chart_is_saved_as_png(page: Page, served: Served) -> None:
    page.goto(address(served, "tagged.sqlite", "run/{}"))
    page.get_by_text("Save as").click()
    with page.expect_download() as found:
        page.get_by_role("button", name="PNG").click()
    assert Path(found.value.path()).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "place", ["run/{}/manage", "run/{}/history", "live/{}", "new", "new?arms=15%0Agit:x", ""]
)
def test_pages_with_forms_fit_a_narrow_window_and_are_legible(
    page: Page, served: Served, place: str, scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size(NARROW)
    page.goto(address(served, HOSTILE, place))
    assert not wider_than_the_window(page) and not too_pale(page)
