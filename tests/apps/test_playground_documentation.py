"""The way out of the playground: the pages, wherever they are."""

from __future__ import annotations

from pathlib import Path

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from apps.playground.documentation import Documentation


async def get(folder: Path, path: str) -> httpx.Response:
    app = Starlette(routes=[Mount("/pages", Documentation(folder))])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://playground") as client:
        return await client.get(path)


async def test_built_pages_are_served(tmp_path: Path) -> None:
    """As `make docs` left them; what is not there is not found."""
    (tmp_path / "index.html").write_text("the first page")
    assert (await get(tmp_path, "/pages/")).text == "the first page"
    assert (await get(tmp_path, "/pages/none.html")).status_code == 404


async def test_pages_that_are_not_built_are_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is never dead: it says what builds them, or leads to where they are published."""
    missing = tmp_path / "missing"
    monkeypatch.delenv("DOCS_URL", raising=False)
    told = await get(missing, "/pages/quickstart.html")
    assert told.status_code == 404 and "make docs" in told.text
    monkeypatch.setenv("DOCS_URL", "https://dibs.example/")
    led = await get(missing, "/pages/quickstart.html")
    assert led.headers["location"] == "https://dibs.example/"
