"""What the tests of local-line's pages share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.browser import launched

from .stage import PHONE, TIMEOUT, Stage, is_mistake


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.fixture(params=[PHONE], ids=["360px"])
def page(browser: Any, stage: Stage, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page at the narrowest supported width; it calls only its own server."""
    context = browser.new_context(viewport=request.param, locale="zh-TW")
    context.set_default_timeout(TIMEOUT * 1000)
    page = context.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda said: mistakes.append(said.text) if is_mistake(said) else None)
    home = stage.line.page_url.removesuffix("chat/")
    page.on("request", lambda asked: mistakes.append(asked.url) if home not in asked.url else None)
    page.goto(stage.line.page_url)
    page.locator("#bot-name", has_text="My bot").wait_for()
    yield page
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    context.close()
    assert not mistakes and overflow <= 0
