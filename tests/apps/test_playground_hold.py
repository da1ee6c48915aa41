"""The hold panel, in this process: what happens between two of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount

from apps.playground import hold
from apps.playground.engine import Engine
from apps.playground.faults import COOKIE, Faults
from apps.playground.hold import HoldPanel
from apps.playground.people import Person

pytestmark = pytest.mark.only_on("linux", "darwin")

VISITOR = "0123abcd"


@asynccontextmanager
async def visitor() -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has opened the page."""
    async with Engine() as engine, HoldPanel(engine, Faults(engine)) as panel:
        app = httpx.ASGITransport(Starlette(routes=[Mount("/hold", routes=panel.routes)]))
        address, cookies = "http://playground", {COOKIE: VISITOR}
        async with httpx.AsyncClient(transport=app, base_url=address, cookies=cookies) as client:
            yield client


def test_who_asks_when_the_last_lease_ends_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann lets go while Ben's process is asked whether it is there: the key is forgotten then."""
    ready = Person.ready

    async def ask() -> httpx.Response:
        async with visitor() as client:
            await client.post("/hold/ann", json={"ttl": 10})

            async def ann_leaves_meanwhile(person: Person) -> None:
                await client.delete("/hold/ann")
                await ready(person)

            monkeypatch.setattr(Person, "ready", ann_leaves_meanwhile)
            return await asyncio.wait_for(client.post("/hold/ben", json={"ttl": 2}), 30)

    assert asyncio.run(ask()).status_code == 200


def test_a_page_that_opens_when_the_last_lease_ends_sees_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ann lets go before the first line of the stream is read; what Ben does then is shown."""
    streams: list[AsyncGenerator[str, None]] = []

    def kept(lines: AsyncGenerator[str, None]) -> Response:
        streams.append(lines)
        return Response()

    async def watch() -> None:
        async with visitor() as client:
            await client.post("/hold/ann", json={"ttl": 10})
            await client.get("/hold/events")
            await client.delete("/hold/ann")
            async with aclosing(streams[0]) as lines, asyncio.timeout(30):
                async for line in lines:
                    if '"ben": {"is": "in"' in line:
                        break
                    await client.post("/hold/ben", json={"ttl": 10})

    monkeypatch.setattr(hold, "Stream", kept)
    asyncio.run(watch())
