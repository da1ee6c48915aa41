"""What stands around a guard: CORS, compression, and servers that stop a view."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dibs import AsyncDibs
from dibs._http.responses import Response as Stored
from dibs._http.responses import readable
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server

from . import Call
from .edges import opened

KEYED = {"idempotency-key": "k-1"}
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


async def test_12_inside_of_cors_and_compression_a_replay_is_like_any_answer(
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
async def test_12_a_compressed_answer_is_unpacked_for_who_cannot_read_it(
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


def test_12_every_member_of_a_gzip_body_is_decompressed() -> None:
    """A body may consist of several members, and of padding after them (RFC 1952)."""
    gzipped = ("content-encoding", "gzip")
    body = gzip.compress(b"one, ") + gzip.compress(b"two")
    for whole in (body, body + bytes(8)):
        assert readable(Stored(200, (gzipped,), whole), "identity") == Stored(200, (), b"one, two")
    assert readable(Stored(200, (gzipped,), body[:-4]), "identity") is None


def test_12_what_cannot_be_unpacked_is_not_sent() -> None:
    """Brotli has no place in the standard library; a body that is not what it says has none."""
    vary = ("vary", "Origin, Accept-Encoding")
    plain = Stored(200, (("content-encoding", "identity"), vary), b"x")
    assert readable(plain, None) == plain
    for coding, body in (("gzip", gzip.compress(b"x")), ("deflate", zlib.compress(b"x"))):
        found = readable(Stored(200, (("content-encoding", coding), vary), body), None)
        assert found == Stored(200, (vary,), b"x")
    for coding in ("br", "zstd", "gzip, br", "gzip"):
        kept = Stored(200, (("content-encoding", coding), vary), b"unreadable")
        assert readable(kept, None) is None and readable(kept, "identity") is None
        assert readable(kept, coding) == kept or "," in coding
        chosen_by_nobody = Stored(200, (("content-encoding", coding),), b"unreadable")
        assert readable(chosen_by_nobody, None) == chosen_by_nobody


async def test_12_a_coding_that_a_client_cannot_read_is_a_409(valkey: Server) -> None:
    """It was done, and is not done again."""
    async with opened("asgi", valkey, after="replay", key="required") as shop:
        shop.headers = {"content-encoding": "br", "vary": "Accept-Encoding"}
        await shop.post(headers={**KEYED, "accept-encoding": "br"})
        refused = await shop.post(headers=KEYED)
        assert refused.status == 409 and refused.json["type"] == "urn:dibs:already-done"
        assert (await shop.post(headers={**KEYED, "accept-encoding": "br"})).is_replay
        assert len(shop.runs) == 1


# ---- Django under ASGI


@pytest.mark.parametrize("edge", ["django async", "django middleware async"])
@pytest.mark.parametrize("is_sync", [False, True], ids=["async view", "sync view"])
async def test_8_django_finishes_the_work_of_a_client_that_leaves(
    valkey: Server, edge: str, is_sync: bool
) -> None:
    """Django cancels its view; the retry gets the answer, and the work is done once."""
    import threading

    from . import edges_django

    from asgiref.sync import sync_to_async  # isort: skip
    from django.http import JsonResponse  # isort: skip

    runs: list[int] = []
    gate = threading.Event()

    def work(request: Any) -> Any:
        runs.append(1)
        assert gate.wait(20)
        return JsonResponse({"order": len(runs)}, status=201)

    async def awork(request: Any) -> Any:
        runs.append(1)
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return JsonResponse({"order": len(runs)}, status=201)

    async with opened(edge, valkey, after="replay", key="required") as shop:
        view = sync_to_async(work) if is_sync else awork
        if "middleware" not in edge:
            view = edges_django.once(window=60, after="replay", key="required")(view)
        edges_django.current = view
        headers = {**KEYED, "content-type": "application/json", "host": "shop"}
        call = Call(shop.app, headers=headers)
        task = call.start()
        while not runs:
            await asyncio.sleep(0.01)
        call.leave()
        await asyncio.sleep(0.1)
        assert (await shop.post(headers=KEYED)).status == 409
        gate.set()
        await task
        again = await shop.post(headers=KEYED)
        assert again.is_replay and again.json == {"order": 1} and len(runs) == 1


@pytest.mark.parametrize("edge", ["django async", "django middleware async"])
async def test_8_a_second_cancellation_is_obeyed(valkey: Server, edge: str) -> None:
    """A server that shuts down is not kept by a view that hangs; the key is free."""
    from . import edges_django

    begun = asyncio.Event()

    async def hangs(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    policy: dict[str, Any] = {"window": 60, "after": "replay", "key": "required"}
    async with opened(edge, valkey, **policy) as shop:
        edges_django.current = hangs if "middleware" in edge else edges_django.once(**policy)(hangs)
        headers = {**KEYED, "content-type": "application/json", "host": "shop"}
        call = Call(shop.app, headers=headers)
        task = call.start()
        await begun.wait()
        others = asyncio.all_tasks() - {asyncio.current_task(), task}
        for _ in range(2):
            for other in others:
                other.cancel()
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        while valkey.keys():
            await asyncio.sleep(0.01)


async def test_8_what_a_view_sets_in_its_context_is_seen_outside(valkey: Server) -> None:
    """It runs in a task of its own, as if it did not."""
    import contextvars

    from django.http import JsonResponse
    from django.test import override_settings

    from . import edges_django

    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")

    async def view(request: Any) -> Any:
        variable.set("set by the view")
        return JsonResponse({}, status=201)

    async with opened("django async", valkey, after="replay", key="required"):
        with override_settings(MIDDLEWARE=[f"{__name__}.looking"]):
            from django.core.handlers.asgi import ASGIHandler

            seen.clear()
            Looking.variable = variable
            edges_django.current = edges_django.once(window=60)(view)
            headers = {"content-type": "application/json", "host": "shop"}
            call = Call(ASGIHandler(), headers=headers)
            await call.run()
    assert seen == ["set by the view"] and json.loads(call.body) == {}


seen: list[str] = []


class Looking:
    variable: Any = None


def looking(get_response: Any) -> Any:
    """A middleware that looks at what the view has set."""

    async def middleware(request: Any) -> Any:
        response = await get_response(request)
        seen.append(Looking.variable.get())
        return response

    return middleware


looking.async_capable = True  # type: ignore[attr-defined]
looking.sync_capable = False  # type: ignore[attr-defined]


# ---- bodies that are changed on their way


@pytest.mark.parametrize("edge", ["asgi", "starlette", "fastapi"])
async def test_7_a_body_that_was_unpacked_outside_is_whole(valkey: Server, edge: str) -> None:
    """Under ASGI the server says when a client has left; the length may be that of the wire."""
    async with opened(edge, valkey, after="replay", key="required") as shop:
        headers = {**KEYED, "content-type": "application/json", "content-length": "22"}
        for replayed in (False, True):
            call = await Call(shop.app, headers=headers, body=b"{}").run()
            assert (call.status, call.is_replay) == (201, replayed)
