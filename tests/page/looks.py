"""Checks of every page: nothing is wider than the window, and texts have enough contrast."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

NARROW = {"width": 400, "height": 800}


def wider_than_the_window(page: Page) -> list[str]:
    """Return the width of a page that scrolls sideways, and the elements that are the reason."""
    page.wait_for_load_state()  # a text can be seen before its style
    return list(page.evaluate(_script("wider")))


def too_pale(page: Page) -> list[str]:
    """Return the texts with too little contrast, and their ratio."""
    page.wait_for_load_state()
    return list(page.evaluate(_script("pale")))


def _script(name: str) -> str:
    return Path(__file__).with_name(f"{name}.js").read_text("utf-8")
