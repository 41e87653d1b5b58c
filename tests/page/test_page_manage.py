"""Forms in a browser, which send the Origin that their server requires: tags, names, deletion, studies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from looks import NARROW, too_pale, wider_than_the_window
from pages_server import Served
from playwright.sync_api import Page, expect
from synthetic_study import QuickWriter, Synthetic, arms_of, study_of, write_block, write_study

from pgdyno.features.serve.index import identifier
from pgdyno.features.serve.stop import request_of

NAMES = ("tagged", "renamed", "deleted", "plain")


@pytest.fixture(scope="module")
def directory(directory: Path) -> Path:
    for name in NAMES:
        write_study(directory / f"{name}.sqlite", Synthetic(effects=(1.0, 1.2), blocks=6, title="Nightly"))
    return directory


def run_of(served: Served, name: str) -> str:
    return f"{served.origin}/run/{identifier(served.directory, served.directory / f'{name}.sqlite')}"


def test_tags_are_saved_and_filter_the_list(page: Page, served: Served) -> None:
    page.goto(run_of(served, "tagged"))
    page.get_by_role("link", name="Manage").click()
    page.get_by_label("Tags, separated by commas").fill("weekly, <b>x</b>")
    page.get_by_role("button", name="Save tags").click()
    expect(page.get_by_label("Tags, separated by commas")).to_have_value("weekly, <b>x</b>")
    page.get_by_role("link", name="All runs").click()
    page.locator("select[name=tag]").select_option("weekly")
    expect(page.locator("table.runs tbody .file")).to_have_text(["tagged.sqlite"])
    expect(page.locator("tbody").get_by_text("<b>x</b>")).to_be_visible()


def test_a_file_is_renamed(page: Page, served: Served) -> None:
    page.goto(f"{run_of(served, 'renamed')}/manage")
    page.get_by_label("Name, without .sqlite").fill("another <name>")
    page.get_by_role("button", name="Rename").click()
    expect(page).to_have_url(f"{run_of(served, 'another <name>')}/manage")
    expect(page.get_by_text("another <name>.sqlite", exact=True).first).to_be_visible()
    assert (served.directory / "another <name>.sqlite").exists()


def test_a_file_is_deleted_only_with_its_confirmation(page: Page, served: Served) -> None:
    path = served.directory / "deleted.sqlite"
    page.goto(f"{run_of(served, 'deleted')}/manage")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("checkbox", name="Delete deleted.sqlite")).to_be_focused()  # by the browser
    assert path.exists()
    page.get_by_role("checkbox", name="Delete deleted.sqlite").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Runs")
    assert not path.exists()


def test_a_new_study_that_is_refused_keeps_its_form(page: Page, served: Served) -> None:
    page.goto(served.origin)
    page.get_by_role("link", name="New study").click()
    page.get_by_label("Arms, one per line").fill("18\n/usr/bin")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Arms, one per line")).to_have_value("18\n/usr/bin")
    expect(page.get_by_role("button", name="Start")).to_have_count(0)


@pytest.fixture
def running(directory: Path) -> Iterator[Path]:
    path, wanted = directory / "running.sqlite", Synthetic(blocks=20, ended=None)
    with QuickWriter.create(path, study_of(wanted), arms_of(wanted)) as writer:
        write_block(writer, wanted, 0, np.random.default_rng(1))
        yield path


def test_a_running_study_is_asked_to_stop(page: Page, served: Served, running: Path) -> None:
    page.goto(served.origin)
    page.get_by_role("row").filter(has=page.get_by_text("running.sqlite")).locator("th a").first.click()
    page.get_by_role("button", name="Stop after this block").click()
    expect(page.locator("#chip")).to_have_text("stopping")
    expect(page.get_by_role("button", name="Stop after this block")).to_be_hidden()
    assert request_of(running).exists()


def test_the_chart_is_saved_as_an_image(page: Page, served: Served) -> None:
    page.goto(run_of(served, "plain"))
    with page.expect_download() as found:
        page.get_by_role("button", name="PNG").click()
    assert Path(found.value.path()).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["manage", "history", "new"])
def test_pages_fit_a_narrow_window_and_have_enough_contrast(
    page: Page, served: Served, place: str, scheme: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(NARROW)
    page.goto(f"{served.origin}/new" if place == "new" else f"{run_of(served, 'plain')}/{place}")
    expect(page.locator("main :is(h1, h2)").first).to_be_visible()
    assert not wider_than_the_window(page) and not too_pale(page)
