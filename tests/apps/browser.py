"""A browser for the tests of pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")
"""Evaluated in a page: how many texts it has, and those that are too faint for WCAG AA."""
TIMEOUT = 60.0
"""Seconds: a process may take its time to start on a busy machine."""


@contextmanager
def launched() -> Iterator[Any]:
    """A browser; the test is skipped if there is none."""
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"NOT TESTED: no browser at {CHROMIUM}; apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def narrow_page(browser: Any, url: str, panel: str = "") -> Iterator[Any]:
    """A page of the narrowest supported width, without errors and without requests to other hosts.

    All text that the test leaves on it is legible in the light and the dark theme.
    """
    context = browser.new_context(viewport={"width": 360, "height": 740})
    context.set_default_timeout(TIMEOUT * 1000)
    page = context.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(url) else mistakes.append(asked.url),
    )
    page.goto(url + panel)
    yield page
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    faint = [f"{scheme}: {text}" for scheme in ("light", "dark") for text in _faint(page, scheme)]
    context.close()
    assert not mistakes and not faint and overflow <= 0


def _faint(page: Any, scheme: str) -> list[str]:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour on its way
    return page.evaluate(CONTRAST)["poor"]
