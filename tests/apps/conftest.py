"""An empty database for each test, of each kind; a playground, and a page of it in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.browser import launched, narrow_page
from tests.apps.playground_process import Playground, running
from tests.apps.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/app.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.take_back(url)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """An empty database; for what does not depend on its kind."""
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture(scope="package")
def playground() -> Iterator[Playground]:
    """One for all tests that undo what they did: its services take seconds to start."""
    with running() as playground:
        assert playground.url, playground.line
        yield playground


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, playground: Playground) -> Iterator[Any]:
    """The page of the playground with Ann and Ben, on a narrow screen."""
    with narrow_page(browser, playground.url, "/#hold") as page:
        yield page
