"""uvicorn is killed while it claims a request, or stores a response; then the client retries.

What is on its way is held back by a proxy before Redis, so every run is the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from dibs.testing import Child, FaultProxy, Server, eventually


def serve(url: str, path: str, waits: bool) -> None:
    """Each endpoint adds an order. *waits*: for a line on stdin, when it has done so."""
    import asyncio
    from typing import Any

    import uvicorn
    from fastapi import FastAPI
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs
    from dibs.integrations.fastapi import install, once

    app, engine = FastAPI(), create_async_engine(f"sqlite+aiosqlite:///{path}")
    policy: dict[str, Any] = {"window": 60, "after": "replay", "key": "required", "lease": 1}

    async def receipt(connection: Any, name: str) -> dict[str, str]:
        await connection.execute(text(f"INSERT INTO orders VALUES ('{name}')"))
        return {"receipt": name}

    async def told() -> None:
        if waits:
            print("worked", flush=True)
            await asyncio.to_thread(input)

    @app.post("/plain", status_code=201)
    @once(**policy)
    async def plain() -> dict[str, str]:
        async with engine.begin() as connection:
            made = await receipt(connection, "plain")
        await told()
        return made

    @app.post("/within", status_code=201)
    @once(**policy, within=engine.begin)
    async def within(connection: Any) -> dict[str, str]:
        made = await receipt(connection, "within")
        await told()
        return made

    install(app, AsyncDibs(url, budget=60))

    async def main() -> None:
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await serving

    asyncio.run(main())


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "app.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (name text)")
    connection.close()
    return path


@pytest.fixture
def proxy(valkey: Server) -> Iterator[FaultProxy]:
    with FaultProxy(valkey.port) as proxy:
        yield proxy


def runs(path: str) -> int:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
    connection.close()
    return found


def address(child: Child) -> str:
    return f"http://127.0.0.1:{int(child.line(within=90))}"


def submit(to: str, route: str) -> httpx.Response:
    return httpx.post(f"{to}/{route}", json={}, headers={"idempotency-key": "k-1"}, timeout=90)


CLAIM, STORE = b"once:", b"receipt"
PHASES = {
    "the claim has not arrived": ("requests", CLAIM, 1),
    "the claim is made, its reply has not arrived": ("replies", CLAIM, 1),
    "the response has not arrived": ("requests", STORE, 2),
    "the response is stored, the reply has not arrived": ("replies", STORE, 1),
}
"""What is held back, and how often the endpoint runs without `within`."""


@pytest.mark.parametrize("route", ["plain", "within"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_is_killed_is_followed_by_one_that_answers(
    valkey: Server, proxy: FaultProxy, path: str, phase: str, route: str
) -> None:
    """One order and one answer; without `within`, a response that is lost with its process is the
    one case in which the endpoint runs again.
    """
    way, match, times = PHASES[phase]
    with (
        Child(serve, valkey.url, path, False) as other,
        Child(serve, proxy.url, path, True) as killed,
        ThreadPoolExecutor(1) as pool,
    ):
        there, here = address(other), address(killed)
        hold = proxy.hold_requests if way == "requests" else proxy.hold_replies
        if match == CLAIM:
            hold(match=match)
        lost = pool.submit(submit, here, route)
        if match == STORE:
            assert killed.line() == "worked"
            hold(match=match)
            killed.tell()
        eventually(lambda: proxy.triggered == 1, within=90)
        if way == "replies":
            eventually(lambda: match in stored(valkey), within=90)
        killed.kill()
        proxy.cut()  # what was on its way is lost
        with pytest.raises(httpx.TransportError):
            lost.result()
        answer = eventually(lambda: answered(submit(there, route)), within=90)
        assert answer.json() == {"receipt": route}
        assert runs(path) == (1 if route == "within" else times)


def stored(server: Server) -> bytes:
    """The key that Redis has, and what is in it."""
    return b"".join(each.encode() + server.client().get(each) for each in server.keys())


def answered(response: httpx.Response) -> httpx.Response | None:
    """None: the client has to try again."""
    assert response.status_code in (201, 409)
    return response if response.status_code == 201 else None
