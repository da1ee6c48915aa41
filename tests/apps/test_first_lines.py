"""The READMEs of the applications quote code that is there, and what they add works."""

import re
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import FastAPI

from apps.orders.main import create_app
from apps.orders.settings import Settings
from apps.weamind.line import service
from dibs.testing import Server

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READMES = ["orders", "menu", "weamind"]


def blocks(app: str) -> list[str]:
    return BLOCK.findall((ROOT / "apps" / app / "README.md").read_text("utf-8"))


@pytest.mark.parametrize("app", READMES)
def test_the_lines_that_matter_are_those_of_the_program(app: str) -> None:
    """Each line of the first block is a line of the file that is named above it."""
    source: list[str] = []
    for line in blocks(app)[0].splitlines():
        if line.startswith("# "):
            source = (ROOT / line.removeprefix("# ")).read_text("utf-8").splitlines()
        else:
            assert line in source, line


async def test_another_endpoint_of_the_orders_is_guarded(valkey: Server, tmp_path: Path) -> None:
    """The lines of the README: a double click is refused."""
    from dibs.integrations.fastapi import once

    settings = Settings(
        valkey.url, f"sqlite:///{tmp_path}/orders.db", secret="a secret of the tests"
    )
    app: FastAPI = create_app(settings)
    exec(blocks("orders")[1], {"app": app, "once": once})
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = {"x-user-id": "me"}
            twice = [await client.post("/orders/7/cancel", headers=headers) for _ in range(2)]
    assert [each.status_code for each in twice] == [200, 429]
    assert twice[0].json() == {"cancelled": "7"}


async def test_another_button_of_the_bot_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the README: a tap on it gets its text."""
    replies: list[Any] = []

    class Replying:
        async def reply(self, event: object, message: object) -> None:
            replies.append(message)

    monkeypatch.setattr(service, "_ACTIONS", {**service._ACTIONS})
    exec(blocks("weamind")[1], vars(service))
    await service._dispatch_postback(None, Replying(), {"action": "umbrella"})  # type: ignore[arg-type]
    assert "帶傘" in str(replies)
    del service.answer_umbrella  # type: ignore[attr-defined]
