"""A browser, and servers of pages in processes of their own.

``make page-test`` runs these tests with the distribution's Chromium; ``make test`` does not collect them. Any
error in the console, failed request, error status, request to another host or dialog fails a test, unless it
removes it from ``faults``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages_server import Served, let_in
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

TIMEOUT_MS = 30_000
"""Time limit of each step: longer is a failure."""

expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of results files. A module overrides it with files of its own."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[Served]:
    found = Served.of(directory)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "no chromium in PATH: install the distribution's package (make page-test does)"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=arguments)
        yield found
        found.close()


@pytest.fixture
def faults() -> Iterator[list[str]]:
    """Errors of pages, and requests that they must not send. A test that provokes a fault removes it."""
    found: list[str] = []
    yield found
    assert not found


@pytest.fixture
def stranger(browser: Browser, faults: list[str]) -> Iterator[BrowserContext]:
    """A browser that has not opened the address with the token."""
    found = browser.new_context(
        locale="en-US", timezone_id="UTC", viewport={"width": 1280, "height": 900}, accept_downloads=True
    )
    found.set_default_timeout(TIMEOUT_MS)

    def failed(request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # by the page itself: it was left, or a file is downloaded
            faults.append(f"{request.failure} {request.url}")

    def asked(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            faults.append(f"foreign request {request.url}")

    found.on("request", asked)
    found.on("requestfailed", failed)
    found.on("response", lambda of: of.status < 400 or faults.append(f"status {of.status} {of.url}"))
    found.on("weberror", lambda of: faults.append(f"exception {of.error}"))
    found.on("console", lambda of: of.type in ("error", "warning") and faults.append(f"console: {of.text}"))
    found.on("dialog", lambda of: (faults.append(f"dialog {of.message}"), of.dismiss()))
    yield found
    found.close()


@pytest.fixture
def context(stranger: BrowserContext, served: Served) -> BrowserContext:
    """A browser with the cookie of the server."""
    let_in(stranger, served)
    return stranger


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()
