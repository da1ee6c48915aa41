"""The chat panel: a bot that starts late or not at all, and texts that no webhook could carry."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest
from local_line import ChatPanel, Platform, local, served
from local_line.routes import create_page
from starlette.applications import Starlette

from .test_platform import SECRET, TIMEOUT, TOKEN, Bot, EventStream

pytestmark = pytest.mark.only_on("linux", "darwin")


async def test_what_happens_while_the_bot_starts_is_told_once() -> None:
    """It is in the state that the page is given then, and not among the news after it."""
    started = asyncio.Event()
    platform, bot = Platform(secret=SECRET, access_token=TOKEN), Bot()
    panel = ChatPanel(platform, open_bot=lambda: _awaited(started))
    async with panel, served(bot) as webhook, served(create_page(panel)) as url:
        platform.webhook_url = webhook
        async with _visitor(url) as client, EventStream(client) as seen:
            assert (await seen.next())[0] == "opening"
            assert (await client.post("/chat/api/say", json={"text": "早"})).status_code == 202
            async with asyncio.timeout(TIMEOUT):
                while not platform.deliveries:
                    await asyncio.sleep(0.005)
            started.set()
            kind, state = await seen.next()
            assert kind == "state" and len(state["chats"]["private"]["entries"]) == 1
            assert [each["kind"] for each in state["log"]] == ["delivery"]
            await client.post("/chat/api/say", json={"text": "晚"})
            kind, entry = await seen.next()
            assert kind == "entry" and entry["message"]["text"] == "晚"


async def test_who_writes_to_the_bot_has_added_it() -> None:
    """So that the bot may ask for their profile, as it may at LINE."""
    platform = Platform(secret=SECRET, access_token=TOKEN, webhook_url="http://127.0.0.1:9")
    panel = ChatPanel(platform)
    async with panel, served(create_page(panel)) as url, _visitor(url) as client:
        await client.post("/chat/api/say", json={"text": "hi"})
        (user,) = platform.accounts.friends()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        profile = await client.get(f"/v2/bot/profile/{user}", headers=headers)
        assert profile.json()["displayName"] == "Ann"


async def test_half_a_character_is_refused() -> None:
    """Before it is in the chat: no webhook could carry it."""
    platform = Platform(secret=SECRET, access_token=TOKEN, webhook_url="http://127.0.0.1:9")
    panel = ChatPanel(platform)
    async with panel, served(create_page(panel)) as url, _visitor(url) as client:
        for verb, body in [("say", rb'{"text":"\ud83d"}'), ("tap", rb'{"data":"\udf27"}')]:
            answer = await client.post(f"/chat/api/{verb}", content=body)
            assert answer.status_code == 400 and answer.json()["error"]
    assert not platform.deliveries


async def test_an_app_that_does_not_start_leaves_no_port_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OSError, the loop continues, and no client hangs on a port without a server."""
    opened: list[socket.socket] = []
    listen = local._listen  # pyright: ignore[reportPrivateUsage]

    def watched(host: str, port: int) -> socket.socket:
        opened.append(listen(host, port))
        return opened[-1]

    @asynccontextmanager
    async def broken(app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("there is no database")
        yield

    monkeypatch.setattr(local, "_listen", watched)
    with pytest.raises(OSError, match="does not start"):
        async with served(Starlette(lifespan=broken), lifespan=True):
            pytest.fail("it is not served")
    assert [listener.fileno() for listener in opened] == [-1]


async def _awaited(event: asyncio.Event) -> None:
    await event.wait()


@asynccontextmanager
async def _visitor(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A visitor who has opened the page."""
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, trust_env=False) as client:
        assert (await client.get("/chat/")).status_code == 200
        yield client
