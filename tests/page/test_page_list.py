"""The list of runs in a browser: search, filter, order, runs side by side, the keyboard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from looks import NARROW, too_pale, wider_than_the_window
from pages_server import Served
from playwright.sync_api import Browser, Locator, Page, expect
from synthetic_study import CREATED_UNIX_S, Synthetic, write_study

from pgdyno.caveats import Caveat

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\x1b[2J"
"""HTML, quotes, a bidirectional override and an escape sequence."""

SHOWN = "<img src=x onerror=alert(1)>\"'&\\u202e\\x1b[2J"
LONG = "a" * 150
EFFECTS = {"faster": 1.2, "slower": 0.5, "equal": 1.0}


@pytest.fixture(scope="module")
def directory(directory: Path) -> Path:
    for day, (title, effect) in enumerate(EFFECTS.items()):
        caveats = [Caveat.of("shared-machine", cores=2)] * (effect < 1)
        created = CREATED_UNIX_S + 86_400 * day
        wanted = Synthetic(
            effects=(1.0, effect), blocks=6, title=title, created_unix_s=created, caveats=caveats
        )
        write_study(directory / f"{title}.sqlite", wanted)
    (directory / "below").mkdir()
    hostile = Synthetic(
        blocks=4, title=HOSTILE, names=("</script>", f"\u2066{HOSTILE}"), created_unix_s=CREATED_UNIX_S - 1
    )
    write_study(directory / "below" / f"{HOSTILE}.sqlite", hostile)
    write_study(
        directory / f"{LONG}.sqlite",
        Synthetic(blocks=4, title=f"{LONG} {LONG}", names=("17", LONG), created_unix_s=1e9),
    )
    (directory / "other.sqlite").write_text("no database")
    return directory


@pytest.fixture
def runs(page: Page, served: Served) -> Page:
    """The list, all of whose files are analyzed."""
    page.goto(served.origin)
    expect(page.get_by_text("5 of 5 files.", exact=True)).to_be_visible()
    return page


def titles(page: Page) -> Locator:
    return page.locator("table.runs tbody th a:not(.manage)")


FIVE = ["equal", "slower", "faster", SHOWN, f"{LONG} {LONG}"]


def test_the_search_finds_while_it_is_typed_and_keeps_its_address(runs: Page) -> None:
    search = runs.get_by_role("searchbox")
    search.press_sequentially("SLOW")
    expect(titles(runs)).to_have_text(["slower"])
    expect(runs).to_have_url(re.compile("q=SLOW"))
    expect(search).to_be_focused()
    runs.reload()
    expect(titles(runs)).to_have_text(["slower"])
    search.fill("nothing has this name")
    expect(runs.get_by_text("No file matches.")).to_be_visible()
    search.fill("")
    expect(titles(runs)).to_have_text(FIVE)


def test_the_list_is_filtered_by_verdict(runs: Page) -> None:
    runs.get_by_label("Verdict").select_option("faster")
    expect(titles(runs)).to_contain_text(["faster"])
    expect(runs.locator("tbody .chip.v-slower")).to_have_count(0)
    runs.go_back()
    expect(titles(runs)).to_have_text(FIVE)


def test_columns_sort_in_both_directions_and_keep_the_search(runs: Page) -> None:
    runs.get_by_role("searchbox").fill("er.sqlite")
    expect(titles(runs)).to_have_text(["slower", "faster"])
    for heading, first in [
        ("Effect", "slower"),
        ("Effect", "faster"),
        ("Study", "faster"),
        ("Study", "slower"),
    ]:
        runs.get_by_role("columnheader", name=heading).get_by_role("link").click()
        expect(titles(runs).first).to_have_text(first)
    expect(runs.get_by_role("columnheader", name="Study")).to_have_attribute("aria-sort", "descending")
    expect(runs.get_by_role("searchbox")).to_have_value("er.sqlite")


def test_two_ticked_runs_are_side_by_side(runs: Page) -> None:
    for title in ("faster", "slower"):
        runs.get_by_role("checkbox", name=f"Select {title}, {title}.sqlite").check()
    runs.get_by_role("button", name="side by side").click()
    expect(runs.get_by_text("Weak evidence:")).to_be_visible()
    expect(runs.get_by_role("link", name=".sqlite")).to_have_text(["slower.sqlite", "faster.sqlite"])
    runs.get_by_role("link", name="slower.sqlite").click()
    expect(runs.get_by_text("shared", exact=False).first).to_be_visible()


def test_one_ticked_run_is_refused_with_the_remedy(runs: Page, faults: list[str]) -> None:
    runs.get_by_role("checkbox").first.check()
    runs.get_by_role("button", name="side by side").click()
    expect(runs.get_by_role("alert")).to_contain_text("tick at least two")
    faults[:] = [one for one in faults if "422" not in one]


def test_ticks_survive_a_search(runs: Page) -> None:
    runs.get_by_role("checkbox", name="Select slower, slower.sqlite").check()
    runs.get_by_role("searchbox").fill("slower")
    expect(titles(runs)).to_have_text(["slower"])
    expect(runs.get_by_role("checkbox")).to_be_checked()


def test_hostile_names_are_text_with_their_hidden_characters_shown(runs: Page) -> None:
    row = runs.get_by_role("row").filter(has=runs.get_by_text(f"below/{SHOWN}.sqlite", exact=True))
    expect(row.locator("th a").first).to_have_text(SHOWN)
    expect(runs.locator("main img")).to_have_count(0)
    row.locator("th a").first.click()
    expect(runs.get_by_role("heading", level=1).first).to_contain_text("\\u2066<img src=x onerror=alert(1)>")
    expect(runs.locator("main img")).to_have_count(0)
    assert runs.evaluate("() => !/[\\u202e\\u2066\\x1b]/.test(document.documentElement.outerHTML)")


def test_the_keyboard_alone_searches_ticks_and_compares(runs: Page) -> None:
    keyboard, focused = runs.keyboard, runs.locator(":focus")
    keyboard.press("Tab")
    expect(focused).to_have_text("Skip to content")
    expect(focused).to_be_in_viewport()
    keyboard.press("Enter")
    keyboard.press("Tab")
    expect(focused).to_have_attribute("type", "search")
    keyboard.type("er.sqlite")
    expect(titles(runs)).to_have_text(["slower", "faster"])
    ticked = 0
    for _ in range(40):
        keyboard.press("Tab")
        assert runs.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"
        if focused.get_attribute("type") == "checkbox":
            keyboard.press("Space")
            ticked += 1
        if "side by side" in focused.inner_text():
            break
    assert ticked == 2
    keyboard.press("Enter")
    expect(runs.get_by_text("Weak evidence:")).to_be_visible()


def test_a_narrow_window_scrolls_down_only(runs: Page, faults: list[str]) -> None:
    runs.set_viewport_size(NARROW)
    expect(titles(runs)).to_have_text(FIVE)
    assert not wider_than_the_window(runs)
    for title, shown in [(SHOWN, "no arm with the same specification"), ("faster", "Weak evidence:")]:
        runs.goto(runs.url.partition("side-by-side")[0])
        for one in (title, f"{LONG} {LONG}"):
            runs.get_by_role("checkbox", name=f"Select {one}").check()
        runs.get_by_role("button", name="side by side").click()
        expect(runs.get_by_text(shown)).to_be_visible()
        assert not wider_than_the_window(runs)
    faults[:] = [one for one in faults if "422" not in one]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(runs: Page, scheme: str) -> None:
    runs.emulate_media(color_scheme=scheme)
    assert not too_pale(runs)
    for title in ("faster", "slower"):
        runs.get_by_role("checkbox", name=f"Select {title}, ").check()
    runs.get_by_role("button", name="side by side").click()
    expect(runs.get_by_text("Weak evidence:")).to_be_visible()
    assert not too_pale(runs)


def test_without_scripts_the_list_is_complete(browser: Browser, served: Served, runs: Page) -> None:
    context = browser.new_context(java_script_enabled=False, storage_state=runs.context.storage_state())
    page = context.new_page()
    page.goto(served.origin)
    page.get_by_role("searchbox").fill("slower")
    page.get_by_role("button", name="Search").click()
    expect(titles(page)).to_have_text(["slower"])
    context.close()
