"""CORS and compression around a guard: a replay is like any answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dibs import AsyncDibs
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server

from .edges import opened
from .every_edge import KEYED

POLICIES = [Policy("POST /orders", window=60, after="replay", key="required")]
TEXT = "a long answer " * 100
ORIGIN = {"origin": "https://shop.example"}


@asynccontextmanager
async def visiting(server: Server, *, is_outermost: bool) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application with CORS and compression, the guard inside or outside."""
    runs: list[int] = []

    async def order(request: Request) -> PlainTextResponse:
        runs.append(1)
        return PlainTextResponse(f"{len(runs)} {TEXT}", 201)

    async with AsyncDibs(server.url, budget=5) as dibs:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=["https://shop.example"],
            expose_headers=["Retry-After", "Idempotent-Replayed"],
        )
        guard = Middleware(DibsMiddleware, dibs=dibs, policies=POLICIES)  # type: ignore[arg-type]
        around = [cors, Middleware(GZipMiddleware, minimum_size=100)]
        stack = [guard, *around] if is_outermost else [*around, guard]
        app = Starlette(routes=[Route("/orders", order, methods=["POST"])], middleware=stack)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            yield client


async def test_inside_of_cors_and_compression_a_replay_is_like_any_answer(
    valkey: Server,
) -> None:
    """Replays and refusals have CORS headers, and each client gets a coding that it can read."""
    async with visiting(valkey, is_outermost=False) as client:
        for coding, kind in (("gzip", "gzip"), ("identity", None), ("gzip", "gzip")):
            headers = {**KEYED, **ORIGIN, "accept-encoding": coding}
            answer = await client.post("/orders", headers=headers)
            assert answer.text == f"1 {TEXT}" and answer.headers.get("content-encoding") == kind
            assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        refused = await client.post("/orders", headers=ORIGIN)
        assert refused.status_code == 400
        assert refused.headers["access-control-allow-origin"] == "https://shop.example"


@pytest.mark.parametrize(
    "accepts", [None, "", "identity", "br", "gzip;q=0", "*;q=0", "deflate, br"]
)
async def test_a_compressed_answer_is_unpacked_for_who_cannot_read_it(
    valkey: Server, accepts: str | None
) -> None:
    """Where compression is inside of the guard, its coding is kept with the answer."""
    async with visiting(valkey, is_outermost=True) as client:
        first = await client.post("/orders", headers={**KEYED, "accept-encoding": "gzip"})
        assert first.headers["content-encoding"] == "gzip"
        if accepts is None:
            del client.headers["accept-encoding"]
        says = {} if accepts is None else {"accept-encoding": accepts}
        again = await client.post("/orders", headers={**KEYED, **says})
        assert again.text == first.text and "content-encoding" not in again.headers
        assert again.headers["content-length"] == str(len(again.content))
        packed = await client.post("/orders", headers={**KEYED, "accept-encoding": "br, *;q=0.1"})
        assert packed.headers["content-encoding"] == "gzip" and packed.text == first.text


async def test_a_coding_that_a_client_cannot_read_is_a_409(valkey: Server) -> None:
    """It was done, and is not done again."""
    async with opened("asgi", valkey, after="replay", key="required") as shop:
        shop.headers = {"content-encoding": "br", "vary": "Accept-Encoding"}
        await shop.post(headers={**KEYED, "accept-encoding": "br"})
        refused = await shop.post(headers=KEYED)
        assert refused.status == 409 and refused.json["type"] == "urn:dibs:already-done"
        assert (await shop.post(headers={**KEYED, "accept-encoding": "br"})).is_replay
        assert len(shop.runs) == 1
