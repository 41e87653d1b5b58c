"""Explore in a browser: one crosshair, zoom, deep links, keyboard, and every width and color scheme."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from looks import NARROW, too_pale, wider_than_the_window
from pages_server import Served
from playwright.sync_api import Page, expect
from synthetic_study import Synthetic, write_study

from pgdyno.features.serve.index import identifier

HOSTILE = "</script><img src=x onerror=alert(1)>"
PROBED = Synthetic(effects=(1.0, 1.2), names=("17", HOSTILE), blocks=3, slices=10, probed=True)
VALUES = re.compile(r"([\d,]+) values")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("results")
    write_study(found / "probed.sqlite", PROBED)
    write_study(found / "search.sqlite", Synthetic(blocks=2, slices=1, capacity="p99 < 20ms"))
    return found


def address(served: Served, name: str = "probed", rest: str = "") -> str:
    of = identifier(served.directory, served.directory / f"{name}.sqlite")
    return f"{served.origin}/explore/{of}{rest}"


def opened(page: Page, served: Served, rest: str = "") -> None:
    page.goto(address(served, rest=rest))
    expect(page.locator("#charts .u-over")).to_have_count(5)


def values(page: Page) -> int:
    """Return the number of values in the window."""
    expect(page.locator("#state")).to_contain_text("values")
    found = VALUES.search(page.locator("#state").inner_text())
    assert found
    return int(found[1].replace(",", ""))


def test_one_crosshair_is_in_all_charts(page: Page, served: Served) -> None:
    opened(page, served)
    box = page.locator("#charts .u-over").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20)
    for chart in page.locator("#charts .u-legend").all():
        time, *arms = chart.locator(".u-value").all_inner_texts()
        assert re.fullmatch(r"\d:\d\d(\.\d)?", time) and len(arms) == 2 and "–" not in arms
    lines = [of.bounding_box() for of in page.locator("#charts .u-cursor-x").all()]
    assert len({round(of["x"]) for of in lines if of}) == 1


def test_a_zoom_moves_all_charts_and_its_address_restores_it(page: Page, served: Served) -> None:
    opened(page, served)
    every = values(page)
    page.locator("#charts .u-over").nth(2).scroll_into_view_if_needed()
    box = page.locator("#charts .u-over").nth(2).bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"\?from=[\d.]+&to=[\d.]+$"))
    expect(page.locator("#state")).not_to_contain_text(f"{every} values")
    zoomed, url, state = values(page), page.url, page.locator("#state").inner_text()
    assert 0 < zoomed < every
    page.reload()
    expect(page.locator("#state")).to_have_text(state)
    assert page.url == url
    page.get_by_label("Log scale").check()
    page.wait_for_url(re.compile("&scale=log$"))
    page.go_back()
    expect(page.get_by_label("Log scale")).not_to_be_checked()
    page.go_back()
    expect(page.locator("#state")).to_contain_text(f"{every} values")
    page.go_forward()
    expect(page.locator("#state")).to_have_text(state)
    page.locator("#charts .u-over").first.dblclick()
    expect(page.locator("#state")).to_contain_text(f"{every} values")
    assert page.url == address(served)


def test_arms_blocks_and_metrics_are_chosen_and_in_the_address(page: Page, served: Served) -> None:
    opened(page, served)
    every = values(page)
    page.get_by_label("17", exact=True).uncheck()
    page.wait_for_url(re.compile(r"\?arm=1$"))
    expect(page.locator("#state")).to_contain_text(f"{every // 2} values")
    page.get_by_role("button", name="None").click()
    page.get_by_label("2", exact=True).check()
    page.wait_for_url(re.compile(r"block=1$"))
    expect(page.locator("#state")).to_contain_text(f"{every // 6} values")
    page.get_by_text("Metrics (").click()
    page.get_by_label("Find").fill("full-page")
    expect(page.get_by_role("checkbox", name="Throughput")).to_be_hidden()
    page.get_by_label("Find").fill("p50")
    page.get_by_role("checkbox", name="p50 latency").check()
    expect(page.locator("#charts .u-over")).to_have_count(6)
    page.reload()
    expect(page.locator("#charts .u-over")).to_have_count(6)
    expect(page.get_by_label("17", exact=True)).not_to_be_checked()
    expect(page.locator("#charts figcaption").nth(1)).to_have_text("p50 latency, ms")
    page.get_by_role("link", name="Latency").click()
    expect(page.locator("#state")).to_contain_text("in 1 trials")


def test_the_keyboard_moves_the_crosshair_and_zooms(page: Page, served: Served) -> None:
    opened(page, served)
    every, charts = values(page), page.get_by_role("slider")
    charts.first.focus()
    page.keyboard.press("Home")
    expect(charts.first).to_have_attribute("aria-valuetext", re.compile(r"^0:1\d.*: 17 [\d,]+, </script>"))
    before = charts.nth(1).get_attribute("aria-valuetext")
    page.keyboard.press("PageUp")
    expect(charts.nth(1)).not_to_have_attribute("aria-valuetext", before or "")
    page.keyboard.press("+")
    page.wait_for_url(re.compile("from="))
    expect(page.locator("#state")).not_to_contain_text(f"{every} values")
    page.keyboard.press("0")
    expect(page.locator("#state")).to_contain_text(f"{every} values")
    expect(charts.first).to_be_focused()


def test_numbers_are_in_a_table_too(page: Page, served: Served) -> None:
    opened(page, served)
    page.get_by_text("Values in this window").click()
    row = page.locator("#numbers tbody tr").filter(has_text="WAL, MiB/s").first
    expect(row.locator("td")).to_have_text(["17", re.compile(r"\d+"), "1", "1", "1"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("rest", ["", "?scale=log", "/latency", "/latency?kind=payment&scale=log"])
def test_pages_fit_a_phone_and_have_contrast(page: Page, served: Served, scheme: str, rest: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size(NARROW)
    page.goto(address(served, rest=rest))
    expect(page.locator("canvas").nth(2)).to_be_visible()
    assert not wider_than_the_window(page) and not too_pale(page)
    widths = [box["width"] for of in page.locator(".uplot canvas").all() if (box := of.bounding_box())]
    assert min(widths) > 0.9 * NARROW["width"] - 20, "charts are as wide as the window"


def test_charts_follow_the_width_of_the_window(page: Page, served: Served) -> None:
    opened(page, served)
    wide, canvas = page.locator("#charts canvas").first.bounding_box(), page.locator("#charts canvas").first
    page.set_viewport_size(NARROW)
    expect(canvas).to_have_css("width", re.compile(r"^3[5-9]\dpx$"))
    assert wide and wide["width"] > 1100


def test_a_view_of_the_report_is_chosen_by_a_form(page: Page, served: Served) -> None:
    page.goto(address(served, "search", "/capacity"))
    arm = page.get_by_role("group", name="Arms").get_by_label("18", exact=True)
    arm.uncheck()
    page.get_by_role("button", name="Show").click()
    expect(arm).not_to_be_checked()
    expect(page.locator("svg .arm1")).to_have_count(0)
    page.set_viewport_size(NARROW)
    assert not wider_than_the_window(page) and not too_pale(page)
