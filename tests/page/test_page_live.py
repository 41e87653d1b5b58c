"""The page of a running study in a browser, while the test writes the study's file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from looks import NARROW, too_pale, wider_than_the_window
from pages_server import Served, let_in
from playwright.sync_api import BrowserContext, Page, expect
from synthetic_study import CREATED_UNIX_S, QuickWriter, Synthetic, arms_of, study_of, write_block

from pgdyno.caveats import Caveat
from pgdyno.features.serve.index import identifier
from pgdyno.results.records import StudyEnd
from pgdyno.results.writer import Writer

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[2J"
PLAIN = Synthetic(effects=(1.0, 1.2), blocks=20, ended=None, title="Nightly")
WANTED = {
    **dict.fromkeys(("end", "tabs", "gone", "looks", "stopped"), PLAIN),
    "hostile": Synthetic(ended=None, title=HOSTILE, names=("</script>", HOSTILE), caveats=()),
}
"""A study for each test. Their files exist before the server looks for files, which it does once a second."""


@dataclass
class Running:
    """A study that the test writes."""

    path: Path
    wanted: Synthetic
    writer: Writer
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    blocks: int = 0
    is_open: bool = True

    def write(self, blocks: int) -> None:
        for _ in range(blocks):
            write_block(self.writer, self.wanted, self.blocks, self.rng)
            self.blocks += 1

    def end(self) -> None:
        self.writer.finish_study(StudyEnd.BUDGET, CREATED_UNIX_S + 40 * self.blocks)
        self.close()

    def close(self) -> None:
        if self.is_open:
            self.writer.close()
        self.is_open = False


@pytest.fixture(scope="module")
def studies(directory: Path) -> Iterator[dict[str, Running]]:
    with ExitStack() as stack:
        found = {}
        for name, wanted in WANTED.items():
            path = directory / f"{name}.sqlite"
            writer = QuickWriter.create(path, study_of(wanted), arms_of(wanted))
            found[name] = Running(path, wanted, writer)
            stack.callback(found[name].close)
        yield found


@pytest.fixture(scope="module")
def served(studies: dict[str, Running], directory: Path) -> Iterator[Served]:
    found = Served.of(directory)
    yield found
    found.stop()


def live(served: Served, study: Running) -> str:
    return f"{served.origin}/live/{identifier(served.directory, study.path)}"


def expect_blocks(page: Page, n: int) -> None:
    expect(page.locator("#standings tbody td.n")).to_have_text(str(n))


def width_of(change: str) -> float:
    """Return the width of an interval in percent."""
    found = re.search(r"\[([+−]?[\d.]+)%, ([+−]?[\d.]+)%\]", change)
    assert found, change
    low, high = (float(end.replace("−", "-")) for end in found.groups())
    return high - low


def test_a_study_is_followed_from_its_list_to_its_report(
    page: Page, served: Served, studies: dict[str, Running]
) -> None:
    study = studies["end"]
    page.goto(served.origin)
    page.get_by_role("row").filter(has=page.get_by_text("end.sqlite")).locator("th a").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Nightly")
    expect(page.locator("#chip")).to_have_text("running")
    expect(page.get_by_text("No block has ended.")).to_be_visible()
    study.write(3)
    expect_blocks(page, 3)
    expect(page.locator("#latest tbody th")).to_have_text(["17", "18"])
    expect(page.locator("#latest tbody td").first).to_have_text(re.compile(r"^\d,\d{3}$"))
    expect(page.locator("#tps canvas, #p99 canvas, #narrowing canvas")).to_have_count(3)
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.locator("#progress")).to_contain_text("3 of about 16 blocks done · ends at ")
    change = page.locator("#standings tbody td").first
    study.write(3)
    expect_blocks(page, 6)
    width = width_of(change.inner_text())
    study.write(6)
    study.writer.add_caveat(Caveat.of("shared-machine", cores=2))
    expect_blocks(page, 12)
    assert width_of(change.inner_text()) < width
    expect(page.locator("#standings .chip")).to_have_text("faster")
    expect(page.locator("#narrowing [role=img]")).to_have_attribute(
        "aria-label", re.compile("18 vs. 17.*now")
    )
    study.write(1)
    study.end()
    expect(page.locator("#chip")).to_have_text("ended")
    page.get_by_role("link", name="The study has ended: open its report").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("faster")


def test_two_tabs_and_a_reload_show_the_same(
    context: BrowserContext, served: Served, studies: dict[str, Running]
) -> None:
    study = studies["tabs"]
    first, second = context.new_page(), context.new_page()
    study.write(2)
    for tab in (first, second):
        tab.goto(live(served, study))
        expect_blocks(tab, 2)
    study.write(1)
    for tab in (first, second):
        expect_blocks(tab, 3)
    first.reload()
    expect_blocks(first, 3)
    expect(first.locator("#latest tbody td")).to_have_text(
        second.locator("#latest tbody td").all_inner_texts()
    )
    first.close()
    study.write(1)
    expect_blocks(second, 4)


def test_a_page_follows_again_when_its_server_is_back(
    context: BrowserContext, directory: Path, studies: dict[str, Running], faults: list[str]
) -> None:
    study = studies["gone"]
    study.write(2)
    before = Served.of(directory)
    try:
        let_in(context, before)
        page = context.new_page()
        page.goto(live(before, study))
        expect_blocks(page, 2)
        expect(page.locator("#gone")).to_be_hidden()
        assert not faults
    finally:
        before.stop()
    expect(page.locator("#gone")).to_be_visible()
    study.write(1)
    after = Served.of(directory, before.port)
    try:
        expect(page.locator("#gone")).to_contain_text("open the address that it prints")
        let_in(context, after)  # in another tab: its token is new
        expect_blocks(page, 3)
        expect(page.locator("#gone")).to_be_hidden()
    finally:
        page.close()
        after.stop()
        faults[:] = [one for one in faults if "exception" in one]


def test_a_study_whose_process_ended_shows_the_command_to_resume(
    page: Page, served: Served, studies: dict[str, Running], context: BrowserContext
) -> None:
    study = studies["stopped"]
    study.write(1)
    page.goto(live(served, study))
    expect(page.locator("#chip")).to_have_text("running")
    study.close()
    expect(page.locator("#chip")).to_have_text("stopped")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy command").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == f"pgdyno compare --resume {study.path}"


def test_hostile_names_of_a_running_study_are_text(
    page: Page, served: Served, studies: dict[str, Running]
) -> None:
    study = studies["hostile"]
    study.write(3)
    page.goto(live(served, study))
    expect_blocks(page, 3)
    expect(page.locator("#standings tbody th")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("#tps .u-legend")).to_contain_text("</script>")
    expect(page.locator("main img, main script")).to_have_count(0)
    shown = page.evaluate("() => document.title + document.body.innerText")
    assert not re.search("[\u202e\x1b]", shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_running_study_fits_a_narrow_window_and_has_enough_contrast(
    page: Page, served: Served, studies: dict[str, Running], scheme: str
) -> None:
    study = studies["looks"]
    study.write(3)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(NARROW)
    page.goto(live(served, study))
    expect_blocks(page, study.blocks)
    assert not wider_than_the_window(page) and not too_pale(page)
