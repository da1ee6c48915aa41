"""The console in a real browser: every page, wide and narrow, light and dark, by keyboard only."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs.testing import Server, eventually
from dibs.testing.servers import free_port
from tests.apps.browser import CONTRAST, launched

ROOT = Path(__file__).parents[2]
PANELS = ("server", "process", "facts")

pytestmark = pytest.mark.only_on("linux", "darwin")


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    with Server.start("valkey") as server:
        yield server


@pytest.fixture(scope="module")
def address(store: Server) -> Iterator[str]:
    """Of an application with consoles at /dibs and /ops."""
    port = free_port()
    command = [sys.executable, "-m", "tests.console.served", store.url, str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(f"{url}/dibs/"), within=60)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Open a page; afterwards there must have been no error and no request to another host."""
    contexts: list[Any] = []
    mistakes: list[str] = []

    def opened(path: str, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: mistakes.append(said.text))
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(address) else mistakes.append(asked.url),
        )
        page.goto(address + path)
        page.locator("#rows tr").first.wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert mistakes == []


SCROLLABLE = """[...document.querySelectorAll('.lines')].filter(
    list => list.scrollHeight > list.clientHeight && list.tabIndex !== 0).length"""
LANDMARKS = """[...document.querySelectorAll('section, [role=region]')].map(
    each => each.getAttribute('aria-labelledby')).filter(Boolean)"""


@pytest.mark.parametrize("width", [360, 1280])
def test_every_page_fits_and_can_be_read(visit: Any, width: int) -> None:
    """On a phone and on a desk, light and dark: nothing beside the screen, contrast as WCAG AA."""
    for scheme in ("light", "dark"):
        page = visit("/ops/", width, color_scheme=scheme, reduced_motion="reduce")
        for panel in PANELS:
            page.evaluate(f"location.hash = '#{panel}'")
            page.locator(f"#{panel}").wait_for(state="visible")
            seen = page.evaluate(CONTRAST)
            assert seen["looked"] > 20 and seen["poor"] == [], (panel, scheme)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, panel
            assert page.evaluate(SCROLLABLE) == 0, "it cannot be scrolled by keyboard"
        names = page.evaluate(LANDMARKS)
        assert len(names) == len(set(names)), "two parts are called alike"
        page.evaluate("location.hash = '#server'")
        page.locator("#rows .why").first.click()
        page.locator("#why-close").wait_for(state="visible")
        assert page.evaluate(CONTRAST)["poor"] == [], (scheme, "why")


def test_the_server_and_this_process_are_shown_apart(visit: Any) -> None:
    """Counts and rows of the server; waiters, hit rates and the breaker of this process."""
    page = visit("/dibs/")
    from playwright.sync_api import expect

    expect(page.locator("#rows tr")).to_have_count(50)
    expect(page.locator("[data-group=leases] b")).to_have_text("60")
    page.locator("[data-group=leases]").click()
    expect(page.locator("#rows code").first).to_contain_text("processing:~")
    assert page.locator("#rows button:not(.why)").count() == 0
    page.get_by_role("button", name="claim", exact=False).first.click()
    expect(page.locator("#rows .state")).to_have_count(1)
    expect(page.locator("#rows .state")).to_have_text("running")
    page.get_by_role("link", name="this process").click()
    expect(page.locator("#tiles")).to_contain_text("closed")
    expect(page.locator("#waiting")).to_contain_text("1 waiter")
    expect(page.locator("#caches")).to_contain_text("33.3 %")
    page.get_by_role("link", name="facts").click()
    expect(page.locator("#nodes")).to_contain_text("noeviction")


def test_rows_are_found_sorted_and_paged_by_keyboard(visit: Any) -> None:
    """Tab, Enter, letters: no mouse."""
    from playwright.sync_api import expect

    page = visit("/ops/")
    keys = page.keyboard
    keys.press("/")
    keys.type("user:17")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#rows code").first).to_have_text("processing:user:17")
    keys.type("nobody")
    expect(page.locator("#empty")).to_have_text("Nothing contains “user:17nobody”.")
    expect(page.locator("#table")).to_be_hidden()  # no head above nothing
    keys.press("Control+a")
    keys.press("Delete")
    expect(page.locator("#rows tr")).to_have_count(50)
    page.locator("#after").focus()
    keys.press("Enter")
    expect(page.locator("#place")).to_have_text("Page 2 of 2")
    expect(page.locator("#rows tr")).to_have_count(12)
    page.locator(".skip").focus()
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "panels"
    page.get_by_role("link", name="facts").focus()
    keys.press("Enter")
    expect(page.locator("#facts-title")).to_be_focused()


def test_releasing_asks_twice_by_keyboard(visit: Any, store: Server) -> None:
    """Escape or "Keep it" changes nothing; two yeses release what was shown, and say so."""
    from playwright.sync_api import expect

    with Dibs(store.url, namespace="shop:") as dibs:
        assert dibs.try_hold("processing:user:one-more", ttl=600)
    page = visit("/ops/?")
    keys = page.keyboard
    page.locator("#text").fill("one-more")
    expect(page.locator("#rows tr")).to_have_count(1)
    button = page.get_by_role("button", name="Release processing:user:one-more")
    button.focus()
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("may still be at work")
    expect(page.locator("#ask-no")).to_be_focused()
    assert page.evaluate(CONTRAST)["poor"] == []
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(button).to_be_focused()
    assert "shop:processing:user:one-more" in store.keys()
    keys.press("Enter")
    expect(page.locator("#ask-no")).to_be_focused()
    keys.press("Tab")
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Are you sure?")
    expect(page.locator("#ask-no")).to_be_focused()
    assert "shop:processing:user:one-more" in store.keys()
    keys.press("Tab")
    keys.press("Enter")
    expect(page.locator("#note")).to_have_text("Released.")
    assert "shop:processing:user:one-more" not in store.keys()
    expect(page.locator("#rows tr")).to_have_count(0)


def test_a_page_that_is_open_says_that_the_server_is_out_and_goes_on(
    visit: Any, store: Server
) -> None:
    """No reload: what was read stays on the page, and the notice goes when the server answers."""
    from playwright.sync_api import expect

    page = visit("/dibs/")
    store.freeze()
    try:
        expect(page.locator("#gone")).to_contain_text("The server cannot be read")
        assert page.locator("#rows tr").count() == 50
        page.get_by_role("link", name="this process").click()
        expect(page.locator("#tiles .alarming").first).to_contain_text("silent")
        assert page.evaluate(CONTRAST)["poor"] == []
    finally:
        store.thaw()
    expect(page.locator("#gone")).to_be_hidden()
    expect(page.locator("#tiles")).to_contain_text("closed")
