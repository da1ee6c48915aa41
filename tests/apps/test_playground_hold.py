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
from apps.playground.key_state import KeyState
from apps.playground.people import Person

pytestmark = pytest.mark.only_on("linux", "darwin")

VISITOR = "0123abcd"


@asynccontextmanager
async def visitor() -> AsyncIterator[httpx.AsyncClient]:
    """A visitor who has opened the page."""
    async with Engine() as engine, HoldPanel(engine, Faults(engine)) as panel:
        app = httpx.ASGITransport(Starlette(routes=[Mount("/hold", routes=panel.routes)]))
        address, cookies = "http://playground", {COOKIE: VISITOR}
        async with httpx.AsyncClient(transport=app, base_url=address, cookies=cookies) as client:
            yield client


def test_who_asks_when_the_last_lease_ends_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann releases while Ben's process is being checked: the key is forgotten then."""
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
    """Ann releases before the first line of the stream is read; what Ben does then is shown."""
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


async def test_who_asks_while_the_answer_to_another_is_made_disturbs_nobody() -> None:
    """Ann has the key, and her answer waits for what Ben's process reports; then Eve comes."""
    state = KeyState(VISITOR)
    assert state.enter("ann", ttl=5, wait=5) is not None
    assert state.enter("ben", ttl=5, wait=5) is not None
    state.update("ann", {"is": "in", "answered_at": 0.0, "ends_at": 5.0, "guarded": True})
    settling = asyncio.create_task(state.settled())
    await asyncio.sleep(0)  # it has begun, and cannot end before Ben's visit
    assert not settling.done() and state.enter("eve", ttl=5, wait=0) is not None
    state.kill("ben")
    await settling


def test_who_may_kill_nobody_is_not_remembered() -> None:
    """409 without a lease of theirs; a visitor who never comes back leaves nothing behind."""

    async def ask() -> tuple[int, int]:
        async with Engine() as engine, HoldPanel(engine, Faults(engine)) as panel:
            routes = [Mount("/hold", routes=panel.routes)]
            app, cookies = httpx.ASGITransport(Starlette(routes=routes)), {COOKIE: VISITOR}
            async with httpx.AsyncClient(
                transport=app, base_url="http://playground", cookies=cookies
            ) as client:
                answer = await client.post("/hold/kill")
            states = panel._states  # pyright: ignore[reportPrivateUsage]
            return answer.status_code, len(states)

    assert asyncio.run(ask()) == (409, 0)
