"""Access in a real browser: the token, its cookie, and pages of other origins."""

from __future__ import annotations

from pages_server import Served
from playwright.sync_api import BrowserContext, Page, expect

FOREIGN = "http://attacker.example/"


def test_the_token_leaves_the_address_and_scripts_cannot_read_its_cookie(
    stranger: BrowserContext, served: Served
) -> None:
    page = stranger.new_page()
    page.goto(f"{served.url}&q=a")
    page.wait_for_url(f"{served.origin}/?q=a")
    expect(page.get_by_role("searchbox")).to_have_value("a")
    assert page.evaluate("() => document.cookie") == ""
    (cookie,) = stranger.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"


def test_a_browser_without_the_token_sees_nothing(
    stranger: BrowserContext, served: Served, faults: list[str]
) -> None:
    page = stranger.new_page()
    page.goto(f"{served.origin}/?token=wrong")
    expect(page.get_by_text("Open the address that pgdyno has printed")).to_be_visible()
    expect(page.get_by_text("Runs")).to_have_count(0)
    faults[:] = [one for one in faults if "403" not in one]


def test_a_page_of_another_origin_can_neither_read_nor_frame_nor_post(
    context: BrowserContext, page: Page, served: Served, faults: list[str]
) -> None:
    context.route(f"{FOREIGN}**", lambda of: of.fulfill(body="<h1>elsewhere</h1>", content_type="text/html"))
    page.goto(FOREIGN)
    for options in ("{credentials: 'include'}", "{method: 'POST', mode: 'no-cors', credentials: 'include'}"):
        read = f"fetch('{served.origin}/', {options}).then((of) => of.text(), () => '')"
        assert page.evaluate(read) == ""
    framed = """(address) => new Promise((done) => {
      const frame = document.createElement("iframe");
      frame.onload = () => done(frame.contentDocument?.title ?? "another origin");
      frame.src = address;
      document.body.append(frame);
    })"""
    assert page.evaluate(framed, served.origin) == "another origin"
    expect(page.frame_locator("iframe").get_by_role("searchbox")).to_have_count(0)
    faults.clear()
